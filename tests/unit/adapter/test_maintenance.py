"""Maintenance in a coordinator, turn by turn, without Spark."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from sqlalchemy import Engine, select
from structlog.testing import capture_logs
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Insides, NoSpark, Replaceable
from tests.support.persist.persistence import acquired
from tests.support.waiting import PATIENCE

from slackwater.adapter.assembly import Given, open_coordinator
from slackwater.adapter.maintenance import Maintenance, MaintenanceSettings
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.controller.protocol import Heartbeat
from slackwater.persist import compaction, garbage, holds
from slackwater.persist.blobs import LocalBlobs, file_part, uniform_file
from slackwater.persist.compaction import CompactionSettings
from slackwater.persist.leadership import Fenced
from slackwater.persist.metastore import connect, create_all
from slackwater.persist.parts import Uniform
from slackwater.persist.tables import garbage as garbage_table
from slackwater.persist.tables import parts as parts_table
from slackwater.persist.tables import shards as shards_table
from slackwater.persist.uris import local_path
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(k="integer")
START_MS = 1_700_000_000_000
HOUR_MS = 3600 * 1000
EAGER = CompactionSettings(inline_fan_in=3, fan_in=2, inline_bytes=0)


@dataclass
class Clock:
    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms


class Leader:
    """A coordinator whose own threads are not started, except for the committer."""

    def __init__(self, engine: Engine, folder: Path, clock: Clock, expected_epoch: int | None):
        self.clock = clock
        self.epoch = acquired(engine, expected_epoch)
        self.fatal: list[str] = []
        self.coordinator = open_coordinator(
            Given(
                engine=engine,
                location=str(folder),
                blobs=LocalBlobs(folder),
                epoch=self.epoch,
                spark=NoSpark(),
                log="log",
                on_fatal=self.fatal.append,
                clock=clock,
            )
        )
        self.env = Insides(self.coordinator, Replaceable(NoSpark()))
        self.calls = calls_of(self.coordinator)
        self.env.committer.start()
        self.env.committer.flush()
        self.coordinator._started.set()
        self.stashed = StashedRows(self.env.persist.blobs, self.epoch)
        self.written = 0

    def maintenance(self, **settings) -> Maintenance:
        return Maintenance(
            self.env.relations,
            self.env.oracle,
            self.env.compute,
            EngineRewriter(NoSpark()),
            self.stashed,
            epoch=self.epoch,
            clock_ms=self.coordinator.parts.maintenance._clock_ms,
            on_fatal=self.fatal.append,
            settings=MaintenanceSettings(compaction=EAGER, revisit_ms=0, **settings),
        )

    def create(self, name: str, **properties: str):
        body = {**self.context(), "name": name, "schema": DESC.to_json(), "properties": properties}
        self.calls["/v1/catalog/create_table"](body)
        return self.env.state.get("default", name)

    def add_column(self, table: str, **rest):
        added = {"type": "string", "nullable": True, **rest}
        body = {**self.context(), "name": table, "changes": [{"add_column": added}]}
        return self.calls["/v1/catalog/alter_table"](body)

    def drop(self, name: str) -> None:
        self.calls["/v1/catalog/drop_table"]({**self.context(), "name": name})

    def context(self):
        return {"session": "app/1", "context": {"user": "me"}, "namespace": ["default"]}

    def insert(self, item, *keys: int) -> None:
        rows = pa.table({"k": pa.array(keys, pa.int32())})
        stream = io.BytesIO()
        with pa.ipc.new_stream(stream, rows.schema) as writer:
            writer.write_table(rows)
        self.written += 1
        # Each write has a time of its own.
        self.clock.now_ms += 10
        self.calls["/v1/write"](
            {
                "session": "app/1",
                "write_id": f"{self.epoch}-{self.written}",
                "hold": None,
                "table": item.id,
                "mode": "append",
                "inline": [base64.b64encode(stream.getvalue()).decode()],
                "files": [],
            }
        )

    def insert_files(self, item, *keys: int) -> None:
        """A write as executors do it: each key in a file of its own."""
        self.written += 1
        self.clock.now_ms += 10
        call = {"session": "app/1", "write_id": f"{self.epoch}-{self.written}", "table": item.id}
        directory = self.calls["/v1/prepare_write"](call)["directory"]
        blobs = self.env.persist.blobs
        files = []
        for key in keys:
            rows = pa.table({"k": pa.array([key], pa.int32())})
            body = uniform_file(blobs, rows, directory, Uniform(Timestamp(0), 1))
            sizes = {"size_bytes": body.size_bytes, "modified_ms": body.modified_ms}
            files.append({"uri": body.uri, "rows": 1, **sizes})
        self.calls["/v1/write"](
            {**call, "hold": None, "mode": "append", "inline": [], "files": files}
        )

    def bind(self, item, at: int | None = None):
        return self.calls["/v1/bind"](
            {
                "session": "app/1",
                "execution": "e",
                "relations": [{"id": item.id, "as_of": None}],
                "as_of": None if at is None else {"at": at},
                "write_targets": [],
            }
        )

    def release(self, bound) -> None:
        self.calls["/v1/release"]({"session": "app/1", "holds": [bound["hold"]]})

    def keys(self, item, time: int | None = None) -> list[int]:
        at = self.env.oracle.read_ts() if time is None else Timestamp(time)
        return sorted(self.env.persist.reads.snapshot(item.shard_id, at)["k"].to_pylist())

    def pass_time(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.env.committer.flush()

    def files(self, item) -> set[str]:
        folder = Path(self.env.location) / "shards" / str(item.shard_id)
        return {path.name for path in folder.rglob("*.parquet")}

    def since(self, item) -> int:
        return self.env.persist.reads.state(item.shard_id).since

    def close(self) -> None:
        self.env.committer.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def engine(new_database) -> Iterator[Engine]:
    engine = connect(new_database())
    create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def leader(engine, tmp_path, clock) -> Iterator[Leader]:
    leader = Leader(engine, tmp_path, clock, None)
    yield leader
    leader.close()


def garbage_of(leader) -> set[str]:
    with_files = select(garbage_table.c.uri)
    return set(leader.env.persist.transactions.query(lambda conn: conn.scalars(with_files).all()))


def test_parts_are_merged_and_the_since_moves_only_then(leader):
    table, idle = leader.create("t"), leader.create("idle")
    maintenance = leader.maintenance()
    leader.insert(table, 1)
    leader.insert(table, 2)
    leader.pass_time(HOUR_MS)
    created = leader.since(table)
    maintenance.turn()
    assert leader.since(table) == created
    assert len(leader.env.persist.reads.parts(table.shard_id)) == 2
    leader.insert(table, 3)
    leader.pass_time(HOUR_MS)
    maintenance.turn()
    assert len(leader.env.persist.reads.parts(table.shard_id)) == 1
    assert leader.since(table) == leader.env.relations.upper(table).value - 1 - 1000
    assert leader.since(idle) < leader.since(table)
    assert leader.keys(table) == [1, 2, 3]


def test_i17_the_durable_since_is_not_beyond_what_is_held_and_kept(leader):
    kept = leader.create("kept", retain_history="1 hour")
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in range(3):
        leader.insert(table, key)
        leader.insert(kept, key)
    bound = leader.bind(table)
    for key in range(3, 6):
        leader.insert(table, key)
        leader.insert(kept, key)
    leader.pass_time(HOUR_MS // 2)
    for item in (table, kept):
        assert leader.since(item) <= leader.env.relations.since(item).value
    maintenance.turn()
    assert leader.since(table) <= bound["timestamp"]
    assert leader.keys(table, bound["timestamp"]) == [0, 1, 2]
    assert leader.since(kept) < bound["timestamp"]
    # Without a since that moves, neighbours are merged, and each time can still be read.
    assert len(leader.env.persist.reads.parts(kept.shard_id)) < 6
    assert leader.keys(kept, bound["timestamp"]) == [0, 1, 2]
    leader.release(bound)
    leader.insert(table, 6)
    leader.pass_time(HOUR_MS)
    maintenance.turn()
    assert leader.since(table) > bound["timestamp"]
    assert leader.since(table) <= leader.env.relations.since(table).value
    with pytest.raises(SlackwaterError) as caught:
        leader.bind(table, bound["timestamp"])
    assert caught.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"


def test_i34_a_read_waits_for_its_time_and_fails_before_the_since(leader):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in range(3):
        leader.insert(table, key)
    leader.pass_time(HOUR_MS)
    maintenance.turn()
    with pytest.raises(SlackwaterError) as caught:
        leader.bind(table, leader.since(table) - 1)
    assert caught.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"
    later = leader.env.relations.upper(table).value + 50
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(leader.bind, table, later)
        assert not wait([reading], 0.2).done
        leader.pass_time(1_000)
        bound = reading.result(PATIENCE)
    assert bound["timestamp"] == later
    assert sum(file["rows"] for file in bound["relations"][0]["files"]) == 3
    leader.release(bound)


def test_a_sink_that_is_behind_holds_its_input(leader):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in range(4):
        leader.insert(table, key)
    leader.pass_time(HOUR_MS)
    sink = leader.env.storage.do(lambda core: core.exports.prepare("u99", table.id))
    before = sink.acquired_since.value
    leader.pass_time(HOUR_MS)
    maintenance.turn()
    assert leader.since(table) <= before
    assert leader.env.relations.since(table).value == before


def test_files_are_deleted_when_lease_and_holds_have_passed(leader):
    table, other = leader.create("t"), leader.create("other")
    maintenance = leader.maintenance()

    for key in (1, 2, 3):
        leader.insert(table, key)
    leader.pass_time(5_000)
    maintenance.turn()
    first = leader.files(table)
    for key in (4, 5, 6):
        leader.insert(table, key)
    bound, elsewhere = leader.bind(table), leader.bind(other)
    assert [Path(file["uri"]).name for file in bound["relations"][0]["files"]] == list(first)
    leader.pass_time(5_000)
    maintenance.turn()
    assert {uri.rpartition("/")[2] for uri in garbage_of(leader)} == first
    leader.pass_time(garbage.LEASE_MS // 2)
    maintenance.turn()
    assert first <= leader.files(table)
    leader.pass_time(garbage.LEASE_MS)
    maintenance.turn()
    # What the open statement reads was replaced after it was bound.
    assert first <= leader.files(table)
    leader.release(bound)
    maintenance.turn()
    assert not first & leader.files(table)
    assert garbage_of(leader) == set()
    assert leader.keys(table) == [1, 2, 3, 4, 5, 6]
    maintenance.turn()
    leader.release(elsewhere)


def test_a_replica_keeps_the_files_that_it_may_read(leader, monkeypatch):
    table = leader.create("t")
    maintenance = leader.maintenance()

    def filled(*keys):
        for key in keys:
            leader.insert(table, key)
        leader.pass_time(5_000)
        maintenance.turn()

    filled(1, 2, 3)
    first = leader.files(table)
    filled(4, 5, 6)
    compute, says = leader.env.compute, []
    link = SimpleNamespace(send=lambda command: None, wake=lambda: None, close=lambda: None)
    seams = replace(compute._seams, connect=lambda key, location, say: says.append(say) or link)
    monkeypatch.setattr(compute, "_seams", seams)
    compute.create_instance("c")
    compute.add_replica("c", "r", "elsewhere")
    (say,) = says
    leader.pass_time(10 * garbage.LEASE_MS)
    say([Heartbeat(busy_ms=11 * garbage.LEASE_MS)])
    maintenance.turn()
    assert first <= leader.files(table)
    say([Heartbeat(busy_ms=0)])
    maintenance.turn()
    assert not first & leader.files(table)


def test_a_file_that_cannot_be_deleted_keeps_no_other(leader, monkeypatch):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for keys in ((1, 2, 3), (4, 5, 6), (7, 8, 9)):
        for key in keys:
            leader.insert(table, key)
        leader.pass_time(5_000)
        maintenance.turn()
    waiting = garbage_of(leader)
    assert len(waiting) == 2
    stuck = min(waiting)
    delete = LocalBlobs.delete

    def partly(blobs, uri):
        if uri == stuck:
            raise user_error("SLACKWATER_STORAGE_UNAVAILABLE", what=uri, reason="no")
        delete(blobs, uri)

    with monkeypatch.context() as patched:
        patched.setattr(LocalBlobs, "delete", partly)
        leader.pass_time(2 * garbage.LEASE_MS)
        maintenance.turn()
        assert garbage_of(leader) == {stuck}
    maintenance.turn()
    assert garbage_of(leader) == set()


def test_a_shard_that_cannot_be_merged_keeps_no_other(leader, monkeypatch):
    tables = [leader.create(f"t{number}") for number in range(2)]
    maintenance = leader.maintenance()
    for table in tables:
        for key in (1, 2, 3):
            leader.insert(table, key)
    leader.pass_time(5_000)
    with monkeypatch.context() as patched:

        def full(blobs, updates, directory):
            if directory.endswith(f"/{tables[0].shard_id}"):
                raise user_error("SLACKWATER_NO_SPACE", what="a data file", path=directory)
            return file_part(blobs, updates, directory)

        patched.setattr(compaction, "file_part", full)
        maintenance.turn()
    assert [len(leader.env.persist.reads.parts(table.shard_id)) for table in tables] == [3, 1]
    maintenance.turn()
    assert [len(leader.env.persist.reads.parts(table.shard_id)) for table in tables] == [1, 1]


def test_the_lease_of_an_earlier_leader_keeps_files_and_times(leader, engine, tmp_path, clock):
    table = leader.create("t")
    maintenance = leader.maintenance(lease_ms=3 * garbage.LEASE_MS)
    for key in (1, 2, 3):
        leader.insert(table, key)
    leader.pass_time(5_000)
    maintenance.turn()
    leased_at = leader.env.oracle.read_ts()
    first = leader.files(table)
    # The leader is gone, with statements of applications that still read.
    later = Leader(engine, tmp_path, clock, leader.epoch)
    maintenance = later.maintenance()

    def passed(ms, *keys):
        for key in keys:
            later.insert(table, key)
        later.pass_time(ms)
        maintenance.turn()

    passed(5_000, 4, 5, 6)
    passed(5_000, 7, 8, 9)
    assert later.since(table) <= leased_at
    assert len(later.env.persist.transactions.query(holds.leases)) == 2
    passed(2 * garbage.LEASE_MS)
    assert first <= later.files(table)
    assert later.since(table) <= leased_at
    passed(2 * garbage.LEASE_MS, 10, 11, 12)
    assert [lease.reader_id for lease in later.env.persist.transactions.query(holds.leases)] == [
        "leader-2"
    ]
    passed(2 * garbage.LEASE_MS, 13, 14, 15)
    passed(2 * garbage.LEASE_MS)
    assert later.since(table) > leased_at
    assert not first & later.files(table)
    assert garbage_of(later) == set()
    assert later.keys(table) == list(range(1, 16))
    later.close()


def test_rows_of_peeks_go_once_the_lease_of_their_leader_has_passed(
    leader, engine, tmp_path, clock
):
    leader.maintenance(lease_ms=3 * garbage.LEASE_MS).start()

    def stashed(by: Leader) -> Path:
        blob = by.env.persist.blobs.put(by.stashed.directory, ".parquet", lambda f: f.write(b"x"))
        return local_path(blob.uri)

    left = stashed(leader)
    later = Leader(engine, tmp_path, clock, leader.epoch)
    own = stashed(later)
    maintenance = later.maintenance()
    maintenance.turn()
    assert left.exists()
    clock.now_ms += 4 * garbage.LEASE_MS
    maintenance.turn()
    assert not left.exists()
    assert own.exists()


def test_a_dropped_table_becomes_a_tombstone_once_nobody_holds_it(leader):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in (1, 2, 3):
        leader.insert(table, key)
    leader.pass_time(5_000)
    maintenance.turn()
    (name,) = leader.files(table)
    bound = leader.bind(table)
    leader.drop("t")
    maintenance.turn()
    assert leader.env.persist.reads.unfinalized() == (table.shard_id,)
    assert leader.keys(table) == [1, 2, 3]
    leader.release(bound)
    maintenance.turn()
    assert leader.env.persist.reads.unfinalized() == ()
    state = leader.env.persist.reads.state(table.shard_id)
    assert (state.since, state.upper) == (TIMESTAMP_MAX, TIMESTAMP_MAX)
    assert leader.files(table) == {name}
    leader.pass_time(garbage.LEASE_MS + 1)
    maintenance.turn()
    assert leader.files(table) == set()
    counts = leader.env.persist.transactions.query(
        lambda conn: (
            len(conn.execute(select(shards_table)).all()),
            len(conn.execute(select(parts_table)).all()),
        )
    )
    assert counts == (1, 0)


def test_a_bind_of_a_table_that_is_gone_says_so(leader):
    table = leader.create("t")
    leader.drop("t")
    leader.maintenance().turn()
    with pytest.raises(SlackwaterError) as caught:
        leader.bind(table)
    assert caught.value.condition == "SLACKWATER_DEPENDENCY_DROPPED"


def test_a_since_that_moved_before_the_hold_is_not_taken_back(leader):
    table = leader.create("t")
    leader.insert(table, 1)
    early = leader.env.oracle.read_ts()
    leader.pass_time(5_000)
    moved = leader.env.storage.since(table.id)
    assert moved.value > early
    bound = leader.bind(table)
    assert bound["timestamp"] >= moved.value
    leader.release(bound)
    with pytest.raises(SlackwaterError) as caught:
        leader.bind(table, early)
    assert caught.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"


def test_files_of_crashed_writers_go_after_a_safe_age(leader, clock):
    table = leader.create("t")
    maintenance = leader.maintenance(listed_per_turn=1)
    for key in (1, 2, 3):
        leader.insert(table, key)
    leader.pass_time(5_000)
    maintenance.turn()
    named = leader.files(table)
    staged = Path(leader.env.location) / "shards" / str(table.shard_id) / "write-crashed"
    staged.mkdir()
    for name in ("a.parquet", ".b.parquet.writing"):
        (staged / name).write_bytes(b"x")
    # Of a table that was never made; see docs/decisions 0015.
    reserved = leader.env.persist.definitions.reserve_shard()
    unmade = Path(leader.env.location) / "shards" / str(reserved) / "write-unmade"
    unmade.mkdir(parents=True)
    (unmade / "c.parquet").write_bytes(b"x")
    elsewhere = Path(leader.env.location) / "shards" / "notes.txt"
    elsewhere.write_bytes(b"x")
    for _ in range(8):
        maintenance.turn()
    assert garbage_of(leader) == set()
    # The files are as old as the real clock says.
    leader.pass_time(10 * 365 * 24 * HOUR_MS)
    for _ in range(8):
        maintenance.turn()
    leader.pass_time(garbage.LEASE_MS + 1)
    maintenance.turn()
    assert not staged.exists()
    assert not unmade.exists()
    assert leader.files(table) == named
    assert elsewhere.exists()
    assert leader.keys(table) == [1, 2, 3]


def test_the_directory_of_a_write_goes_with_its_last_file(leader):
    table = leader.create("t")
    maintenance = leader.maintenance(files_per_turn=1)
    folder = Path(leader.env.location) / "shards" / str(table.shard_id)
    leader.insert_files(table, 1, 2)
    leader.insert_files(table, 3)
    assert len(list(folder.iterdir())) == 2
    leader.pass_time(5_000)
    maintenance.turn()
    assert len(garbage_of(leader)) == 3
    leader.pass_time(garbage.LEASE_MS + 1)
    left = []
    for _ in range(3):
        maintenance.turn()
        left.append(len(list(folder.glob("write-*"))))
        assert folder.is_dir()
    assert left[-1] == 0
    assert left[0] > 0
    assert leader.files(table)
    assert leader.keys(table) == [1, 2, 3]


def test_the_directory_of_a_dropped_shard_goes_with_its_last_file(leader):
    empty, table = leader.create("empty"), leader.create("t")
    maintenance = leader.maintenance()
    shards = Path(leader.env.location) / "shards"
    leader.insert_files(table, 1)
    (shards / str(table.shard_id) / "write-aborted").mkdir()
    (shards / str(empty.shard_id) / "write-aborted").mkdir(parents=True)
    bound = leader.bind(table)
    leader.drop("t")
    leader.drop("empty")
    maintenance.turn()
    assert [path.name for path in shards.iterdir()] == [str(table.shard_id)]
    leader.release(bound)
    maintenance.turn()
    assert leader.files(table)
    leader.pass_time(garbage.LEASE_MS + 1)
    maintenance.turn()
    assert list(shards.iterdir()) == []


def test_a_column_is_added_to_what_is_there(leader):
    table = leader.create("t")
    maintenance = leader.maintenance()
    leader.insert(table, 1)
    leader.insert(table, 2)
    wide = leader.add_column("t", name=["note"])
    assert wide["schema"]["fields"][1]["name"] == "note"
    # A statement that was planned before names no such column.
    leader.insert(table, 3)
    leader.pass_time(5_000)
    maintenance.turn()
    (item,) = [leader.env.state.get("default", "t")]
    assert len(leader.env.persist.reads.parts(table.shard_id)) == 1
    bound = leader.bind(item)
    rows = leader.env.persist.reads.snapshot(table.shard_id, bound["timestamp"]).to_pylist()
    leader.release(bound)
    assert sorted(row["k"] for row in rows) == [1, 2, 3]
    assert {row["note"] for row in rows} == {None}
    assert leader.env.persist.reads.state(table.shard_id).desc == item.desc
    assert item.create_sql.endswith("(`k` INT, `note` STRING)")


@pytest.mark.parametrize(
    ("change", "condition"),
    [
        ({"name": ["K"]}, "SLACKWATER_DUPLICATE_COLUMN"),
        ({"name": ["s", "x"]}, "SLACKWATER_UNSUPPORTED"),
        ({"name": ["n"], "nullable": False}, "SLACKWATER_UNSUPPORTED"),
        ({"name": ["n"], "default": "1"}, "SLACKWATER_UNSUPPORTED"),
        ({"name": ["n"], "type": "variant"}, "SLACKWATER_UNSUPPORTED_TYPE"),
    ],
)
def test_columns_that_cannot_be_added(leader, change, condition):
    table = leader.create("t")
    with pytest.raises(SlackwaterError) as caught:
        leader.add_column("t", **change)
    assert caught.value.condition == condition
    assert leader.env.persist.reads.state(table.shard_id).desc == DESC


def test_a_turn_is_bounded_and_the_next_one_goes_on(leader):
    tables = [leader.create(f"t{number}") for number in range(3)]
    maintenance = leader.maintenance(merges_per_turn=1)
    for table in tables:
        for key in (1, 2, 3):
            leader.insert(table, key)
    leader.pass_time(5_000)

    def crowded():
        return [len(leader.env.persist.reads.parts(table.shard_id)) for table in tables]

    seen = []
    for _ in range(3):
        maintenance.turn()
        seen.append(sorted(crowded()))
    assert seen == [[1, 3, 3], [1, 1, 3], [1, 1, 1]]


def test_a_new_leader_finds_what_is_crowded(leader, engine, tmp_path, clock):
    table = leader.create("t")
    for key in (1, 2, 3):
        leader.insert(table, key)
    later = Leader(engine, tmp_path, clock, leader.epoch)
    assert later.maintenance()._crowded() == [table.shard_id]
    later.close()


def test_a_fenced_leader_ends_its_maintenance(leader, engine):
    leader.create("t")
    maintenance = leader.maintenance(interval_ms=1)
    maintenance.start()
    acquired(engine, leader.epoch, address="b")
    maintenance._renewed_ms = None
    maintenance._thread.join(PATIENCE)
    assert not maintenance._thread.is_alive()
    assert any("Fenced" in text for text in leader.fatal)
    with pytest.raises(Fenced):
        leader.env.persist.transactions.confirm_leadership()


def test_an_error_of_a_step_does_not_keep_the_others_from_working(leader, monkeypatch):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in (1, 2, 3):
        leader.insert(table, key)
    leader.pass_time(5_000)

    def broken():
        raise OSError("no")

    monkeypatch.setattr(maintenance, "_finalize", broken)
    maintenance.turn()
    assert len(leader.env.persist.reads.parts(table.shard_id)) == 1
    assert leader.fatal == []


def test_stopping_is_quick(leader):
    maintenance = leader.maintenance(interval_ms=10**9)
    maintenance.start()
    maintenance.stop()
    assert not maintenance._thread.is_alive()


class DroppedMeanwhile:
    """In the place of the catalog's lock: who waits for it gets it after somebody else's drop."""

    def __init__(self, leader: Leader, name: str) -> None:
        self._leader, self._name, self._lock = leader, name, leader.env.catalog.lock

    def within(self, timeout_s: float):
        self._leader.env.catalog.lock = self._lock
        self._leader.drop(self._name)
        return self._lock.within(timeout_s)


def test_compaction_of_what_is_dropped_before_its_turn_is_no_failure(leader):
    table = leader.create("t")
    maintenance = leader.maintenance()
    for key in range(3):
        leader.insert(table, key)
    leader.pass_time(HOUR_MS)
    leader.env.catalog.lock = DroppedMeanwhile(leader, "t")
    with capture_logs() as logged:
        maintenance.turn()
    assert [entry for entry in logged if entry["log_level"] == "error"] == []
