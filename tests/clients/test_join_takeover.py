"""Two applications on one environment: they see the same; either may end at any moment."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.support.application import (
    Application,
    SqlError,
    coordinators,
    kill,
    wait_until,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def location(tmp_path):
    path = tmp_path / "environment"
    yield path
    wait_until(lambda: not coordinators(path), within_s=15, what="the end of all coordinators")


@pytest.fixture
def leader(location):
    with Application(location) as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t (k INT) WITH (RETAIN HISTORY FOR '1 hour')")
        application.sql(
            "CREATE MATERIALIZED VIEW total WITH (RETAIN HISTORY FOR '1 hour') "
            "AS SELECT count(*) AS n FROM t"
        )
        yield application


@pytest.fixture
def joiner(leader, location):
    with Application(location) as application:
        application.sql("USE slackwater")
        yield application


def test_both_see_the_same_tables_at_the_same_times(leader, joiner, location):
    for number in range(4):
        writer, reader = (leader, joiner) if number % 2 else (joiner, leader)
        writer.sql(f"INSERT INTO t VALUES ({number})")
        assert reader.rows("SELECT n, (SELECT count(*) FROM t) FROM total") == [[number + 1] * 2]
    time_ms = leader.value("SELECT mz_now() FROM t LIMIT 1")
    leader.sql("INSERT INTO t VALUES (9)")
    assert joiner.value(f"SELECT n FROM total AS OF {time_ms}") == 4
    assert len(coordinators(location)) == 1


def test_the_other_takes_over(leader, joiner, location):
    leader.sql("INSERT INTO t VALUES (1)")
    joiner.sql("SELECT * FROM t")
    leader.kill()
    joiner.sql("INSERT INTO t VALUES (2)", timeout_s=60)
    assert joiner.rows("SELECT n, (SELECT count(*) FROM t) FROM total") == [[2, 2]]


def test_a_killed_coordinator_comes_back(leader, location):
    leader.sql("INSERT INTO t VALUES (1)")
    (pid,) = coordinators(location)
    kill(pid)
    assert leader.value("SELECT n FROM total") == 1
    leader.sql("INSERT INTO t VALUES (2)")
    assert leader.value("SELECT n FROM total") == 2
    assert coordinators(location) != [pid]


def test_a_leader_that_was_thought_dead_is_fenced(leader, location):
    """The old coordinator is stopped, not ended; when it goes on, it can change nothing."""
    out = location.parent / "out"
    leader.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{out}', FORMAT JSON)")
    leader.sql("INSERT INTO t VALUES (1)")
    wait_until(lambda: sunk(out) == [1], what="the sink's first range")
    (old,) = coordinators(location)
    address, token = leading(location)
    os.kill(old, signal.SIGSTOP)
    try:
        other = Application(location)
        other.sql("USE slackwater")
        for number in range(2, 5):
            other.sql(f"INSERT INTO t VALUES ({number})")
        # The new leader's sink waits for nobody.
        wait_until(lambda: sunk(out) == [1, 2, 3, 4], what="the sink of the new leader")
    finally:
        os.kill(old, signal.SIGCONT)
    with other:
        assert other.value("SELECT count(*) FROM t") == 4
        complaint = complaint_of(leader, "INSERT INTO t VALUES (5)")
        if complaint is not None:
            assert complaint == ("SLACKWATER_FENCED", "57P01")
            leader.sql("INSERT INTO t VALUES (5)")
        wait_until(lambda: fenced(address, token), within_s=20, what="the old coordinator's end")
        assert leader.value("SELECT n FROM total") == other.value("SELECT n FROM total") == 5
        wait_until(lambda: sunk(out) == [1, 2, 3, 4, 5], what="the sink's last range")


def sunk(out):
    """What a reader that follows the manifest has seen."""
    manifest = out / "manifest.json"
    if not manifest.exists():
        return []
    return sorted(
        json.loads(line)["k"]
        for file in json.loads(manifest.read_text())["files"]
        for line in (out / file["path"]).read_text().splitlines()
    )


def complaint_of(application, text):
    """Condition and SQLSTATE of a statement that fails; None when it does not."""
    try:
        application.sql(text)
    except SqlError as error:
        return error.condition, error.sqlstate
    return None


def leading(location):
    """Address and token of the coordinator that leads now."""
    with sqlite3.connect(location / "metastore.sqlite") as metastore:
        address, token_file = metastore.execute(
            "SELECT address, token_file FROM leaders ORDER BY epoch DESC LIMIT 1"
        ).fetchone()
    return address, Path(token_file).read_text()


def fenced(address, token):
    """Whether a coordinator no longer answers as a leader."""
    request = urllib.request.Request(
        f"{address}/v1/status", data=b"{}", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=5):
            return False
    except (urllib.error.URLError, OSError):
        return True


def test_a_killed_driver_leaves_no_orphan(location):
    application = Application(location)
    application.sql("USE slackwater")
    application.sql("CREATE TABLE t (k INT)")
    assert len(coordinators(location)) == 1
    application.kill()
    wait_until(lambda: not coordinators(location), within_s=10, what="the coordinator's end")


def test_plain_sql_starts_no_coordinator(location):
    with Application(location) as application:
        application.sql("SELECT 1")
        application.sql("CREATE TEMP VIEW v AS SELECT id FROM range(10)")
        assert application.value("SELECT sum(id) FROM v") == 45
        assert coordinators(location) == []
        assert not location.exists()
