"""A replacement takes the place of a view: what readers see, and what goes on."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from tests.support.adapter.calm import CalmPlace

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER
from slackwater.adapter.ddl import replacements
from slackwater.adapter.ddl.replacements import Replacements
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier

BEGIN = 1_780_000_000_000
HOUR = "RETAIN HISTORY FOR '1 hour'"
SMALL = "SELECT k, v FROM t WHERE k < 10"
ALL = "SELECT k, v FROM t"


@pytest.fixture
def place(env):
    made = CalmPlace(env, BEGIN)
    made.table("t", k="integer", v="string")
    made.sql(f"ALTER TABLE t SET ({HOUR})")
    made.write("t", *({"k": key, "v": "a"} for key in range(0, 20, 5)))
    made.sql(f"CREATE MATERIALIZED VIEW v WITH ({HOUR}) AS {SMALL}")
    yield made
    made.close()


def counted(rows):
    return Counter(tuple(row.values()) for row in rows)


def replacement(place, query=ALL, name="r"):
    place.sql(f"CREATE REPLACEMENT MATERIALIZED VIEW {name} FOR v WITH ({HOUR}) AS {query}")


def apply(place):
    place.sql("ALTER MATERIALIZED VIEW v APPLY REPLACEMENT r")


def refused(place, condition, statement):
    with pytest.raises(SlackwaterError) as caught:
        place.sql(statement)
    assert caught.value.condition == condition, caught.value
    return caught.value


def keys(place, name):
    return sorted(row["k"] for row in place.read(name))


def check_history(place, times):
    """At each time the view is one of both queries, and does not go back to the first one."""
    is_new = []
    for at in times:
        table = place.rows("t", at)
        old = Counter((row["k"], row["v"]) for row in table if row["k"] < 10)
        new = Counter((row["k"], row["v"]) for row in table)
        found = counted(place.rows("v", at))
        assert found in (old, new), at
        is_new.append(found == new)
    assert is_new == sorted(is_new)
    assert is_new[-1]
    return is_new


def test_the_view_goes_on_on_the_cluster_of_its_replacement(place):
    place.sql("CREATE CLUSTER other (SIZE = '25cc')")
    options = f"IN CLUSTER other WITH ({HOUR})"
    place.sql(f"CREATE REPLACEMENT MATERIALIZED VIEW r FOR v {options} AS {ALL}")
    apply(place)
    (shown,) = place.sql("SHOW MATERIALIZED VIEWS")
    assert (shown["name"], shown["cluster"]) == ("v", "other")
    place.write("t", {"k": 30, "v": "b"})
    place.wait(lambda: 30 in keys(place, "v"))
    place.sql("DROP CLUSTER quickstart")
    place.write("t", {"k": 31, "v": "b"})
    place.wait(lambda: 31 in keys(place, "v"))


def test_the_view_is_the_old_query_before_and_the_new_one_after(place):
    replacement(place)
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT v, count(*) AS n FROM v GROUP BY v")
    before = place.item("v")
    for key in (3, 30):
        place.passes(10)
        place.write("t", {"k": key, "v": "b"})
    assert keys(place, "v") == [0, 3, 5]
    apply(place)
    place.passes(10)
    assert keys(place, "v") == [0, 3, 5, 10, 15, 30]
    assert counted(place.read("above")) == Counter({("a", 4): 1, ("b", 2): 1})
    for key in (4, 40):
        place.passes(10)
        place.write("t", {"k": key, "v": "b"})
    assert keys(place, "v") == [0, 3, 4, 5, 10, 15, 30, 40]
    assert counted(place.read("above")) == Counter({("a", 4): 1, ("b", 4): 1})
    after = place.item("v")
    assert (after.id, after.shard_id, after.desc) == (before.id, before.shard_id, before.desc)
    assert place.env.state.find("default", "r") is None
    end = place.env.persist.reads.tables_upper()
    assert not check_history(place, range(after.details.as_of, end))[0]
    place.restart()
    place.write("t", {"k": 50, "v": "b"})
    assert keys(place, "v") == [0, 3, 4, 5, 10, 15, 30, 40, 50]
    (shown,) = place.sql("SHOW CREATE MATERIALIZED VIEW v")
    assert "REPLACEMENT" not in shown["create_sql"]
    assert ALL in shown["create_sql"]


def test_a_reader_meets_no_gap_while_others_write(place):
    replacement(place)
    over, wrong, read = threading.Event(), [], []

    def reads():
        while not over.is_set():
            try:
                found = place.read("v")
            except SlackwaterError as error:
                wrong.append(error)
                return
            read.append(len(found))

    def writes():
        for key in range(100, 130):
            place.now_ms += 3
            place.write("t", {"k": key, "v": "c"})

    threads = [threading.Thread(target=each) for each in (reads, writes)]
    for each in threads:
        each.start()
    apply(place)
    threads[1].join()
    place.wait(lambda: wrong or (read and read[-1] > 30))
    over.set()
    threads[0].join()
    assert wrong == []
    end = place.env.persist.reads.tables_upper()
    place.wait(lambda: place.env.relations.upper(place.item("v")).value >= end)
    check_history(place, range(place.item("v").details.as_of, end))


def fetched(place, count):
    """So many rows of the cursor `c`, at least."""
    found = []

    def are_there():
        found.extend(place.sql("FETCH ALL c WITH (timeout = '1s')"))
        return len(found) >= count

    place.wait(are_there)
    return found


def test_who_follows_the_view_gets_the_difference_as_updates(place):
    replacement(place)
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE v")
    begun = fetched(place, 2)
    assert sorted(row["k"] for row in begun) == [0, 5]
    apply(place)
    place.write("t", {"k": 20, "v": "b"})
    changes = fetched(place, 3)
    assert [(row["k"], row["mz_diff"]) for row in changes] == [(10, 1), (15, 1), (20, 1)]
    assert len({row["mz_timestamp"] for row in changes[:2]}) == 1
    place.sql("CLOSE c")


def test_what_is_kept_for_the_replacement_is_kept_for_the_view(place):
    replacement(place)
    other, view = place.item("r").id, place.item("v").id
    place.write("t", {"k": 1, "v": "b"})
    apply(place)
    place.write("t", {"k": 2, "v": "b"})
    assert len(place.read("v")) == 6
    (replica,) = [link for _, link in place.env.compute._links.values()]
    worker = replica._worker
    assert other not in worker._views
    assert worker._heirs == {}
    assert worker._views[view]._inherited


def test_a_replacement_is_for_nobody_to_read(place):
    replacement(place)
    for statement in (
        "CREATE MATERIALIZED VIEW w AS SELECT * FROM r",
        "CREATE SINK s FROM r INTO FILES (PATH '/nowhere', FORMAT JSON)",
        "DECLARE c CURSOR FOR SUBSCRIBE r",
        "CREATE INDEX ON r (k)",
    ):
        refused(place, "SLACKWATER_REPLACEMENT", statement)
    with pytest.raises(SlackwaterError) as caught:
        place.read("r")
    assert caught.value.condition == "SLACKWATER_REPLACEMENT"
    refused(place, "SLACKWATER_DEPENDENT_OBJECTS", "DROP MATERIALIZED VIEW v")
    anew = f"CREATE OR REPLACE MATERIALIZED VIEW v AS {ALL}"
    refused(place, "SLACKWATER_DEPENDENT_OBJECTS", anew)
    place.sql("DROP MATERIALIZED VIEW r")
    assert keys(place, "v") == [0, 5]
    replacement(place)
    place.sql("DROP MATERIALIZED VIEW v CASCADE")
    assert place.env.state.find("default", "r") is None


@pytest.mark.parametrize(
    ("condition", "query"),
    [
        ("SLACKWATER_COLUMN_MISMATCH", "SELECT k FROM t"),
        ("SLACKWATER_COLUMN_MISMATCH", "SELECT k, v AS w FROM t"),
        ("SLACKWATER_COLUMN_MISMATCH", "SELECT v AS k, v FROM t"),
        ("SLACKWATER_UNSUPPORTED", "SELECT k, v FROM v"),
        ("SLACKWATER_UNSUPPORTED", "SELECT k, v FROM above"),
    ],
)
def test_a_query_that_cannot_take_the_place_is_refused(place, condition, query):
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT k, v FROM v")
    refused(place, condition, f"CREATE REPLACEMENT MATERIALIZED VIEW r FOR v AS {query}")
    assert keys(place, "v") == [0, 5]


def test_a_view_has_one_replacement_and_it_is_its_own(place):
    replacement(place)
    again = f"CREATE REPLACEMENT MATERIALIZED VIEW x FOR v AS {ALL}"
    refused(place, "SLACKWATER_REPLACEMENT_EXISTS", again)
    place.sql(f"CREATE MATERIALIZED VIEW other AS {ALL}")
    apply_other = "ALTER MATERIALIZED VIEW other APPLY REPLACEMENT r"
    refused(place, "SLACKWATER_NO_REPLACEMENT", apply_other)
    refused(place, "SLACKWATER_NO_REPLACEMENT", "ALTER MATERIALIZED VIEW v APPLY REPLACEMENT other")
    nested = f"CREATE REPLACEMENT MATERIALIZED VIEW x FOR r AS {ALL}"
    refused(place, "SLACKWATER_UNSUPPORTED", nested)
    timed = f"CREATE REPLACEMENT MATERIALIZED VIEW x FOR other WITH (REFRESH AT CREATION) AS {ALL}"
    refused(place, "SLACKWATER_UNSUPPORTED", timed)


def test_a_replacement_goes_on_after_a_restart(place):
    replacement(place)
    place.restart()
    place.write("t", {"k": 1, "v": "b"})
    apply(place)
    place.passes(10)
    assert keys(place, "v") == [0, 1, 5, 10, 15]
    assert place.env.relations.upper(place.item("v")) > Frontier(0)


def test_a_view_goes_on_if_its_replacement_does_not_follow(place, monkeypatch):
    replacement(place)
    # As far as applying it waits for it first, which would take as long as a statement may.
    place.wait(lambda: not place.env.relations.upper(place.item("r")).allows(place.env.read_ts()))
    place.env.compute.drop(DEFAULT_CLUSTER.id, [place.item("r").id])
    monkeypatch.setattr(replacements, "LONGEST_S", 0.2)
    refused(place, "SLACKWATER_WAIT_TIMEOUT", "ALTER MATERIALIZED VIEW v APPLY REPLACEMENT r")
    place.write("t", {"k": 1, "v": "b"})
    assert keys(place, "v") == [0, 1, 5]
    place.restart()
    apply(place)
    place.passes(10)
    assert keys(place, "v") == [0, 1, 5, 10, 15]


def test_an_append_that_was_under_way_is_not_lost(place, monkeypatch):
    """The first attempt finds the view further than it looked."""
    replacement(place)
    real, looked = Replacements._wait_beyond, []

    def behind(self, execution, pair):
        found = real(self, execution, pair)
        looked.append(found)
        if len(looked) > 1:
            return found
        return found[0] - 1, found[1]

    monkeypatch.setattr(Replacements, "_wait_beyond", behind)
    apply(place)
    assert len(looked) == 2
    place.passes(10)
    assert keys(place, "v") == [0, 5, 10, 15]
