"""What an application leaves is what the next one goes on with: refreshes, rows whose times come
while nobody runs, replacements, parameters.

Each has a schema of its own in one environment, and happens in the same two applications.
"""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application
from tests.support.applications.fixtures import Workplace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

HISTORY = "RETAIN HISTORY FOR '1 hour'"

ROWS = 20_000
OLD = "SELECT n.g, count(*) AS c, sum(t.v) AS s FROM t JOIN names n ON t.k % 100 = n.k GROUP BY n.g"
NEW = OLD.replace("GROUP BY", "WHERE t.v >= 0 GROUP BY")
TICKS = (
    "SELECT r.rows_scanned FROM mz_internal.mz_recent_ticks r"
    " JOIN mz_catalog.mz_materialized_views v"
    " ON r.object_id = v.id WHERE v.name = 'replaced' AND r.lower >= {since} ORDER BY r.lower"
)

LAST_TICKS = (
    "SELECT object_id, lower, upper, committed_at FROM mz_internal.mz_recent_ticks r"
    " JOIN mz_catalog.mz_materialized_views v ON r.object_id = v.id WHERE v.name = 'above'"
)
HYDRATED = (
    "SELECT status, installed_at <= started_at AND started_at <= hydrated_at"
    " FROM mz_internal.mz_object_hydration_history h"
    " JOIN mz_catalog.mz_materialized_views v ON h.object_id = v.id WHERE v.name = 'above'"
)

PARAMETER = "persist_blob_target_size"

EVERY_MS = 2_000
FRONTIERS = (
    "SELECT read_frontier, write_frontier FROM mz_internal.mz_frontiers f"
    " JOIN mz_catalog.mz_materialized_views v ON f.object_id = v.id WHERE v.name = 'refreshed'"
)
REFRESHED = "SELECT v, count(*) AS n, mz_now() AS at FROM t GROUP BY v"


@pytest.fixture(scope="module")
def second(tmp_path_factory):
    """The second application, and what is known of the first one by schema."""
    folder = tmp_path_factory.mktemp("next")
    location, file = folder / "environment", folder / "parameters.conf"
    file.write_text(f"{PARAMETER} = 64MB\nstatement_timeout = '2 min'\n")
    conf = {"spark.slackwater.parameters.file": str(file)}
    known = {}
    with Application(location, master="local[2]", conf=conf) as first:
        change_parameters(Workplace(first, "parameters", folder), file)
        replace(Workplace(first, "replacements", folder))
        known["replacements"] = first.rows(LAST_TICKS)
        known["refreshes"] = refresh(Workplace(first, "refreshes", folder))
        # Its rows end soon, which is to be while nobody runs.
        known["filters"] = insert_what_ends(Workplace(first, "filters", folder))
    with Application(location, master="local[2]") as application:
        yield application, known


@pytest.fixture
def next_place(second, request):
    """The second application with a schema of the first one, and what is known of that."""
    application, known = second
    application.sql(f"USE slackwater.{request.param}")
    return application, known.get(request.param)


def in_schema(name):
    return pytest.mark.parametrize("next_place", [name], indirect=True)


def refresh(place):
    """A view with a refresh schedule; gives the time of its first refresh."""
    place.sql(f"CREATE TABLE t (k INT, v STRING) WITH ({HISTORY})")
    place.sql("INSERT INTO t VALUES (1, 'a')")
    place.sql(
        f"CREATE MATERIALIZED VIEW refreshed WITH ({HISTORY}, REFRESH AT CREATION,"
        f" REFRESH EVERY '{EVERY_MS} ms') AS {REFRESHED}"
    )
    first = place.value("SELECT at FROM refreshed")
    for key in range(2, 6):
        place.sql(f"INSERT INTO t VALUES ({key}, 'b')")
    wait_until(lambda: upper(place) > first + 2 * EVERY_MS, what="two refreshes")
    return first


@in_schema("refreshes")
def test_at_each_time_a_view_is_its_query_at_the_last_refresh(next_place):
    application, first = next_place
    application.sql("INSERT INTO t VALUES (7, 'c')")
    missed = application.value("SELECT mz_now() FROM t LIMIT 1")
    wait_until(lambda: upper(application) > missed + EVERY_MS, what="the next refreshes")
    last = upper(application) - EVERY_MS
    refreshes, checked = range(first, last + 1, EVERY_MS), 0
    # On a slow machine there are many, most of them while nobody runs.
    for refresh_ms in sorted({*refreshes[:2], *refreshes[-2:]}):
        expected = application.rows(
            f"SELECT v, count(*) AS n, {refresh_ms} AS at FROM t GROUP BY v ORDER BY v"
            f" AS OF {refresh_ms}"
        )
        for at in (refresh_ms, refresh_ms + 1, refresh_ms + EVERY_MS - 1):
            found = application.rows(f"SELECT v, n, at FROM refreshed ORDER BY v AS OF {at}")
            assert found == expected, (at, refresh_ms)
            checked += 1
    assert checked >= 9
    application.sql("DROP MATERIALIZED VIEW refreshed")


def upper(application):
    return application.rows(FRONTIERS)[0][1]


def insert_what_ends(place):
    """Rows of a temporal filter whose times come; gives the time at which one ends."""
    place.sql(f"CREATE TABLE t (k INT, e BIGINT) WITH ({HISTORY})")
    place.sql(
        f"CREATE MATERIALIZED VIEW valid WITH ({HISTORY}) AS SELECT k FROM t WHERE mz_now() < e"
    )
    end = inserted(place, "(1, {end}), (2, {end} + 600000), (3, NULL)")
    assert place.value("SELECT count(*) FROM t") == 3
    return end


@in_schema("filters")
def test_what_ended_while_nobody_ran_ended_at_its_time(next_place):
    application, end = next_place
    for time, keys in ((end - 1, [[1], [2]]), (end, [[2]])):
        assert application.rows(f"SELECT k FROM valid AS OF {time}") == keys
    application.sql("DELETE FROM t WHERE k = 2")
    assert application.rows("SELECT k FROM valid") == []
    later = inserted(application, "(4, {end})")
    application.sql(f"DECLARE c CURSOR FOR SUBSCRIBE valid AS OF {later - 1}")
    changes = [application.rows("FETCH 1 c") for _ in range(2)]
    assert changes == [[[later - 1, 1, 4]], [[later, -1, 4]]]
    application.sql("CLOSE c")


def inserted(place, rows):
    """Inserts rows that have an `end`, before it; again with a later one if it took too long."""
    after_ms = 5_000

    def in_time():
        nonlocal after_ms
        after_ms *= 2
        end = place.value("SELECT mz_now()") + after_ms
        place.sql("INSERT INTO t VALUES " + rows.format(end=end))
        if place.value("SELECT mz_now() FROM t LIMIT 1") < end:
            return end
        place.sql("DELETE FROM t")
        return None

    return wait_until(in_time, what="a row that has not ended when it is inserted")


def replace(place):
    """A replacement takes the place of a view that is read, written below and followed meanwhile:
    nobody waits for what takes long, and nothing is read again."""
    place.sql(f"CREATE TABLE t (k INT, v INT) WITH ({HISTORY})")
    place.sql("CREATE TABLE names (k INT, g STRING)")
    place.sql("INSERT INTO names SELECT id, concat('g', id % 7) FROM range(100)")
    place.sql(f"INSERT INTO t SELECT id, id % 11 - 5 FROM range({ROWS})")
    place.sql(f"CREATE MATERIALIZED VIEW replaced WITH ({HISTORY}) AS {OLD}")
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT sum(c) AS c FROM replaced")
    place.sql(f"CREATE REPLACEMENT MATERIALIZED VIEW r FOR replaced WITH ({HISTORY}) AS {NEW}")
    place.sql("INSERT INTO t VALUES (1, 1)")
    before = place.rows("SELECT * FROM replaced ORDER BY g")
    assert before == place.rows(f"{OLD} ORDER BY n.g")
    since = place.value("SELECT mz_now() FROM t LIMIT 1")
    place.sql("ALTER MATERIALIZED VIEW replaced APPLY REPLACEMENT r")
    place.sql("INSERT INTO t VALUES (2, 2)")
    assert place.rows("SELECT * FROM replaced ORDER BY g") == place.rows(f"{NEW} ORDER BY n.g")
    total = place.value("SELECT c FROM above")
    assert total == place.value("SELECT count(*) FROM t WHERE v >= 0")
    assert place.rows(f"SELECT * FROM replaced ORDER BY g AS OF {since}") == before
    scanned = [row[0] for row in place.rows(TICKS.format(since=since))]
    assert scanned
    assert max(scanned) < 100, "an input was read as a whole"


@in_schema("replacements")
def test_a_view_that_was_replaced_stays_so(next_place):
    application, ticks = next_place
    application.sql("INSERT INTO t VALUES (3, 3)")
    assert application.rows("SELECT * FROM replaced ORDER BY g") == application.rows(
        f"{NEW} ORDER BY n.g"
    )
    # Its ticks under the leader before are known, and that it was hydrated under both.
    assert ticks != []
    wait_until(lambda: all(each in application.rows(LAST_TICKS) for each in ticks))
    hydrated = application.rows(HYDRATED)
    assert len(hydrated) >= 2
    assert all(row == ["hydrated", True] for row in hydrated)


def change_parameters(place, file):
    """The file of parameters counts when an application begins and while it runs, and ALTER SYSTEM
    from another session counts more."""
    assert source(place) == ("67108864 B", "file")
    assert place.rows("SHOW statement_timeout") == [["120000 ms"]]
    file.write_text(f"{PARAMETER} = 32MB\n")
    wait_until(lambda: source(place) == ("33554432 B", "file"))
    file.write_text(f"{PARAMETER} = 16MB\nno_such = 1\n")
    wait_until(lambda: any("no_such" in row[2] for row in place.rows("SHOW NOTICES")))
    assert source(place) == ("33554432 B", "file")
    place.use("other")
    place.sql(f"ALTER SYSTEM SET {PARAMETER} = '8MB'", session="other")
    assert source(place) == ("8388608 B", "system")


@in_schema("parameters")
def test_a_parameter_of_the_system_needs_no_file(next_place):
    application, _ = next_place
    assert source(application) == ("8388608 B", "system")
    application.sql(f"ALTER SYSTEM RESET {PARAMETER}")
    assert source(application) == ("134217728 B", "default")


def source(application):
    query = f"SELECT value, source FROM mz_internal.mz_system_parameters WHERE name = '{PARAMETER}'"
    ((value, found),) = application.rows(query)
    return value, found
