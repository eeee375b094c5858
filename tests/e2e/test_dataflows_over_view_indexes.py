"""Dataflows over a plain view that has an index: what its query needs is kept and computed once."""

from __future__ import annotations

import pytest
from tests.support.applications.application import (
    Application,
    SqlError,
    kill,
    only_coordinator,
)
from tests.support.applications.fixtures import Workplace
from tests.support.applications.indexed import hydrated, uses
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SIZES = "SELECT readers, records FROM slackwater.mz_internal.mz_arrangement_sizes"
TOTALS = "SELECT k, sum(x) AS total, avg(x) AS mean, count(*) AS n FROM items GROUP BY k"
JOINED = "SELECT o.y, {v}.total, {v}.mean FROM other o JOIN {v} ON {v}.k = o.k"


def readers(place):
    """For each arrangement the names of its readers, and how many updates it has."""
    names = dict(place.rows("SELECT id, name FROM slackwater.mz_catalog.mz_objects"))
    return sorted(
        (sorted(names.get(each, each) for each in found), records)
        for found, records in place.rows(SIZES)
    )


def shared_by(place, *names):
    """How many arrangements have these readers and no others."""
    return sum(found == sorted(names) for found, _ in readers(place))


def modes(place, view):
    """The modes of the steps of the view's last tick."""
    rows = place.rows(f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {view}")
    return {row[7] for row in rows}


def computed_once(place, views, change):
    """Whether some of the views have taken from others what they compute of a change."""
    place.sql(change)
    for view in views:
        place.rows(f"SELECT count(*) FROM {view}")
    return any("shared" in modes(place, view) for view in views)


@pytest.mark.nightly
def test_what_an_index_keeps_is_kept_once(tmp_path):
    """Also after a restart, and when the index is dropped."""
    with Application(tmp_path / "environment", master="local[2]") as application:
        place = Workplace(application, "w", tmp_path)
        place.sql("CREATE TABLE items (k INT, x INT)")
        place.sql("CREATE TABLE other (k INT, y STRING)")
        place.sql("INSERT INTO items SELECT id % 100, id FROM range(1000)")
        place.sql("INSERT INTO items VALUES (NULL, 7)")
        place.sql("INSERT INTO other VALUES (1, 'a'), (2, 'b'), (1000, 'c'), (NULL, 'd')")
        place.sql(f"CREATE VIEW v AS {TOTALS}")
        place.sql(f"CREATE VIEW same AS {TOTALS}")
        place.sql("CREATE VIEW above AS SELECT n, count(*) AS c FROM v GROUP BY n")
        place.sql("CREATE INDEX i ON v (k)")
        hydrated(place, "i")
        place.sql(f"CREATE MATERIALIZED VIEW m AS {JOINED.format(v='v')}")
        place.sql(f"CREATE MATERIALIZED VIEW wanted AS {JOINED.format(v='same')}")
        place.sql("CREATE MATERIALIZED VIEW few AS SELECT k, n FROM v WHERE n > 10")
        place.sql("CREATE INDEX j ON above (n)")
        hydrated(place, "j")
        place.sql("CREATE CLUSTER elsewhere (SIZE = '50cc')")
        place.sql("CREATE MATERIALIZED VIEW apart IN CLUSTER elsewhere AS SELECT k, n FROM v")

        def is_right():
            found = sorted(place.rows("SELECT * FROM m"), key=repr)
            assert found == sorted(place.rows("SELECT * FROM wanted"), key=repr)
            counts = sorted(place.rows("SELECT k, n FROM same"), key=repr)
            assert sorted(place.rows("SELECT * FROM apart"), key=repr) == counts
            assert sorted(place.rows("SELECT * FROM few"), key=repr) == [
                each for each in counts if each[1] > 10
            ]
            assert place.rows("SELECT c FROM above WHERE n = 11") == place.rows(
                "SELECT count(*) FROM same WHERE n = 11 HAVING count(*) > 0"
            )
            return found

        def are_shared(what):
            """Waits until the rows of the view by its key, and the states of its groups, are."""
            wanted = [["apart"], ["few", "i", "j", "m"], ["i", "m"]]
            found = []

            def are_there():
                found[:] = readers(place)
                return all(sum(each == names for each, _ in found) == 1 for names in wanted)

            try:
                wait_until(are_there, what=what)
            except AssertionError as error:
                raise AssertionError(f"{error}: {found}") from None

        are_shared("the arrangements")
        assert len(is_right()) == 2
        change = "INSERT INTO items VALUES (1, 5), (2, 6), (NULL, 1), (1000, 9)"
        wait_until(lambda: computed_once(place, ["m", "few"], change), what="a shared step")
        assert len(is_right()) == 3
        place.sql("DELETE FROM items WHERE k = 2")
        place.sql("INSERT INTO other VALUES (3, 'e')")
        assert len(is_right()) == 3
        kill(only_coordinator(application.location))
        place.sql("UPDATE items SET x = x + 1 WHERE k < 5")
        assert len(is_right()) == 3
        are_shared("the arrangements after a restart")
        wait_until(lambda: computed_once(place, ["m", "few"], change), what="a shared step")
        is_right()
        place.sql("DROP INDEX i")
        wait_until(lambda: shared_by(place, "few", "j", "m") == 1, what="the index is gone")
        place.sql(change)
        place.sql("DELETE FROM items WHERE k = 1000")
        is_right()


def test_an_error_of_the_view_is_one_of_what_asks_for_it(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE VIEW v AS SELECT k, count(*) AS n, sum(10 / v) AS q FROM t GROUP BY k")
    workplace.sql("CREATE INDEX i ON v (k)")
    workplace.sql("INSERT INTO t VALUES (1, 5), (2, 2)")
    hydrated(workplace, "i")
    workplace.sql("CREATE MATERIALIZED VIEW all AS SELECT * FROM v")
    workplace.sql("CREATE MATERIALIZED VIEW counts AS SELECT k, n FROM v")
    assert sorted(workplace.rows("SELECT * FROM all")) == [[1, 1, "2.0"], [2, 1, "5.0"]]
    workplace.sql("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(SqlError, match="DIVIDE_BY_ZERO"):
        workplace.rows("SELECT * FROM all")
    assert sorted(workplace.rows("SELECT * FROM counts")) == [[1, 1], [2, 2]]
    workplace.sql("DELETE FROM t WHERE v = 0")
    workplace.sql("INSERT INTO t VALUES (3, 1)")
    assert len(workplace.rows("SELECT * FROM all")) == 3
    assert sorted(workplace.rows("SELECT * FROM counts")) == [[1, 1], [2, 1], [3, 1]]
    wait_until(lambda: uses(workplace, "SELECT q FROM v WHERE k = 1", "i"), what="the index")
