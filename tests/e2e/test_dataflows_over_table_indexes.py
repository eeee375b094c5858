"""Dataflows over tables that have an index: what they look up is kept once."""

from __future__ import annotations

import pytest
from tests.e2e.test_dataflows_over_view_indexes import readers, shared_by
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.applications.fixtures import Workplace
from tests.support.applications.indexed import KINDS, hydrated
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

JOINED = "SELECT o.y, t.v FROM other o JOIN t ON t.k = o.k WHERE t.v >= 0"
COUNTED = "SELECT t.k, count(*) AS n FROM other o JOIN t ON t.k = o.k GROUP BY t.k"


def is_right(place):
    """The views have what their queries have."""
    for view, query in {"m": JOINED, "far": JOINED, "counted": COUNTED}.items():
        found, wanted = place.rows(f"SELECT * FROM {view}"), place.rows(query)
        assert sorted(found, key=repr) == sorted(wanted, key=repr), view
    return len(wanted)


def change(place, number):
    """Rows that are there twice, NULL keys, and a column that no view reads."""
    place.sql(f"INSERT INTO t VALUES (1, {number}, 'a'), (1, {number}, 'b'), (NULL, {number}, '')")
    place.sql(f"UPDATE t SET s = '{number}' WHERE k < 20")
    place.sql(f"DELETE FROM t WHERE k = {number + 40}")
    place.sql(f"INSERT INTO other VALUES ({number}, 'new'), (NULL, 'none')")


@pytest.mark.nightly
def test_what_an_index_of_a_table_has_is_kept_once(tmp_path):
    """Also after restarts, in another driver, and when the index is dropped and made again."""
    location = tmp_path / "environment"
    with Application(location, master="local[2]") as application:
        place = Workplace(application, "w", tmp_path)
        place.sql("CREATE TABLE t (k INT, v INT, s STRING)")
        place.sql("CREATE TABLE other (k INT, y STRING)")
        place.sql("INSERT INTO t SELECT id % 100, id - 500, repeat('s', 100) FROM range(1000)")
        place.sql("INSERT INTO other VALUES (1, 'a'), (2, 'b'), (1000, 'c'), (NULL, 'd')")
        place.sql("CREATE INDEX i ON t (k)")
        hydrated(place, "i")
        place.sql(f"CREATE MATERIALIZED VIEW m AS {JOINED}")
        place.sql("CREATE CLUSTER elsewhere (SIZE = '50cc')")
        place.sql(f"CREATE MATERIALIZED VIEW far IN CLUSTER elsewhere AS {JOINED}")
        place.sql(f"CREATE VIEW counted AS {COUNTED}")
        place.sql("CREATE INDEX j ON counted (k)")
        hydrated(place, "j")

        def is_shared(*names):
            return lambda: shared_by(place, *names) == 1

        wait_until(is_shared("i", "j", "m"), what="the arrangement")
        assert is_right(place) == 2
        # That of the other cluster, and of `other` by its keys.
        assert shared_by(place, "far") == 2
        change(place, 3)
        assert is_right(place) == 3
        place.sql("DROP INDEX i")
        wait_until(is_shared("j", "m"), what="the index is gone")
        change(place, 4)
        assert is_right(place) == 4
        place.sql("CREATE INDEX i ON t (k)")
        wait_until(is_shared("i", "j", "m"), what="the index is made again")
        kill(only_coordinator(location))
        change(place, 5)
        assert is_right(place) == 5
        wait_until(is_shared("i", "j", "m"), what="the arrangement after a restart")
        place.sql("CREATE INDEX k ON other (k)")
        hydrated(place, "k")
        assert shared_by(place, "k") == 1
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater.w")
        change(application, 6)
        assert is_right(application) == 6
        wait_until(are_shared(application), what="the arrangements in another driver")
        change(application, 7)
        assert is_right(application) == 7


def are_shared(place):
    """Views that are older than an index share it when they are planned again."""
    wanted = [["i", "j", "m"], ["j", "k", "m"]]
    return lambda: [names for names, _ in readers(place) if len(names) > 1] == wanted


@pytest.mark.nightly
def test_keys_of_every_kind_are_those_of_the_index(workplace):
    """Collations, zeros and NaN, CHAR: what a join takes for equal, and how an index has it."""
    for kind, (declared, literals) in KINDS.items():
        workplace.sql(f"CREATE TABLE {kind}_t (k {declared}, v INT)")
        workplace.sql(f"CREATE INDEX {kind}_i ON {kind}_t (k)")
        workplace.sql(
            f"CREATE MATERIALIZED VIEW {kind}_v AS SELECT x.v, y.v AS w FROM {kind}_t x"
            f" JOIN {kind}_t y ON x.k = y.k AND x.v < y.v"
        )
        values = ", ".join(f"({each}, {n})" for n, each in enumerate([*literals, *literals]))
        workplace.sql(f"INSERT INTO {kind}_t VALUES {values}")
    for kind in KINDS:
        query = f"SELECT x.v, y.v AS w FROM {kind}_t x JOIN {kind}_t y ON x.k = y.k AND x.v < y.v"
        assert sorted(workplace.rows(f"SELECT * FROM {kind}_v")) == sorted(workplace.rows(query))
    wanted = sorted([f"{kind}_i", f"{kind}_v"] for kind in KINDS)
    own = {name for names in wanted for name in names}
    found = []

    def are_shared():
        found[:] = sorted(names for names, _ in readers(workplace) if own & set(names))
        return found == wanted

    try:
        wait_until(are_shared, what="the arrangements")
    except AssertionError as error:
        raise AssertionError(f"{found} are not {wanted}") from error


def test_a_decimal_of_another_scale_is_another_key(workplace):
    workplace.sql("CREATE TABLE prices (p DECIMAL(10, 2), v INT)")
    workplace.sql("CREATE TABLE asked (p DECIMAL(10, 3), n BIGINT)")
    workplace.sql("CREATE INDEX prices_i ON prices (p)")
    workplace.sql(
        "CREATE MATERIALIZED VIEW found AS SELECT n, v FROM asked a JOIN prices b USING (p)"
    )
    workplace.sql("INSERT INTO prices VALUES (1.10, 1), (1.10, 2), (2, 3)")
    workplace.sql("INSERT INTO asked VALUES (1.1, 10), (2.001, 20)")
    hydrated(workplace, "prices_i")
    assert sorted(workplace.rows("SELECT * FROM found")) == [[10, 1], [10, 2]]
    wait_until(lambda: shared_by(workplace, "found") == 2, what="arrangements of its own")
    assert shared_by(workplace, "prices_i") == 1
