"""Views with a refresh schedule: what they are at each time, and how far they are."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import sqlalchemy as sa
from tests.support.adapter.calm import CalmPlace

from slackwater.persist.tables import parts, shards
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp

BEGIN = 1_780_000_000_000
"""2026-05-28 20:26:40"""
HOUR = "RETAIN HISTORY FOR '1 hour'"


@pytest.fixture
def place(env):
    made = CalmPlace(env, BEGIN)
    made.table("t", k="integer")
    made.sql(f"ALTER TABLE t SET ({HOUR})")
    yield made
    made.close()


def counted(rows):
    return Counter(tuple(row.values()) for row in rows)


def create(place, name, *options, query="SELECT k, count(*) AS n FROM t GROUP BY k"):
    """A view; the time of its first refresh."""
    place.sql(f"CREATE MATERIALIZED VIEW {name} WITH ({', '.join((HOUR, *options))}) AS {query}")
    return place.item(name).details.as_of


def upper(place, name):
    return place.env.relations.upper(place.item(name))


def since(place, name):
    return place.env.relations.since(place.item(name)).value


def reached(place, name, time):
    """Waits until the upper of the view is `time`."""
    wanted = EMPTY_FRONTIER if time is None else Frontier(time)
    place.wait(lambda: upper(place, name) == wanted)


def expected(place, at):
    """The rows of `SELECT k, count(*) FROM t GROUP BY k` at a time."""
    return Counter(Counter(row["k"] for row in place.rows("t", at)).items())


def check(place, name, first, end):
    """At each time at which something could be told apart, the view is what it has to be."""
    schedule = place.item(name).refresh
    refreshes = [first]
    while (after := schedule.at_or_after(Timestamp(refreshes[-1] + 1))) is not None and after < end:
        refreshes.append(after)
    for refresh, following in zip(refreshes, [*refreshes[1:], end], strict=True):
        for at in (refresh, min(refresh + 1, following - 1), following - 1):
            assert counted(place.rows(name, at)) == expected(place, refresh), (refresh, at)
    return len(refreshes)


def test_a_view_is_its_query_at_the_last_refresh_at_each_time(place):
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH AT CREATION", "REFRESH EVERY '10 s' ALIGNED TO 3000")
    assert BEGIN <= first < BEGIN + 100
    reached(place, "v", BEGIN + 3_000)
    for step in range(1, 8):
        place.passes(4_000)
        place.write("t", {"k": step % 3})
    place.passes(4_000)
    reached(place, "v", BEGIN + 33_000)
    assert check(place, "v", first, BEGIN + 33_000) == 4


def test_refreshes_that_a_restart_missed_are_made_at_their_times(place):
    first = create(place, "v", "REFRESH EVERY '10 s'")
    place.write("t", {"k": 1})
    reached(place, "v", first + 10_000)
    place.close()
    place.now_ms += 65_000
    place.start()
    place.write("t", {"k": 2})
    place.passes(1)
    reached(place, "v", first + 70_000)
    assert check(place, "v", first, first + 70_000) == 7
    place.restart()
    place.passes(10_000)
    reached(place, "v", first + 80_000)
    assert check(place, "v", first, first + 80_000) == 8


def test_after_the_last_refresh_a_view_is_final(place):
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH AT CREATION", f"REFRESH AT {BEGIN + 5_000}")
    place.passes(3_000)
    place.write("t", {"k": 2})
    reached(place, "v", BEGIN + 5_000)
    assert counted(place.read("v")) == Counter({(1, 1): 1})
    place.passes(3_000)
    reached(place, "v", None)
    place.write("t", {"k": 3})
    final = Counter({(1, 1): 1, (2, 1): 1})
    assert counted(place.read("v")) == final
    assert check(place, "v", first, BEGIN + 9_000) == 2
    place.restart()
    assert upper(place, "v") == EMPTY_FRONTIER
    assert counted(place.read("v")) == final
    place.sql("DROP MATERIALIZED VIEW v")


def test_its_since_follows_the_present_time_wherever_its_upper_is(place):
    place.sql("ALTER TABLE t RESET (RETAIN HISTORY)")
    place.sql("CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 day') AS SELECT k FROM t")
    place.sql("CREATE MATERIALIZED VIEW once WITH (REFRESH AT CREATION) AS SELECT k FROM t")
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT k FROM v")
    reached(place, "once", None)
    place.wait(lambda: upper(place, "above").value > BEGIN + 80_000_000)
    for _ in range(2):
        place.passes(60_000)
        for name in ("t", "v", "once", "above"):
            # A refresh to come holds nothing of what has been.
            place.wait(lambda name=name: since(place, name) > place.now_ms - 10_000)
            assert since(place, name) < place.env.persist.reads.tables_upper()
        place.restart()


def test_what_a_refresh_needs_stays_readable(place):
    place.sql("ALTER TABLE t RESET (RETAIN HISTORY)")
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH EVERY '10 s'")
    reached(place, "v", first + 10_000)
    place.close()
    place.now_ms += 9_000
    place.start()
    place.write("t", {"k": 2})
    place.now_ms += 500_000
    place.write("t", {"k": 3})
    place.wait(lambda: upper(place, "v").value > place.now_ms)
    assert counted(place.rows("v", first + 10_000)) == Counter({(1, 1): 1, (2, 1): 1})
    assert counted(place.rows("v", place.now_ms)) == Counter({(1, 1): 1, (2, 1): 1})


def test_views_above_it_go_as_far_as_it_is_final(place):
    place.write("t", {"k": 1})
    create(place, "v", "REFRESH EVERY '10 s'")
    first = create(place, "alone", query="SELECT k + 1 AS k FROM v")
    both = create(place, "both", query="SELECT k FROM v UNION ALL SELECT k + 10 AS k FROM t")
    assert max(first, both) <= BEGIN + 100
    place.wait(lambda: upper(place, "alone") == upper(place, "v"))
    place.write("t", {"k": 2})
    assert counted(place.read("both")) == Counter([(1,), (11,), (12,)])
    assert counted(place.read("alone")) == Counter([(2,)])
    place.passes(11_000)
    assert counted(place.read("both")) == Counter([(1,), (2,), (11,), (12,)])
    assert counted(place.read("alone")) == Counter([(2,), (3,)])


def test_before_its_first_refresh_a_view_cannot_be_read_and_nothing_else_waits(place):
    place.write("t", {"k": 1})
    time = BEGIN + 3_600_000
    assert create(place, "v", f"REFRESH AT {time}") == time
    above = create(place, "above", query="SELECT k FROM v")
    assert above == time
    with pytest.raises(SlackwaterError) as caught:
        place.read("v", BEGIN + 1_000)
    assert caught.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"
    explained = place.sql("EXPLAIN TIMESTAMP AS JSON FOR SELECT * FROM v")
    assert explained
    (shown,) = place.system("mz_materialized_view_refreshes")
    assert shown["last_completed_refresh"] is None
    assert shown["next_refresh"].timestamp() * 1000 == time
    place.restart()
    place.passes(3_600_000 - 1_000)
    place.write("t", {"k": 2})
    place.passes(1_000)
    assert counted(place.read("v")) == Counter({(1, 1): 1, (2, 1): 1})
    assert counted(place.read("above")) == Counter([(1,), (2,)])


@pytest.mark.parametrize("isolation", ["serializable", "strict serializable"])
def test_a_read_is_answered_at_the_present_time(place, isolation):
    place.sql(f"SET transaction_isolation = '{isolation}'")
    create(place, "v", "REFRESH EVERY '1 day'")
    reached(place, "v", place.item("v").details.as_of + 86_400_000)
    place.sql("BEGIN")
    place.read("v")
    assert place.read("t") == []
    place.sql("COMMIT")


@pytest.mark.parametrize(
    "option", [f"REFRESH AT {BEGIN - 60_000}", "REFRESH AT '2020-01-01'"], ids=["minute", "years"]
)
def test_a_refresh_in_the_past_is_refused(place, option):
    place.sql("ALTER TABLE t RESET (RETAIN HISTORY)")
    place.passes(1_000)
    with pytest.raises(SlackwaterError) as caught:
        create(place, "v", option, "REFRESH EVERY '1 day'")
    assert caught.value.condition == "SLACKWATER_REFRESH_TOO_EARLY"
    assert "REFRESH AT CREATION" in caught.value.message
    assert place.env.storage.holds() == () or "v" not in str(place.env.storage.holds())
    create(place, "v", "REFRESH EVERY '1 day'")


def test_a_refresh_in_the_past_that_is_still_known_is_made(place):
    place.write("t", {"k": 1})
    place.passes(60_000)
    place.write("t", {"k": 2})
    time = BEGIN + 30_000
    assert create(place, "v", f"REFRESH AT {time}") == time
    reached(place, "v", None)
    assert counted(place.read("v")) == Counter({(1, 1): 1})


def test_a_definition_says_when_it_is_refreshed(place):
    create(place, "v", "REFRESH EVERY '1 day'", "REFRESH AT CREATION")
    create(place, "w", "REFRESH ON COMMIT")
    (shown,) = place.sql("SHOW CREATE MATERIALIZED VIEW v")
    assert "REFRESH EVERY '1 day' ALIGNED TO '2026-05-28 20:26:40" in shown["create_sql"]
    assert "REFRESH AT CREATION" in shown["create_sql"]
    found = {row["name"]: row for row in place.sql("SHOW MATERIALIZED VIEWS")}
    assert (found["v"]["maintenance"], found["w"]["maintenance"]) == ("refresh", "incremental")
    strategies = place.system("mz_materialized_view_refresh_strategies")
    assert sorted(row["type"] for row in strategies) == ["at", "every", "on-commit"]
    place.sql("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT k FROM t")
    assert place.item("v").refresh is None


def test_who_waits_for_a_refresh_is_told_when_it_is(place):
    place.sql("CREATE MATERIALIZED VIEW v WITH (REFRESH AT '2026-06-01') AS SELECT k FROM t")
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT k FROM v")
    place.sql("SET statement_timeout = '200ms'")
    for name in ("v", "above"):
        with pytest.raises(SlackwaterError) as caught:
            place.read(name)
        assert caught.value.condition == "SLACKWATER_WAIT_TIMEOUT"
        assert "It is refreshed at 2026-06-01 00:00:00 UTC." in caught.value.message


def test_changes_are_followed_up_to_the_next_refresh(place):
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH EVERY '10 s'", query="SELECT k FROM t")
    reached(place, "v", first + 10_000)
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE v WITH (PROGRESS)")
    begun = place.sql("FETCH ALL c WITH (timeout = '0s')")
    assert [row["k"] for row in begun if not row["mz_progressed"]] == [1]
    place.write("t", {"k": 2})
    place.passes(10_000)
    reached(place, "v", first + 20_000)
    found = place.sql("FETCH ALL c WITH (timeout = '1s')")
    (change,) = [row for row in found if not row["mz_progressed"]]
    assert (change["mz_timestamp"], change["mz_diff"], change["k"]) == (first + 10_000, 1, 2)
    place.sql("CLOSE c")


def test_a_sink_has_each_refresh_at_its_time(place, tmp_path):
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH EVERY '10 s'", query="SELECT k FROM t")
    final = create(place, "once", "REFRESH AT CREATION", query="SELECT k FROM t")
    for name in ("v", "once"):
        place.sql(
            f"CREATE SINK {name}_out FROM {name} INTO FILES (PATH '{tmp_path}/{name}', FORMAT JSON)"
        )
    place.write("t", {"k": 2})
    place.passes(10_000)

    def written(name):
        manifest = tmp_path / name / "manifest.json"
        if not manifest.exists():
            return None
        read = json.loads(manifest.read_text())
        lines = [
            json.loads(line)
            for file in read["files"]
            for line in (tmp_path / name / file["path"]).read_text().splitlines()
        ]
        return read["frontier"], [(line["k"], line["mz_timestamp"]) for line in lines]

    place.wait(lambda: (written("v") or (0,))[0] == first + 20_000)
    (_, snapshot), change = written("v")[1]
    assert change == (2, first + 10_000)
    assert snapshot < first + 10_000
    place.wait(lambda: written("once") is not None)
    assert [key for key, _ in written("once")[1]] == [1]
    assert final < first + 10_000
    place.restart()


def lost(place, *names):
    """Ends the leader, loses the contents of views, and lets another one begin."""
    lost = [place.item(name).shard_id for name in names]
    place.close()
    with place._env.engine.begin() as conn:
        conn.execute(sa.delete(shards).where(shards.c.shard_id.in_(lost)))
        conn.execute(sa.delete(parts).where(parts.c.shard_id.in_(lost)))
    place.start()


def test_lost_contents_come_with_the_next_refresh_or_at_once_after_the_last(place):
    place.write("t", {"k": 1})
    first = create(place, "v", "REFRESH EVERY '10 s'", query="SELECT k FROM t")
    create(place, "above", query="SELECT k FROM v")
    create(place, "once", "REFRESH AT CREATION", query="SELECT k FROM t")
    reached(place, "v", first + 10_000)
    reached(place, "once", None)
    place.write("t", {"k": 2})
    lost(place, "v", "once")
    assert upper(place, "v") == Frontier(first + 10_000)
    assert since(place, "above") == first + 10_000
    place.passes(1)
    assert counted(place.read("once")) == Counter([(1,), (2,)])
    place.passes(10_000)
    assert counted(place.read("above")) == Counter([(1,), (2,)])
    assert counted(place.read("v")) == Counter([(1,), (2,)])
