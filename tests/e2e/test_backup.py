"""A backup of an environment that is written meanwhile is the environment at one moment."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.support.applications.application import Application, coordinators
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

METASTORE = "metastore.sqlite"
INSERT = "INSERT INTO t SELECT id, repeat('x', 1000) FROM range({}, {}, 1, 4)"
COUNTED = "SELECT count(*), sum(k) FROM t"


def copy_files(place, backup):
    """Files that are there already are the same: parts never change."""
    for path in (place / "shards").rglob("*.parquet"):
        target = backup / path.relative_to(place)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def copy_metastore(place, backup):
    with (
        closing(sqlite3.connect(place / METASTORE)) as source,
        closing(sqlite3.connect(backup / METASTORE)) as target,
    ):
        source.backup(target)


@pytest.mark.nightly
def test_a_backup_of_a_running_environment_can_be_restored(tmp_path):
    place, backup = tmp_path / "environment", tmp_path / "backup"
    backup.mkdir(mode=0o700)
    with Application(place, master="local[2]") as before:
        before.sql("USE slackwater")
        before.sql("CREATE TABLE t (k BIGINT, s STRING)")
        before.sql("CREATE MATERIALIZED VIEW v AS SELECT k % 7 AS r, sum(k) AS n FROM t GROUP BY 1")
        before.sql(INSERT.format(0, 6000))
        copy_files(place, backup)
        before.sql(INSERT.format(6000, 12000))
        before.sql("DELETE FROM t WHERE k % 2 = 0")
        expected = before.rows(COUNTED)
        copy_metastore(place, backup)
        before.sql("DELETE FROM t WHERE k < 10000")
        copy_files(place, backup)
    wait_until(lambda: not coordinators(place), what="the coordinator has ended")
    shutil.rmtree(place)
    backup.rename(place)
    with Application(place, master="local[2]") as after:
        after.sql("USE slackwater")
        assert after.rows(COUNTED) == expected
        compared = "SELECT k % 7 AS r, sum(k) AS n FROM t GROUP BY 1"
        assert after.value(f"SELECT count(*) FROM (({compared}) EXCEPT ALL SELECT * FROM v)") == 0
        after.sql(INSERT.format(0, 10))
        wait_until(lambda: after.value("SELECT sum(n) FROM v") == expected[0][1] + 45)
