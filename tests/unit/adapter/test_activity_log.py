"""The history of statements under a coordinator: what calls make of it, and what files keep."""

from __future__ import annotations

import gzip
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.waiting import wait_until

from slackwater.adapter.history.core import HistoryCore, Limits
from slackwater.adapter.history.events import CallBegan, CallEnded, Connected, Done, Key, Said
from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.levels import (
    MERGED,
    HistoryFile,
    named,
    outdated,
    suffix,
    to_merge,
)
from slackwater.adapter.history.levels import (
    Place as FilePlace,
)
from slackwater.adapter.history.recorder import FOLDER, History
from slackwater.adapter.history.records import KINDS, Statement, Status
from slackwater.adapter.history.sampling import Throttle, is_sampled
from slackwater.adapter.history.texts import shown, without_values
from slackwater.persist.blobs import LocalBlobs
from slackwater.repr.errors import SlackwaterError, user_error

PACKED = gzip.compress(bytes(range(256)))
DAMAGED = {
    "empty": b"",
    "of another kind": b"no gzip",
    "broken": PACKED[:40] + b"x" * 200,
    "cut": PACKED[:30],
    "of another version": gzip.compress(b'{"kind": "later"}\nx\n[]'),
}
ODD = "<b>\"`'x" + "y" * 200


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


def log(place, **where):
    found = place.system("mz_recent_activity_log")
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def steps(place, row):
    found = place.system("mz_statement_lifecycle_history")
    return [each["event_type"] for each in found if each["statement_id"] == row["execution_id"]]


def bind(place, name="t", **body):
    relation = {"id": place.item(name).id}
    asked = {"session": "app/1", "relations": [relation], "context": {"user": "me"}, **body}
    return calls_of(place.coordinator)["/v1/bind"](asked)


def release(place, *holds, ended=()):
    calls_of(place.coordinator)["/v1/release"]({"holds": list(holds), "ended": list(ended)})


def test_a_read_without_a_bind_is_told_of_afterwards(place):
    calls = calls_of(place.coordinator)
    place.sql("SHOW ALL")
    read = {"session": "app/1", "timestamp": 5, "began_ago_ms": 40, "took_us": 2000, "ago_ms": 10}
    where = {"catalog": "slackwater", "namespace": ["s"], "user": "me"}
    own = {"context": where, "application": ODD, "sql": "SELECT k FROM t WHERE k = 1"}
    failed = {"condition": "DIVIDE_BY_ZERO", "message": "no"}
    ends = ({"rows": 3, "strategy": "fast-path"}, {**failed, "strategy": "fast-path"})
    reads = [{**read, **own, **end, "execution": str(number)} for number, end in enumerate(ends)]
    unknown = {**reads[0], "session": "app/9", "execution": "9"}
    assert calls["/v1/reads"]({"reads": [*reads, unknown]}) == {}
    rows = log(place, sql=own["sql"])
    assert [row["finished_status"] for row in rows] == ["success", "error"]
    assert [row["rows_returned"] for row in rows] == [3, None]
    assert [row["condition"] for row in rows] == [None, "DIVIDE_BY_ZERO"]
    assert [row["execution_strategy"] for row in rows] == ["fast-path", None]
    for row in rows:
        assert (row["database_name"], row["search_path"]) == ("slackwater", ["s"])
        assert (row["execution_timestamp"], row["application_name"]) == (5, ODD)
        assert (row["finished_at"] - row["began_at"]).total_seconds() == 0.03
        assert steps(place, row) == ["execution-began", "bound", "execution-finished"]
    assert not log(place, session_id="app/9")
    (counted,) = re.findall(
        r'slackwater_statements_total{.*statement_type="select".*} (\d+)',
        calls["/v1/metrics"]({}).text.decode(),
    )
    assert int(counted) == len(reads) + 1


def test_a_statement_of_ours_is_planned_begins_and_ends(place):
    calls = calls_of(place.coordinator)
    body = {"session": "app/1", "text": "SHOW ALL", "application": ODD}
    planned = calls["/v1/plan"](body)
    place.sql("SHOW ALL", execution="7", application=ODD, planned_at=planned["planned_at"])
    (row,) = log(place)
    assert (row["statement_type"], row["finished_status"], row["sql"]) == (
        "show",
        "success",
        "SHOW ALL",
    )
    assert (row["statement"], row["spark_execution_id"], row["application_name"]) == ("7", 7, ODD)
    assert row["rows_returned"] > 5
    assert row["prepared_at"] <= row["began_at"] <= row["finished_at"]
    assert steps(place, row) == ["planned", "execution-began", "execution-finished"]
    (session,) = place.system("mz_session_history")
    assert session["session_id"] == row["session_id"] == "app/1"
    assert session["initial_application_name"] == ODD


def test_a_read_ends_with_its_hold_as_spark_says(place):
    place.table("t", k="integer")
    calls = []
    for number, said in enumerate(
        [
            {"rows": 3, "ago_ms": 5},
            {"condition": "DIVIDE_BY_ZERO", "message": "[DIVIDE_BY_ZERO] no"},
            {"condition": "SPARK_JOB_CANCELLED"},
            None,
        ]
    ):
        bound = bind(place, execution=str(number), sql=f"SELECT k FROM t -- {number}")
        calls.append(bound["timestamp"])
        (row,) = log(place, statement=str(number))
        assert (row["finished_status"], row["finished_at"]) == (None, None)
        ended = [] if said is None else [{"hold": bound["hold"], **said}]
        release(place, bound["hold"], ended=ended)
        release(place, bound["hold"], ended=[{"hold": bound["hold"], "rows": 99}])
    found = log(place, statement_type="select")
    assert [row["finished_status"] for row in found] == ["success", "error", "canceled", "success"]
    assert [row["rows_returned"] for row in found] == [3, None, None, None]
    assert [row["execution_timestamp"] for row in found] == calls
    assert found[1]["condition"] == "DIVIDE_BY_ZERO"
    assert steps(place, found[0]) == ["execution-began", "bound", "execution-finished"]


STRATEGIES = {
    "one": (["fast-path"], "fast-path"),
    "a part of it": (["fast-path", "standard"], "standard"),
    "a part of it, first": (["standard", "fast-path"], "standard"),
    "nothing beside": (["constant", "fast-path"], "fast-path"),
    "nothing": (["constant"], "constant"),
    "a plan that never ran": ([None, "fast-path"], "fast-path"),
    "unknown": ([None], None),
}


@pytest.mark.parametrize(("said", "shown"), STRATEGIES.values(), ids=STRATEGIES.keys())
def test_how_a_read_was_served_is_what_all_of_it_was(place, said, shown):
    place.table("t", k="integer")
    found = [bind(place, execution="1")["hold"] for _ in said]
    assert log(place, statement="1")[0]["execution_strategy"] is None
    for hold, strategy in zip(found, said, strict=True):
        end = {} if strategy is None else {"strategy": strategy}
        release(place, hold, ended=[{"hold": hold, **end}])
    (row,) = log(place, statement="1")
    assert (row["finished_status"], row["execution_strategy"]) == ("success", shown)


def test_nobody_says_how_was_read_what_failed_is_aborted_or_writes(place):
    place.table("t", k="integer")
    read = {"strategy": "standard"}
    failed = bind(place, execution="1")["hold"]
    release(place, failed, ended=[{"hold": failed, **read, "condition": "DIVIDE_BY_ZERO"}])
    bind(place, execution="2")
    ended = bind(place, execution="2")["hold"]
    release(place, ended, ended=[{"hold": ended, **read}])
    targets = [place.item("t").id]
    first = bind(place, execution="3")["hold"]
    release(place, first, ended=[{"hold": first, **read}])
    writing = {"execution": "4", "sql": "INSERT INTO t SELECT k FROM t"}
    hold = bind(place, execution="4")["hold"]
    bound = bind(place, write_targets=targets, **writing)
    release(place, hold, ended=[{"hold": hold, **read}])
    place.write("t", {"k": 1}, hold=bound["hold"], **writing)
    calls_of(place.coordinator)["/v1/session/close"]({"session": "app/1"})
    found = {row["statement"]: row for row in log(place) if len(row["statement"]) == 1}
    assert {name: row["finished_status"] for name, row in found.items()} == {
        "1": "error",
        "2": "aborted",
        "3": "success",
        "4": "success",
    }
    assert {name for name, row in found.items() if row["execution_strategy"]} == {"3"}


def test_a_statement_has_its_cluster_its_schema_and_the_version_that_ran_it(place):
    place.table("t", k="integer")
    place.sql("CREATE CLUSTER c (SIZE = '25cc')")
    place.sql("SET cluster = c")
    bind(place, execution="1", context={"catalog": "other", "namespace": ["a", "b"], "user": "me"})
    bind(place, execution="2", context=None)
    place.sql("DROP CLUSTER c")
    bind(place, execution="3")
    (version,) = place.sql("SHOW mz_version")
    rows = [log(place, statement=name)[0] for name in "123"]
    assert {row["mz_version"] for row in rows} == set(version.values())
    names = [(row["database_name"], row["search_path"]) for row in rows]
    assert names == [("other", ["a.b"]), (None, None), ("slackwater", ["default"])]
    ids = [row["cluster_id"] for row in rows]
    assert ids[0] == ids[1] is not None
    assert [row["cluster_name"] for row in rows] == ["c"] * 3
    assert ids[2] is None


def test_holds_that_a_bind_releases_end_their_statement_while_it_waits_itself(place):
    place.table("t", k="integer")
    first = bind(place, execution="1")["hold"]
    again = bind(place, execution="1", released=[first])["hold"]
    assert log(place, statement="1")[0]["finished_status"] is None
    late = {"at": place.env.persist.reads.tables_upper() + 10**9}
    calls, own = calls_of(place.coordinator), {"session": "app/1", "execution": "2"}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(bind, place, execution="2", released=[again], as_of=late)
        wait_until(lambda: calls["/v1/waits"](own)["waits_for"])
        calls["/v1/cancel"](own)
        with pytest.raises(SlackwaterError):
            waiting.result()
    assert log(place, statement="1")[0]["finished_status"] == "success"
    (row,) = log(place, statement="2")
    assert (row["finished_status"], row["condition"]) == ("canceled", "SLACKWATER_CANCELED")
    assert row["waited_ms"] is not None
    assert "storage-dependencies-finished" in steps(place, row)


def test_a_write_is_one_statement_with_what_it_reads(place):
    place.table("t", k="integer")
    said = {"execution": "5", "sql": "INSERT INTO t SELECT k FROM t"}
    bound = bind(place, write_targets=[place.item("t").id], **said)
    place.write("t", {"k": 1}, {"k": 2}, mode="diff", hold=bound["hold"], **said)
    (row,) = log(place, statement="5")
    assert (row["finished_status"], row["rows_written"], row["statement_type"]) == (
        "success",
        2,
        "insert",
    )
    assert steps(place, row) == ["execution-began", "bound", "committed", "execution-finished"]
    # One that comes to nothing, and of which nobody says why.
    bound = bind(place, write_targets=[place.item("t").id], execution="6")
    release(place, bound["hold"])
    (row,) = log(place, statement="6")
    assert (row["finished_status"], row["statement_type"]) == ("aborted", "dataframe_write")


def test_definitions_and_what_fails_are_statements_and_the_coordinators_own_are_not(place):
    place.table("t", k="integer")
    with pytest.raises(SlackwaterError):
        place.table("t", k="integer")
    with pytest.raises(SlackwaterError):
        calls_of(place.coordinator)["/v1/plan"]({"session": "app/1", "text": "CREATE SOURCE 'x' ("})
    bind(place, internal=True, session="bridge/1")
    found = [(r["statement_type"], r["finished_status"], r["condition"]) for r in log(place)]
    assert found == [
        ("create_table", "success", None),
        ("create_table", "error", "SLACKWATER_TABLE_ALREADY_EXISTS"),
        ("create_source", "error", "SLACKWATER_SYNTAX_ERROR"),
    ]
    failed = log(place)[2]
    assert failed["sql"] == failed["redacted_sql"] == "CREATE SOURCE '<REDACTED>' ("
    assert "<found>" in failed["error_message"]
    assert [each["session_id"] for each in place.system("mz_session_history")] == ["app/1"]


def test_a_session_that_ends_aborts_what_it_runs(place):
    place.table("t", k="integer")
    bind(place, session="app/2", execution="1")
    calls_of(place.coordinator)["/v1/session/close"]({"session": "app/2"})
    assert [r["finished_status"] for r in log(place, session_id="app/2")] == ["aborted"]


def test_the_session_and_the_system_say_which_part_is_kept(place):
    for text in (
        "SET statement_logging_sample_rate = 0",
        "SHOW ALL",
        "SET statement_logging_sample_rate = 0.5",
        "SET statement_logging_sample_rate = 1",
        "ALTER SYSTEM SET statement_logging_sample_rate = '0.0'",
        "SHOW ALL",
        "ALTER SYSTEM RESET statement_logging_sample_rate",
        "SHOW ALL",
    ):
        place.sql(text)
    kept = [row["sql"] for row in log(place)]
    # The one that began at a half may be there.
    assert [sql for sql in kept if "= 1" not in sql] == [
        "SET statement_logging_sample_rate = 0",
        "ALTER SYSTEM SET statement_logging_sample_rate = '0.0'",
        "SHOW ALL",
    ]
    for wrong in ("2", "'nan'", "'-1'", "'1_0'", "'half'"):
        with pytest.raises(SlackwaterError) as error:
            place.sql(f"SET statement_logging_sample_rate = {wrong}")
        assert error.value.condition == "SLACKWATER_INVALID_VARIABLE"


def test_what_is_too_much_is_counted_on_the_next_that_is_kept(place):
    place.sql("ALTER SYSTEM SET statement_logging_target_data_rate = '1kB'")
    for number in range(40):
        place.sql("SHOW ALL", execution=f"n{number}")
    place.sql("ALTER SYSTEM SET statement_logging_target_data_rate = '1GB'")
    wait_until(lambda: place.sql("SHOW cluster") and log(place, sql="SHOW cluster"))
    kept = log(place, sql="SHOW ALL")
    assert 5 < len(kept) < 40
    assert sum(row["throttled_count"] for row in log(place)) >= 40 - len(kept)


def test_the_next_leader_knows_what_was_run_and_what_had_not_ended(env):
    place = Place(env)
    place.table("t", k="integer")
    place.sql("CREATE SECRET s AS 'hunter2'")
    bind(place, execution="8", sql="SELECT 1 FROM t")
    before = log(place)
    place.restart()
    wait_until(lambda: log(place, statement_type="create_secret"))
    assert log(place)[:2] == before[:2]
    (row,) = log(place, statement="8")
    assert (row["finished_status"], row["sql"]) == ("aborted", "SELECT 1 FROM t")
    assert place.system("mz_session_history")[0]["session_id"] == "app/1"
    for file in (Path(env.location) / "history").iterdir():
        assert b"hunter2" not in gzip.decompress(file.read_bytes())
    place.close()


# The files


def core_with(count, began_ms=0):
    core = HistoryCore(Limits(), data_rate=10**9)
    core.apply(Connected("a/1", began_ms, ODD, "me"))
    for number in range(count):
        key = Key("a/1", f"s{number}")
        core.apply(CallBegan(key, began_ms + number, f"e{began_ms}-{number}", Said("SELECT 1")))
        core.apply(CallEnded(key, began_ms + number + 1, Done(number)))
    return core


def files_of(tmp_path, epoch=1):
    return HistoryFiles(LocalBlobs(tmp_path), epoch, FOLDER, KINDS)


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "history").iterdir())


def test_records_come_back_as_they_were_and_files_are_merged(tmp_path):
    core, files = core_with(3 * MERGED), files_of(tmp_path)
    records = core.take_changed(10**6)
    for record in records:
        files.write([record])
        files.tidy(10_000, 0)
    assert len(names(tmp_path)) < 2 * MERGED
    found = files_of(tmp_path, epoch=2).recovered(10_000, 0, 0)
    assert sorted(found, key=str) == sorted(records, key=str)


def test_records_of_versions_before_can_be_read(tmp_path):
    (tmp_path / "history").mkdir()
    old = {
        "kind": "statement",
        "execution_id": "e1",
        "session_id": "a/1",
        "statement_id": "7",
        "began_ms": 5,
        "text": {"kind": "select", "sql": "SELECT 1", "digest": "d", "is_secret": False},
        "cluster": "default",
        "finished_ms": 9,
        "status": "success",
        "steps": [{"step": "execution-began", "at_ms": 5}],
    }
    written = gzip.compress(json.dumps(old).encode())
    (tmp_path / "history" / f"x{suffix(0, FilePlace(1, 1))}").write_bytes(written)
    (found,) = files_of(tmp_path, epoch=2).recovered(10_000, 0, 0)
    assert (found.execution_id, found.status, found.cluster) == ("e1", Status.SUCCESS, "default")
    assert (found.strategy, found.cluster_id, found.search_path) == (None, None, None)


def test_files_that_are_not_needed_go(tmp_path):
    for epoch in (1, 2):
        files = files_of(tmp_path, epoch)
        files.write(core_with(5, epoch * 100).take_changed(10**6))
    found = files_of(tmp_path, epoch=3).recovered(6, 0, 0)
    assert {each.began_ms // 100 for each in found if isinstance(each, Statement)} == {2}
    assert [name for name in names(tmp_path) if "-e1-" in name] == []
    files = files_of(tmp_path, epoch=4)
    files.recovered(6, 0, 0)
    files.tidy(6, 10**15)
    assert names(tmp_path) == []


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_file_that_is_damaged_or_of_another_version_costs_itself_alone(tmp_path, damage):
    files_of(tmp_path).write(core_with(2).take_changed(10**6))
    (tmp_path / "history" / f"x{suffix(0, FilePlace(1, 9))}").write_bytes(damage)
    (tmp_path / "history" / ".left.writing").write_bytes(b"")
    found = files_of(tmp_path, epoch=2).recovered(10_000, 0, 10**15)
    assert len([each for each in found if isinstance(each, Statement)]) == 2
    assert ".left.writing" not in names(tmp_path)


def test_levels():
    files = [HistoryFile(f"f{n}", 0, FilePlace(1, n), 10, n) for n in range(MERGED + 2)]
    assert to_merge(files) == tuple(files[:MERGED])
    assert to_merge(files[3:]) == ()
    assert [f.uri for f in outdated(files, 25, 0)] == [f"f{n}" for n in range(MERGED - 2, -1, -1)]
    assert outdated(files, 10**6, MERGED + 1) == tuple(reversed(files[: MERGED + 1]))
    assert named(f"file:///a/b{suffix(3, FilePlace(12, 7))}") == (3, FilePlace(12, 7))
    assert named("file:///a/b.parquet") is None


class Full:
    """A store without room, as long as it is full."""

    def __init__(self, blobs):
        self.blobs, self.is_full, self.refused = blobs, True, 0

    def put(self, *given):
        if self.is_full:
            self.refused += 1
            raise user_error("SLACKWATER_NO_SPACE", what="a data file", path="there")
        return self.blobs.put(*given)

    def __getattr__(self, name):
        return getattr(self.blobs, name)


def test_a_full_disk_costs_only_what_a_crash_would(tmp_path):
    blobs = Full(LocalBlobs(tmp_path))
    history = History(blobs, 1, lambda: 1000)
    history.connected("a/1", None, "me")
    with capture_logs() as lines:
        history.start()
        wait_until(lambda: blobs.refused >= 2)
        assert [each.session_id for each in history.sessions()] == ["a/1"]
        blobs.is_full = False
        wait_until(lambda: (tmp_path / "history").exists() and names(tmp_path))
        history.stop()
    assert [line["event"] for line in lines] == ["the history is not stored"]
    assert len(files_of(tmp_path, 2).recovered(10, 0, 0)) == 1


# Texts and rates


@pytest.mark.parametrize(
    ("text", "kind", "sql"),
    [
        ("SELECT 'a' -- b", "select", "SELECT 'a' -- b"),
        ("(WITH x AS (SELECT 1) TABLE x)", "select", None),
        ("explain select 1", "explain", "explain select 1"),
        ("CREATE SECRET s AS 'p'", "create_secret", "CREATE SECRET s AS '<REDACTED>'"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "create_table", None),
        ("DROP MATERIALIZED VIEW IF EXISTS v", "drop_materialized_view", None),
        ("ALTER SYSTEM SET a = 1", "alter_system", None),
        (
            "SELECT my_token FROM t WHERE k = 3",
            "select",
            "SELECT my_token FROM t WHERE k = '<REDACTED>'",
        ),
        ("nonsense 'x'", "unknown", "nonsense 'x'"),
    ],
)
def test_how_texts_are_shown(text, kind, sql):
    found = shown(text)
    assert (found.kind, found.sql) == (kind, text if sql is None else sql)


def test_texts_are_cut_and_equal_ones_have_equal_digests():
    long = f"SELECT '{'x' * 3000}'"
    assert len(shown(long).sql) == 2000
    assert "x" not in without_values(shown(long).sql)
    longer = f"SELECT {', '.join('1234567' for _ in range(2000))}"
    assert "1234567" not in shown(longer).sql
    assert shown("SELECT 1").digest == shown("SELECT 1").digest != shown("SELECT 2").digest
    # Nobody finds a secret out by trying texts.
    assert shown("CREATE SECRET s AS 'a'").digest == shown("CREATE SECRET s AS 'b'").digest


def test_a_sample_has_about_its_rate():
    sampled = sum(is_sampled(f"s{number}", 0.25) for number in range(4000))
    assert 850 < sampled < 1150
    assert not is_sampled("x", 0.0)
    assert all(is_sampled(f"s{number}", 1.0) for number in range(100))


def test_a_throttle_lets_its_rate_through_and_counts_the_rest():
    throttle = Throttle(100)
    assert [throttle.take(400, 0) for _ in range(4)] == [0, 0, None, None]
    assert throttle.take(400, 2000) == 2
    # One that is larger than all credit passes after a pause, not never.
    assert throttle.take(10**6, 2001) is None
    assert throttle.take(10**6, 60_000) == 1


def test_statuses_are_the_words_of_the_relation():
    assert [each.value for each in Status] == ["success", "error", "canceled", "aborted"]
