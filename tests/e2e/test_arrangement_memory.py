"""Views whose indexes do not fit into the memory that is set for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.applications.application import Application
from tests.support.waiting import wait_until

from slackwater.planner.delta.explain import SCANNED

pytestmark = pytest.mark.spark

MEMORY = "spark.slackwater.arrangements.memory"
DISK = "spark.slackwater.arrangements.disk"


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    """The index of 60 000 rows does not fit into its memory, nor do two of 30 000 rows."""
    location = tmp_path_factory.mktemp("memory") / "environment"
    settings = {MEMORY: "2m", DISK: "0"}
    with Application(location, master="local[2]", conf=settings) as started:
        started.sql("USE slackwater")
        yield started


def steps(application, view):
    """The mode of each step of the last tick."""
    rows = application.rows(f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {view}")
    return {row[2]: row[7] for row in rows if row[1] is not None}


@pytest.mark.nightly
def test_what_does_not_fit_is_read_until_it_fits(application):
    for name in ("a", "b"):
        application.sql(f"CREATE TABLE {name} AS SELECT id AS k, id * 3 AS v FROM range(60000)")
    application.sql(
        "CREATE MATERIALIZED VIEW j AS SELECT a.k, a.v + b.v AS v FROM a JOIN b ON a.k = b.k"
    )
    application.sql(
        "DECLARE c CURSOR FOR SUBSCRIBE (SELECT a.v, b.v FROM a JOIN b ON a.k = b.k WHERE a.k > 0)"
        " WITH (SNAPSHOT = false)"
    )
    application.sql("UPDATE a SET v = 1 WHERE k = 7")
    assert application.rows("SELECT v FROM j WHERE k = 7") == [[22]]
    changed = application.rows("FETCH 2 c WITH (timeout = '5 minutes')")
    assert sorted(row[1:] for row in changed) == [[-1, 21, 21], [1, 1, 21]]
    application.sql("CLOSE c")
    assert steps(application, "j")["lookup"] == "scanned"
    explained = application.rows("EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW j")
    (reason,) = (row[4] for row in explained if row[3] == "bilinear")
    assert reason.endswith(f" {SCANNED}")
    said = (Path(application.location) / "log" / "coordinator.jsonl").read_text()
    assert "no_memory_for_an_index" in said
    assert "[SLACKWATER_INDEX_MEMORY] What slackwater.default.j looks its changes up in" in said
    told = (
        "SELECT message FROM mz_internal.mz_notices WHERE notice_type = 'unindexed view'"
        " AND object_id = (SELECT id FROM mz_catalog.mz_materialized_views WHERE name = 'j')"
    )
    (notice,) = application.rows(told)
    begin = "slackwater.default.j reads its inputs at each change: [SLACKWATER_INDEX_MEMORY] What"
    assert notice[0].startswith(begin)
    assert notice[0] in {row[2] for row in application.rows("SHOW NOTICES")}
    for name in ("a", "b"):
        application.sql(f"DELETE FROM {name} WHERE k >= 100")
    assert application.value("SELECT count(*) FROM j") == 100
    for value in range(20):
        application.sql(f"UPDATE a SET v = {value} WHERE k = 7")
        assert application.rows("SELECT v FROM j WHERE k = 7") == [[21 + value]]
        if steps(application, "j").get("lookup") == "indexed":
            break
    assert steps(application, "j")["lookup"] == "indexed"
    assert application.rows(told) == []
    for name in ("a", "b"):
        application.sql(f"DROP TABLE {name} CASCADE")


@pytest.mark.nightly
def test_what_does_not_fit_into_memory_is_looked_up_in_files(tmp_path):
    local = tmp_path / "local"
    settings = {MEMORY: "1m", DISK: "256m", "spark.local.dir": str(local)}
    with Application(tmp_path / "environment", master="local[2]", conf=settings) as application:
        application.sql("USE slackwater")
        for name in ("a", "b"):
            application.sql(f"CREATE TABLE {name} AS SELECT id AS k, id * 3 AS v FROM range(60000)")
        application.sql(
            "CREATE MATERIALIZED VIEW j AS SELECT a.k, a.v + b.v AS v FROM a JOIN b ON a.k = b.k"
        )
        for value in range(3):
            application.sql(f"UPDATE a SET v = {value} WHERE k % 1000 = 7")
            assert application.value("SELECT count(*) FROM j WHERE k % 1000 = 7") == 60
            assert application.rows("SELECT v FROM j WHERE k = 7") == [[21 + value]]
        assert steps(application, "j")["lookup"] == "indexed"
        (folder,) = local.rglob("slackwater-arrangements-*")
        assert list(folder.iterdir()) == []


@pytest.mark.nightly
def test_a_view_whose_rows_wait_goes_on_when_there_is_memory_for_them(application):
    application.sql("CREATE TABLE a AS SELECT id AS k, 9000000000000 + id AS e FROM range(30000)")
    for name in ("first", "second"):
        application.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k FROM a WHERE mz_now() < e")
        application.sql("DELETE FROM a WHERE k = (SELECT max(k) FROM a)")
        if name == "first":
            assert application.value("SELECT count(*) FROM first") == 29999

    def failures():
        rows = application.rows("SHOW MATERIALIZED VIEWS")
        return {row[0] for row in rows if "SLACKWATER_INDEX_MEMORY" in (row[-2] or "")}

    wait_until(lambda: failures() == {"second"})
    said = (
        "SELECT n.message FROM mz_internal.mz_notices n JOIN mz_catalog.mz_materialized_views v"
        " ON v.id = n.object_id WHERE n.notice_type = 'stalled view' AND v.name = 'second'"
    )
    (notice,) = application.rows(said)
    assert notice[0].startswith("slackwater.default.second does not go on: [SLACKWATER_INDEX_")
    history = "SHOW NOTICES"
    wait_until(lambda: any(row[2] == notice[0] for row in application.rows(history)))
    assert application.value("SELECT count(*) FROM first") == 29998
    application.sql("DROP MATERIALIZED VIEW first")
    assert application.value("SELECT count(*) FROM second") == 29998
    application.sql("DELETE FROM a WHERE k < 10")
    assert application.value("SELECT count(*) FROM second") == 29988
    assert "temporal" in steps(application, "second")
    assert application.rows(said) == []


@pytest.mark.nightly
def test_a_view_over_a_view_with_an_index_for_which_there_is_no_room(application):
    """It reads what neither of them can keep, and shares that with the index as soon as it fits."""
    application.sql("CREATE TABLE t AS SELECT id AS k, id * 3 AS v FROM range(60000)")
    application.sql("CREATE VIEW totals AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    application.sql("CREATE INDEX i ON totals (k)")
    application.sql("CREATE TABLE p AS SELECT id + 7 AS k FROM range(2)")
    application.sql(
        "CREATE MATERIALIZED VIEW m AS SELECT p.k, totals.s FROM p JOIN totals ON totals.k = p.k"
    )
    application.sql("UPDATE t SET v = 1 WHERE k = 7")
    assert sorted(application.rows("SELECT * FROM m")) == [[7, 1], [8, 24]]
    assert steps(application, "m")["lookup"] == "scanned"
    application.sql("DELETE FROM t WHERE k >= 100")
    shared = "SELECT count(*) FROM mz_internal.mz_arrangement_sizes WHERE size(readers) = 2"
    value = 1

    def is_shared():
        nonlocal value
        value += 1
        application.sql(f"UPDATE t SET v = {value} WHERE k = 7")
        assert sorted(application.rows("SELECT * FROM m")) == [[7, value], [8, 24]]
        # The rows of the view, and the states of its groups.
        return application.value(shared) == 2

    wait_until(is_shared, what="the arrangements")
    application.sql("DROP TABLE t CASCADE")
    application.sql("DROP TABLE p CASCADE")
