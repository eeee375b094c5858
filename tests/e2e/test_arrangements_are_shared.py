"""Views that look up the same share one arrangement, as `mz_arrangement_sizes` tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

MEMORY = "spark.slackwater.arrangements.memory"
DISK = "spark.slackwater.arrangements.disk"
SIZES = "SELECT object_ids, readers, records, bytes FROM mz_internal.mz_arrangement_sizes"
BIG_ROWS = 300_000


def arrangements(application):
    """For each arrangement the names of what it has and of its readers, and its updates."""
    names = dict(application.rows("SELECT id, name FROM mz_catalog.mz_objects"))
    found = application.rows(SIZES)
    assert all(size_bytes > 0 for *_, size_bytes in found)
    return sorted(
        ([names[each] for each in ids], sorted(names.get(each, each) for each in readers), records)
        for ids, readers, records, _ in found
    )


def wait_until_shared(application, views):
    """Waits until the views share an arrangement of each table, and there is no other one."""
    both = [(["a"], sorted(views)), (["big"], sorted(views))]
    last = []

    def is_so():
        last[:] = arrangements(application)
        return [each[:2] for each in last] == both

    try:
        wait_until(is_so, every_s=0.3)
    except AssertionError as error:
        raise AssertionError(f"{last} are not {both}") from error


def create(application, number):
    """A view whose lookups are those of all others, and whose rows are its own."""
    application.sql(
        f"CREATE MATERIALIZED VIEW v{number} AS"
        f" SELECT a.k, big.w + {number} AS w FROM a JOIN big ON a.k = big.k"
    )
    return f"v{number}"


def lookups(application, view):
    """The modes in which the last tick of the view looked rows up."""
    rows = application.rows(f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {view}")
    return {row[7] for row in rows if row[2] == "lookup"}


def start(application):
    application.sql("USE slackwater")
    application.sql("CREATE TABLE a (k BIGINT)")
    application.sql("INSERT INTO a VALUES (1), (2)")
    application.sql(f"CREATE TABLE big AS SELECT id AS k, id * 10 AS w FROM range({BIG_ROWS})")


@pytest.mark.nightly
def test_views_made_over_quiet_inputs_share_what_fits_into_memory_but_once(tmp_path):
    """Also after a restart, and when one of them is dropped."""
    settings = {MEMORY: "16m", DISK: "0"}
    with Application(tmp_path / "environment", master="local[2]", conf=settings) as application:
        start(application)
        views = []
        for number in range(4):
            views.append(create(application, number))
            wait_until_shared(application, views)
            # Times of tables move, and nothing changes.
            application.sql("CREATE OR REPLACE TABLE other AS SELECT 1 AS x")
        assert {ids[0]: n for ids, _, n in arrangements(application)} == {
            "a": 2,
            "big": BIG_ROWS,
        }
        application.sql("INSERT INTO a VALUES (3)")
        application.sql("UPDATE big SET w = 5 WHERE k = 2")
        for number, view in enumerate(views):
            rows = [[1, 10 + number], [2, 5 + number], [3, 30 + number]]
            assert sorted(application.rows(f"SELECT * FROM {view}")) == rows
            assert lookups(application, view) == {"indexed"}
        kill(only_coordinator(application.location))
        wait_until_shared(application, views)
        application.sql("DROP MATERIALIZED VIEW v0")
        wait_until_shared(application, views[1:])
        application.sql("DELETE FROM a WHERE k = 1")
        application.sql("INSERT INTO a VALUES (4)")
        for number in (1, 2, 3):
            rows = [[2, 5 + number], [3, 30 + number], [4, 40 + number]]
            assert sorted(application.rows(f"SELECT * FROM v{number}")) == rows
            assert lookups(application, f"v{number}") == {"indexed"}
        for number in (1, 2, 3):
            application.sql(f"DROP MATERIALIZED VIEW v{number}")
        wait_until(lambda: arrangements(application) == [])


@pytest.mark.nightly
def test_views_made_while_their_inputs_change_share_in_the_end(tmp_path):
    with Application(tmp_path / "environment", master="local[2]") as application:
        start(application)
        application.sql("USE slackwater", session="writer")
        views = []

        def write(numbers):
            for number in numbers:
                application.sql(f"UPDATE big SET w = {number} WHERE k = 1", session="writer")

        with ThreadPoolExecutor(1) as threads:
            for number in range(3):
                writing = threads.submit(write, range(10 * number, 10 * number + 10))
                views.append(create(application, number))
                writing.result(PATIENCE)
        # From its next tick on each view is where the others are.
        application.sql("INSERT INTO a VALUES (5)")
        for number, view in enumerate(views):
            rows = [[1, 29 + number], [2, 20 + number], [5, 50 + number]]
            assert sorted(application.rows(f"SELECT * FROM {view}")) == rows
        wait_until_shared(application, views)
