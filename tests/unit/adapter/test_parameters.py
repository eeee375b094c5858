"""Parameters of the system: kept durably, taken back, and with an effect on what runs."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pytest
from structlog.testing import capture_logs
from tests.support.adapter.coordination import Place
from tests.support.waiting import wait_until

from slackwater.adapter import coordinator
from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER
from slackwater.adapter.catalog.ops import SetParameter
from slackwater.adapter.controllers.collections import DEFAULT_RETAIN_MS
from slackwater.adapter.controllers.parameters import ParameterFile, SystemParameters
from slackwater.adapter.maintenance import MaintenanceSettings
from slackwater.adapter.sources.source_states import HISTORY_KEPT
from slackwater.adapter.writing.group_commit import CommitSettings, Write
from slackwater.persist import holds
from slackwater.persist.blobs import INLINE_LIMIT_BYTES
from slackwater.persist.parts import FileBody, InlineBody
from slackwater.planner.parser.parameters import (
    PARAMETERS,
    checked,
    milliseconds,
    parameter,
    size_bytes,
)
from slackwater.planner.parser.variables import VARIABLES
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import with_diff
from slackwater.storage.ingestion import SourceStatus, StatusChange


@pytest.fixture
def place(env):
    made = Place(env)
    yield made
    made.close()


def value(place, name):
    ((shown,),) = (row.values() for row in place.sql(f"SHOW {name}"))
    return shown


def source(place, name):
    entries = place.coordinator.parts.system.snapshot(frozenset()).parameters
    (found,) = (each.source for each in entries if each.name == name)
    return found


def refused(condition, action, *arguments):
    with pytest.raises(SlackwaterError) as caught:
        action(*arguments)
    assert caught.value.condition == condition
    return caught.value


# Names and values


def test_the_defaults_are_those_of_what_goes_by_them():
    defaults = {name: each.default for name, each in PARAMETERS.items()}
    commits, maintenance = CommitSettings(), MaintenanceSettings()
    merges = maintenance.compaction
    assert milliseconds(defaults, "default_timestamp_interval") == commits.tick_ms
    assert milliseconds(defaults, "default_retain_history") == DEFAULT_RETAIN_MS
    assert milliseconds(defaults, "persist_reader_lease_duration") == maintenance.lease_ms
    assert {
        name: size_bytes(defaults, name)
        for name in sorted(PARAMETERS)
        if name.startswith(("persist_", "group_")) and not name.endswith("duration")
    } == {
        "group_commit_max_waiting_bytes": commits.max_waiting_bytes,
        "persist_blob_target_size": merges.target_bytes,
        "persist_compaction_memory_bound_bytes": merges.memory_bytes,
        "persist_inline_writes_single_max_bytes": INLINE_LIMIT_BYTES,
        "persist_inline_writes_total_max_bytes": merges.inline_level_bytes,
    }
    assert int(defaults["keep_n_source_status_history_entries"]) == HISTORY_KEPT
    for name, each in PARAMETERS.items():
        assert checked(name, each.default) == each.default
        assert each.of_sessions == (name in VARIABLES)


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("default_timestamp_interval", "2s", "2000 ms"),
        ("default_timestamp_interval", "250", "250 ms"),
        ("persist_blob_target_size", "64MB", "67108864 B"),
        ("keep_n_source_status_history_entries", " 007 ", "7"),
        ("enable_storage_shard_finalization", "FALSE", "off"),
        ("transaction_isolation", "Serializable", "serializable"),
        ("SLACKWATER.Statement_Timeout", "1 min", "60000 ms"),
    ],
)
def test_values_have_one_form(name, given, kept):
    assert checked(name, given) == kept
    assert checked(name, kept) == kept


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("default_timestamp_interval", "9ms"),
        ("default_timestamp_interval", "2 min"),
        ("default_timestamp_interval", "often"),
        ("persist_blob_target_size", "1kB"),
        ("persist_blob_target_size", "5GB"),
        ("keep_n_source_status_history_entries", "0"),
        ("keep_n_source_status_history_entries", "many"),
        ("keep_n_source_status_history_entries", "1" * 5000),
        ("enable_storage_shard_finalization", "perhaps"),
        ("transaction_isolation", "none"),
    ],
)
def test_values_that_are_none_are_refused(name, given):
    refused("SLACKWATER_INVALID_VARIABLE", checked, name, given)


def test_names_that_are_none_are_refused():
    refused("SLACKWATER_UNKNOWN_VARIABLE", parameter, "no_such")
    refused("SLACKWATER_READ_ONLY_VARIABLE", parameter, "mz_version")
    refused("SLACKWATER_UNSUPPORTED", parameter, "search_path")


# Statements


def test_a_parameter_is_kept_until_it_is_taken_back(place):
    place.sql("ALTER SYSTEM SET persist_blob_target_size = '64MB'")
    place.sql("ALTER SYSTEM SET default_retain_history TO '1 hour'")
    assert value(place, "persist_blob_target_size") == "67108864 B"
    place.restart()
    assert value(place, "persist_blob_target_size") == "67108864 B"
    assert source(place, "persist_blob_target_size") == "system"
    place.sql("ALTER SYSTEM RESET persist_blob_target_size")
    assert value(place, "persist_blob_target_size") == "134217728 B"
    assert source(place, "persist_blob_target_size") == "default"
    place.sql("ALTER SYSTEM RESET ALL")
    place.restart()
    assert value(place, "default_retain_history") == "1000 ms"
    place.sql("ALTER SYSTEM RESET ALL")
    events = [e for e in place.env.catalog.audit_events() if e.object_type == "system"]
    assert [(e.event_type, e.user, json.loads(e.details)) for e in events] == [
        ("alter", "me", {"name": "persist_blob_target_size", "value": "67108864 B"}),
        ("alter", "me", {"name": "default_retain_history", "value": "3600000 ms"}),
        ("alter", "me", {"name": "persist_blob_target_size", "value": None}),
        ("alter", "me", {"name": "default_retain_history", "value": None}),
    ]


def test_what_another_version_has_set_is_kept_and_has_no_effect(place):
    ops = [SetParameter("of_a_later_version", "7"), SetParameter("statement_timeout", "x")]
    place.env.catalog.transact(ops)
    place.restart()
    assert value(place, "statement_timeout") == "60000 ms"
    assert place.env.state.parameters == {"of_a_later_version": "7", "statement_timeout": "x"}


def test_a_parameter_of_the_system_is_none_of_a_session(place):
    refused("SLACKWATER_SYSTEM_PARAMETER", place.sql, "SET persist_blob_target_size = '1MB'")
    refused("SLACKWATER_SYSTEM_PARAMETER", place.sql, "RESET persist_blob_target_size")


def test_sessions_that_begin_later_have_the_default(place):
    assert value(place, "statement_timeout") == "60000 ms"
    place.sql("ALTER SYSTEM SET statement_timeout = '5s'")
    assert "stays" in place.notices[0]["message"]
    assert value(place, "statement_timeout") == "60000 ms"
    (row,) = place.sql("SHOW statement_timeout", session="app/2")
    assert row == {"statement_timeout": "5000 ms"}
    place.sql("SET statement_timeout = '1s'", session="app/2")
    place.sql("RESET statement_timeout", session="app/2")
    (row,) = place.sql("SHOW statement_timeout", session="app/2")
    assert row == {"statement_timeout": "5000 ms"}


# Effects, without a restart


class Clock:
    """A clock that a test moves, in milliseconds, or in seconds for what takes these."""

    def __init__(self, now=1_800_000_000_000, unit=1):
        self.now, self.unit = now, unit

    def __call__(self):
        return self.now / self.unit


def rows_of(size, seed=0):
    """A row of about that many bytes, which do not shrink."""
    return {"v": Random(seed).randbytes(size // 2).hex()}


def parts_of(place, name):
    return place.env.persist.reads.parts(place.item(name).shard_id)


def test_the_time_moves_on_by_the_interval(env):
    seconds = Clock(0, 1)
    place = Place(env, monotonic=seconds)
    place.sql("ALTER SYSTEM SET default_timestamp_interval = '1 min'")
    before = place.env.storage.tables_upper()
    place.sql("ALTER SYSTEM SET default_timestamp_interval = '500ms'")

    def has_moved():
        # Less than a minute in all.
        seconds.now = min(seconds.now + 1, 50)
        return place.env.storage.tables_upper() > before

    wait_until(has_moved)
    place.close()


def test_history_is_kept_by_default_as_long_as_the_parameter_says(env):
    clock = Clock()
    place = Place(env, clock=clock)
    place.table("t", v="string")
    place.sql("CREATE SOURCE kept FROM LOAD GENERATOR CLOCK WITH (RETAIN HISTORY FOR '2 hours')")
    own = place.env.storage.since(place.item("kept").id)
    place.sql("ALTER SYSTEM SET default_retain_history = '1 hour'")
    begun = place.env.storage.since(place.item("t").id)
    clock.now += 60_000
    place.write("t", {"v": "a"})
    assert place.env.storage.since(place.item("t").id) == begun
    place.sql("ALTER SYSTEM RESET default_retain_history")
    since, upper = place.env.storage.frontiers(place.item("t").id)
    assert upper.value - since.value == 1001
    place.sql("ALTER SYSTEM SET default_retain_history = 0")
    since, upper = place.env.storage.frontiers(place.item("t").id)
    assert upper.value - since.value == 1
    # What has a time of its own keeps it, and later objects go by the parameter.
    assert place.env.storage.since(place.item("kept").id) == own
    place.table("later", v="string")
    place.write("later", {"v": "a"})
    since, upper = place.env.storage.frontiers(place.item("later").id)
    assert upper.value - since.value == 1
    place.close()


def test_dropped_shards_stay_while_nobody_may_finalize_them(place):
    place.table("t", v="string")
    shard = place.item("t").shard_id
    place.sql("ALTER SYSTEM SET enable_storage_shard_finalization = off")
    place.drop("t")
    place.coordinator.parts.maintenance.turn()
    assert not place.env.persist.reads.is_finalized(shard)
    place.sql("ALTER SYSTEM RESET enable_storage_shard_finalization")
    place.coordinator.parts.maintenance.turn()
    assert place.env.persist.reads.is_finalized(shard)


def test_what_is_small_goes_into_the_metastore(place):
    place.table("t", v="string")
    place.sql("ALTER SYSTEM SET persist_inline_writes_single_max_bytes = 100")
    place.write("t", {"v": "a" * 1000})
    assert [type(part.body) for part in parts_of(place, "t")] == [FileBody]
    place.sql("ALTER SYSTEM RESET persist_inline_writes_single_max_bytes")
    place.write("t", {"v": "b" * 1000})
    assert [type(part.body) for part in parts_of(place, "t")] == [FileBody, InlineBody]


def test_much_in_the_metastore_is_merged(place):
    place.table("t", v="string")
    place.sql("ALTER SYSTEM SET default_retain_history = 0")
    for seed in range(4):
        place.write("t", rows_of(2000, seed))
    place.env.committer.flush()
    place.coordinator.parts.maintenance.turn()
    assert len(parts_of(place, "t")) == 4
    place.sql("ALTER SYSTEM SET persist_inline_writes_total_max_bytes = '4kB'")
    place.write("t", rows_of(2000, 4))
    place.env.committer.flush()
    place.coordinator.parts.maintenance.turn()
    assert len(parts_of(place, "t")) == 1


def test_files_are_merged_up_to_their_target_and_go_when_the_lease_is_over(env):
    clock = Clock()
    place = Place(env, clock=clock)
    turn = place.coordinator.parts.maintenance.turn
    place.table("t", v="string")
    place.sql("ALTER SYSTEM SET default_retain_history = 0")
    place.sql("ALTER SYSTEM SET persist_inline_writes_single_max_bytes = 1")
    place.sql("ALTER SYSTEM SET persist_blob_target_size = '1MB'")
    for seed in range(8):
        place.write("t", rows_of(2_000_000, seed))
    place.env.committer.flush()
    turn()
    files = parts_of(place, "t")
    assert len(files) == 8
    place.sql("ALTER SYSTEM RESET persist_blob_target_size")
    place.sql("ALTER SYSTEM SET persist_compaction_memory_bound_bytes = '1MB'")
    clock.now += 60_000
    with capture_logs() as logs:
        turn()
    # Spark would do it.
    assert "compaction failed" in [each["event"] for each in logs]
    place.sql("ALTER SYSTEM RESET persist_compaction_memory_bound_bytes")
    clock.now += 60_000
    turn()
    assert len(parts_of(place, "t")) == 1
    clock.now += 120_000
    turn()
    there = [Path(url2pathname(urlsplit(part.body.uri).path)) for part in files]
    assert all(each.exists() for each in there)
    place.sql("ALTER SYSTEM SET persist_reader_lease_duration = '1 min'")

    def are_gone():
        # The replica says in its rounds that it does not read them.
        place.env.compute.committed()
        turn()
        return not any(each.exists() for each in there)

    wait_until(are_gone)
    (lease,) = place.env.persist.transactions.query(holds.leases)
    assert lease.expires_ms - clock.now == 60_000
    place.close()


def test_as_many_dataflows_hydrate_as_the_parameter_says(place):
    def limits():
        replicas = place.env.compute.look(lambda core: core.replicas(DEFAULT_CLUSTER.id))
        return {replica.hydration.limit for replica in replicas.values()}

    assert limits() == {4}
    place.sql("ALTER SYSTEM SET compute_hydration_concurrency = 1")
    assert limits() == {1}
    place.sql("ALTER SYSTEM RESET compute_hydration_concurrency")
    assert limits() == {4}


def test_the_history_of_statuses_is_as_long_as_the_parameter_says(place):
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR CLOCK")
    source_id, states = place.item("c").id, place.coordinator.parts.system._states
    place.sql("ALTER SYSTEM SET keep_n_source_status_history_entries = 3")
    states.record(
        [StatusChange(n, source_id, SourceStatus("stalled", f"e{n}", {})) for n in range(9)]
    )
    found = [each.status.error for each in states.history() if each.source_id == source_id]
    assert len(found) == 3
    assert found[-1] == "e8"


def test_as_many_bytes_wait_as_the_parameter_says(place):
    place.table("t", v="string")
    shard, committer = place.item("t").shard_id, place.env.committer
    place.sql("ALTER SYSTEM SET group_commit_max_waiting_bytes = '1MB'")
    committer.lock(frozenset({shard}), "somebody")
    rows = with_diff(pa.table({"v": ["x" * 800_000]}))
    first = committer.submit(Write("w1", {shard: rows}))
    refused("SLACKWATER_TOO_MANY_REQUESTS", committer.submit(Write("w2", {shard: rows})).result)
    place.sql("ALTER SYSTEM RESET group_commit_max_waiting_bytes")
    second = committer.submit(Write("w3", {shard: rows}))
    committer.release("somebody")
    assert (first.result().timestamp, second.result().timestamp) != (None, None)


# The file


@pytest.fixture
def file(tmp_path):
    return tmp_path / "parameters.conf"


def test_a_file_is_read_when_it_has_changed_and_as_a_whole(file):
    faults = []
    found = ParameterFile(file, faults.append)

    def fault():
        (error,) = faults
        faults.clear()
        assert error.condition == "SLACKWATER_PARAMETERS_FILE"
        return error.message

    assert (found.look(), found.look()) == (None, None)
    assert "No such file" in fault()
    file.write_text("# limits\n\npersist_blob_target_size = 64MB\nstatement_timeout='5s'\n")
    assert found.look() == {
        "persist_blob_target_size": "67108864 B",
        "statement_timeout": "5000 ms",
    }
    assert found.look() is None
    for text, reason in (
        ("statement_timeout = 1s\nno_such = 1", "line 2: There is no variable named no_such"),
        ("statement_timeout = soon", "line 1: The variable statement_timeout cannot be"),
        ("statement_timeout", "line 1 is no name = value"),
        ("statement_timeout =", "line 1 is no name = value"),
        ("statement_timeout = 1s\nstatement_timeout = 2s", "line 2 names statement_timeout again"),
        ("mz_version = 1", "line 1: The variable mz_version cannot be changed"),
    ):
        file.write_text(text)
        assert (found.look(), found.look()) == (None, None)
        assert reason in fault()
    file.write_bytes(b"\xff")
    assert (found.look(), "UTF-8" in fault()) == (None, True)
    file.write_text("#" * (1024 * 1024 + 1))
    assert (found.look(), "characters" in fault()) == (None, True)
    file.write_text("")
    assert (found.look(), faults) == ({}, [])


def test_a_statement_goes_before_the_file_and_the_file_before_the_default(env, file):
    file.write_text("persist_blob_target_size = 64MB\nkeep_n_source_status_history_entries = 9\n")
    place = Place(env, parameters_file=file)
    assert value(place, "persist_blob_target_size") == "67108864 B"
    assert source(place, "persist_blob_target_size") == "file"
    place.sql("ALTER SYSTEM SET persist_blob_target_size = '32MB'")
    assert value(place, "persist_blob_target_size") == "33554432 B"
    file.write_text("persist_blob_target_size = 16MB\n")
    place.coordinator.parts.parameters.read_file()
    assert value(place, "persist_blob_target_size") == "33554432 B"
    assert source(place, "keep_n_source_status_history_entries") == "default"
    place.sql("ALTER SYSTEM RESET persist_blob_target_size")
    assert value(place, "persist_blob_target_size") == "16777216 B"
    # What is wrong is told, and has no effect.
    file.write_text("persist_blob_target_size = 8MB\nthis is wrong\n")
    place.coordinator.parts.parameters.read_file()
    assert value(place, "persist_blob_target_size") == "16777216 B"
    assert [notice["code"] for notice in place.notices] == ["F0000"]
    # Who begins without it begins with the rest.
    place.restart()
    assert value(place, "persist_blob_target_size") == "134217728 B"
    file.unlink()
    place.restart()
    file.write_text("persist_blob_target_size = 8MB\n")
    place.coordinator.parts.parameters.read_file()
    assert value(place, "persist_blob_target_size") == "8388608 B"
    place.close()


def test_the_file_has_its_effect_without_a_restart(env, file, monkeypatch):
    monkeypatch.setattr(coordinator, "HOUSEKEEPING_INTERVAL_S", 0.01)
    file.write_text("")
    place = Place(env, parameters_file=file)
    place.table("t", v="string")
    file.write_text("persist_inline_writes_single_max_bytes = 1\n")
    wait_until(lambda: source(place, "persist_inline_writes_single_max_bytes") == "file")
    place.write("t", {"v": "a"})
    assert [type(part.body) for part in parts_of(place, "t")] == [FileBody]
    place.close()


def test_controllers_are_told_what_changes_and_nothing_else():
    told = []
    parameters = SystemParameters([lambda values: told.append(dict(values))])
    parameters.load({"statement_timeout": "1000 ms"})
    parameters.alter({"statement_timeout": "1000 ms", "emit_timestamp_notice": "on"})
    parameters.load({})
    parameters.alter({})
    assert told == [
        {"statement_timeout": "1000 ms"},
        {"emit_timestamp_notice": "on"},
        {"emit_timestamp_notice": "off", "statement_timeout": "60000 ms"},
    ]
