"""Two applications on one environment: they see the same; either may end at any moment."""

from __future__ import annotations

import json
import os
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.support.applications.application import (
    Application,
    SqlError,
    coordinators,
    kill,
    only_coordinator,
)
from tests.support.applications.other_host import (
    HOST,
    USER,
    cannot_be_apart,
    python_apart,
    python_elsewhere,
)
from tests.support.applications.stopped import (
    stop_between_transactions,
    stop_within_a_transaction,
    stopped,
)
from tests.support.waiting import PATIENCE, wait_until

from slackwater.server.identity import this_process

pytestmark = pytest.mark.spark

SHORT = {"spark.slackwater.lease": "2s"}
"""For those who hang or die unseen: nobody goes on before their lease has run out."""

LIVED = {"spark.slackwater.lease": "8s"}
"""Where who lives has to be seen to live, and who dies then has to run out."""


@pytest.fixture
def location(tmp_path):
    path = tmp_path / "environment"
    yield path
    wait_until(lambda: not coordinators(path), what="the end of all coordinators")


@pytest.fixture
def conf():
    """Settings of the first leader."""
    return {}


hanging = pytest.mark.parametrize("conf", [SHORT], ids=["short lease"])
"""For tests of leaders that hang until their lease has run out."""


@pytest.fixture
def leader(location, conf):
    with Application(location, conf=conf) as application:
        application.sql("USE slackwater")
        application.sql("CREATE TABLE t (k INT) WITH (RETAIN HISTORY FOR '1 hour')")
        application.sql(
            "CREATE MATERIALIZED VIEW total WITH (RETAIN HISTORY FOR '1 hour') "
            "AS SELECT count(*) AS n FROM t"
        )
        yield application


@pytest.fixture
def joiner(leader, location):
    """It has the usual lease when it leads, however busy the machine is."""
    with Application(location) as application:
        application.sql("USE slackwater")
        yield application


def test_both_see_the_same_also_when_one_of_them_is_killed(leader, joiner, location):
    for number in range(4):
        writer, reader = (leader, joiner) if number % 2 else (joiner, leader)
        writer.sql(f"INSERT INTO t VALUES ({number})")
        assert reader.rows("SELECT n, (SELECT count(*) FROM t) FROM total") == [[number + 1] * 2]
    time_ms = leader.value("SELECT mz_now() FROM t LIMIT 1")
    leader.sql("INSERT INTO t VALUES (9)")
    assert joiner.value(f"SELECT n FROM total AS OF {time_ms}") == 4
    pid = only_coordinator(location)
    # The coordinator that is killed comes back.
    kill(pid)
    assert leader.value("SELECT n FROM total") == 5
    leader.sql("INSERT INTO t VALUES (2)")
    assert leader.value("SELECT n FROM total") == joiner.value("SELECT n FROM total") == 6
    assert only_coordinator(location) != pid
    # The one of an application that is killed does not, and the other one takes over.
    leader.kill()
    # What it is asked while it ends may be answered by nobody.
    wait_until(lambda: not coordinators(location), what="the leader's coordinator has ended")
    joiner.sql("INSERT INTO t VALUES (2)")
    assert joiner.rows("SELECT n, (SELECT count(*) FROM t) FROM total") == [[7, 7]]


@hanging
def test_a_leader_that_hangs_is_fenced(leader, location):
    """The old coordinator is stopped, not ended; when it goes on, it can change nothing."""
    out = location.parent / "out"
    leader.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{out}', FORMAT JSON)")
    leader.sql("INSERT INTO t VALUES (1)")
    wait_until(lambda: sunk(out) == [1], what="the sink's first range")
    old = only_coordinator(location)
    address, token = leading(location)
    stop_between_transactions(old)
    with stopped([old]):
        other = Application(location)
        other.sql("USE slackwater")
        for number in range(2, 5):
            other.sql(f"INSERT INTO t VALUES ({number})")
        # The new leader's sink waits for nobody.
        wait_until(lambda: sunk(out) == [1, 2, 3, 4], what="the sink of the new leader")
    with other:
        assert other.value("SELECT count(*) FROM t") == 4
        complaint = complaint_of(lambda: leader.sql("INSERT INTO t VALUES (5)"))
        if complaint is not None:
            assert complaint == ("SLACKWATER_FENCED", "57P01")
            leader.sql("INSERT INTO t VALUES (5)")
        wait_until(lambda: fenced(address, token), what="the old coordinator's end")
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


@hanging
@pytest.mark.nightly
def test_a_leader_that_hangs_is_replaced_by_one_that_had_joined(leader, joiner, location):
    """Within its lease; and its own application joins the new leader."""
    joiner.sql("INSERT INTO t VALUES (1)")
    old = only_coordinator(location)
    stop_between_transactions(old)
    waiting = leader.start("SELECT count(*) FROM t")
    joiner.sql("INSERT INTO t VALUES (2)")
    assert joiner.rows("SELECT n, (SELECT count(*) FROM t) FROM total") == [[2, 2]]
    assert waiting.result().rows[0][0] in (1, 2)
    wait_until(lambda: old not in coordinators(location), what="the end of the one that hangs")
    leader.sql("INSERT INTO t VALUES (3)")
    assert leader.value("SELECT n FROM total") == joiner.value("SELECT n FROM total") == 3
    assert len(coordinators(location)) == 1


@hanging
@pytest.mark.nightly
def test_a_leader_that_hangs_within_a_transaction_is_ended(leader, joiner, location):
    """It keeps all others from writing to a metastore that is a file, and so from leading."""
    joiner.sql("INSERT INTO t VALUES (1)")
    old = only_coordinator(location)
    waiting = leader.start("INSERT INTO t VALUES (2)")
    stop_within_a_transaction(old)
    joiner.sql("INSERT INTO t VALUES (3)")
    assert old not in coordinators(location)
    complaint = complaint_of(waiting.result)
    rows = leader.rows("SELECT k FROM t ORDER BY k")
    if complaint is None:
        assert rows == [[1], [2], [3]]
    else:
        assert complaint == ("SLACKWATER_STATEMENT_INTERRUPTED", "57P02")
        assert rows in ([[1], [2], [3]], [[1], [3]])
    assert joiner.rows("SELECT k FROM t ORDER BY k") == rows
    assert leader.value("SELECT n FROM total") == joiner.value("SELECT n FROM total") == len(rows)
    ended = [event["pid"] for event in logged(location, "ended a leader that hangs")]
    assert set(ended) == {old}


@pytest.mark.nightly
def test_plain_sql_has_no_leader_and_one_that_has_gone_is_not_waited_for(location):
    """One has given its lease up, then one is killed; and a killed driver leaves none behind."""
    with Application(location) as first:
        first.sql("SELECT 1")
        first.sql("CREATE TEMP VIEW v AS SELECT id FROM range(10)")
        assert first.value("SELECT sum(id) FROM v") == 45
        assert coordinators(location) == []
        assert not location.exists()
        first.sql("USE slackwater")
        first.sql("CREATE TABLE slackwater.default.t (k INT)")
        assert len(coordinators(location)) == 1
    second = Application(location)
    second.sql("INSERT INTO slackwater.default.t VALUES (1)")
    for pid in coordinators(location):
        kill(pid)
    second.kill()
    with Application(location) as third:
        assert third.rows("SELECT * FROM slackwater.default.t") == [[1]]
        assert elections(location) == [
            "nobody has led",
            "the lease was given up",
            "the leader's process is dead",
        ]
        third.kill()
        wait_until(lambda: not coordinators(location), what="the coordinator's end")


def elections(location):
    """Why the leaders of an environment became leaders."""
    return [event["why"] for event in logged(location, "elected")]


def logged(location, event):
    """What the coordinators of an environment have written to their log of one kind."""
    lines = (location / "log" / "coordinator.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [each for each in events if each["event"] == event]


@pytest.mark.postgres
@pytest.mark.nightly
def test_a_leader_on_another_host_is_not_fenced(postgres, location, tmp_path):
    """Both use one metastore; neither can reach the other."""
    metastore = postgres.new_database()
    elsewhere = {**LIVED, "spark.slackwater.python": python_elsewhere(tmp_path)}
    other = Application(location, metastore, conf=elsewhere)
    with Application(location, metastore, conf=LIVED) as here:
        here.sql("CREATE TABLE slackwater.default.t (k INT)")
        pid = only_coordinator(location)
        for number in range(2):
            with pytest.raises(SqlError) as refused:
                other.sql(f"INSERT INTO slackwater.default.t VALUES (-{number})")
            assert refused.value.condition == "SLACKWATER_LEADER_UNREACHABLE"
            owner = this_process()
            assert f"user {owner.user} on host {owner.host}, process {pid}." in str(refused.value)
            here.sql(f"INSERT INTO slackwater.default.t VALUES ({number})")
        wait_until(lambda: coordinators(location) == [pid], what="the candidates' end")
    assert other.rows("SELECT k FROM slackwater.default.t ORDER BY k") == [[0], [1]]
    (pid,) = wait_until(
        lambda: [each for each in coordinators(location) if each != pid], what="another leader"
    )
    with other, Application(location, metastore, conf=LIVED) as here:
        with pytest.raises(SqlError) as refused:
            here.sql("SELECT * FROM slackwater.default.t")
        assert f"user {USER} on host {HOST}, process {pid}." in str(refused.value)
        # What has died there is not seen to be dead: its lease has to run out.
        other.kill()
        kill(pid)
        assert here.rows("SELECT count(*) FROM slackwater.default.t") == [[2]]


@pytest.mark.postgres
@pytest.mark.skipif(
    "SLACKWATER_NETWORKS" not in os.environ,
    reason="three applications in two networks take minutes: make chaos runs it",
)
def test_a_leader_in_another_network_is_not_fenced(postgres, location):
    """Loopback is another one there, and what is listening on it is not the leader."""
    if reason := cannot_be_apart():
        pytest.skip(reason)
    metastore, owner = postgres.new_database(), this_process()
    local = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}
    options = {"conf": LIVED, "variables": local, "python": python_apart()}
    with Application(location, metastore, conf=LIVED) as here:
        here.sql("CREATE TABLE slackwater.default.t (k INT)")
        pid = only_coordinator(location)
        apart = Application(location, metastore, **options)
        with pytest.raises(SqlError) as refused:
            apart.sql("INSERT INTO slackwater.default.t VALUES (-1)")
        assert refused.value.condition == "SLACKWATER_LEADER_UNREACHABLE"
        assert f"user {owner.user} on host {owner.host}, process {pid}." in str(refused.value)
        here.sql("INSERT INTO slackwater.default.t VALUES (1)")
        wait_until(lambda: coordinators(location) == [pid], what="the candidates' end")
    with apart:
        assert apart.rows("SELECT k FROM slackwater.default.t") == [[1]]
        (pid,) = wait_until(
            lambda: [each for each in coordinators(location) if each != pid], what="another leader"
        )
        with (
            Application(location, metastore, conf=LIVED) as here,
            pytest.raises(SqlError) as refused,
        ):
            here.sql("SELECT * FROM slackwater.default.t")
        assert refused.value.condition == "SLACKWATER_LEADER_UNREACHABLE"
        assert f"user {owner.user} on host {HOST}, process {pid}." in str(refused.value)


@pytest.mark.parametrize("conf", [LIVED], ids=["lease of 8 s"])
def test_a_client_that_hangs_before_its_write_loses_its_lock(leader, joiner, gate, tmp_path):
    """It keeps the lock while it lives, however long that is; sources go on all the time."""
    at = tmp_path / "at"
    joiner.python(gate.block(at))
    leader.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100ms')")
    leader.sql("INSERT INTO t VALUES (1)")
    waiting = joiner.start("INSERT INTO t SELECT block(k) + 1 FROM t")
    wait_until(at.exists, what="the statement has read")
    other = leader.start("INSERT INTO slackwater.default.t VALUES (7)", session="other")
    more_ticks(leader, 90)
    with pytest.raises(TimeoutError):
        other.result(0)
    with stopped([joiner.jvm()]):
        try:
            more_ticks(leader, 5)
            other.result()
        finally:
            gate.open()
    with pytest.raises(SqlError) as refused:
        waiting.result()
    assert (refused.value.condition, refused.value.sqlstate) == ("SLACKWATER_LOCK_LOST", "40001")
    assert leader.rows("SELECT k FROM t ORDER BY k") == [[1], [7]]
    joiner.sql("INSERT INTO t SELECT block(k) + 1 FROM t WHERE k = 1")
    assert leader.rows("SELECT k FROM t ORDER BY k") == [[1], [2], [7]]


def more_ticks(application, count):
    """Waits until the source has so many more rows."""
    before = application.value("SELECT count(*) FROM s")
    wait_until(
        lambda: application.value("SELECT count(*) FROM s") >= before + count,
        what="the source goes on",
    )


def complaint_of(statement):
    """Condition and SQLSTATE of a statement that fails; None when it does not."""
    try:
        statement()
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
        with urllib.request.urlopen(request, timeout=PATIENCE):
            return False
    except (urllib.error.URLError, OSError):
        return True
