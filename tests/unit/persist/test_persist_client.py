"""Shards on both metastores: commits, reads, fencing, merging."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import event, select
from tests.support.persist.persistence import (
    DESC,
    acquired,
    contents,
    own_shard,
    table_shard,
    updates,
)

from slackwater.persist import blobs
from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import (
    Append,
    DuplicateWrite,
    PersistClient,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
    WriteResult,
)
from slackwater.persist.evolution import ExpectedMismatch, Incompatible
from slackwater.persist.leadership import Fenced, LostElection, current_leader
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Uniform
from slackwater.persist.tables import writes
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

pytestmark = pytest.mark.filterwarnings("error")


def append(client, shard, lower, upper, *rows):
    client.commits.commit(
        [Append(shard, lower, upper, client.files.new_parts(shard, updates(*rows)))]
    )


def reopened(env, client: PersistClient) -> PersistClient:
    return env.lead(expected_epoch=current_leader(env.engine).epoch)


def test_an_append_is_read_at_its_time_and_not_before(env):
    client = env.lead()
    shard = own_shard(client)
    append(client, shard, 0, 10, (1, "a", 3, 1), (1, "a", 5, 1), (2, None, 9, 1))
    append(client, shard, 10, 20, (1, "a", 12, -1))
    for reader in (client, reopened(env, client)):
        assert contents(reader, shard, 2) == []
        assert contents(reader, shard, 5) == [(1, "a"), (1, "a")]
        assert contents(reader, shard, 12) == [(1, "a"), (2, None)]
        assert reader.reads.state(shard).upper == 20


def test_errors_are_committed_within_what_tells_of_them(env):
    told = []

    @contextmanager
    def adding_errors():
        told.append(client.reads.state(errors).upper)
        yield
        told.append(client.reads.state(errors).upper)

    client = env.lead(adding_errors=adding_errors)
    rows, errors = own_shard(client), own_shard(client, desc=ERRORS)
    append(client, rows, 0, 10, (1, "a", 3, 1))
    client.commits.commit([Append(errors, 0, 10, ())])
    assert told == []
    error = pa.table({"error": ["no"], TIME_COLUMN: [12], DIFF_COLUMN: [1]})
    client.commits.commit([Append(errors, 10, 20, client.files.new_parts(errors, error))])
    assert told == [10, 20]


def test_a_wrong_upper_changes_nothing(env):
    client = env.lead()
    first, second = own_shard(client), own_shard(client)
    part = inline_part(updates((1, "a", 6, 1)))
    with pytest.raises(UpperMismatch) as caught:
        client.commits.commit([Append(first, 0, 7, (part,)), Append(second, 5, 7, (part,))])
    assert (caught.value.shard_id, caught.value.expected, caught.value.actual) == (second, 5, 0)
    assert client.reads.state(first).upper == 0
    assert contents(reopened(env, client), first, 6) == []


def test_times_outside_of_the_bounds_are_refused(env):
    client = env.lead()
    shard = own_shard(client)
    with pytest.raises(ValueError, match="outside"):
        append(client, shard, 0, 5, (1, "a", 5, 1))
    assert client.reads.state(shard).upper == 0


def test_tables_share_one_upper_and_an_idle_tick_is_one_statement(env):
    client = env.lead()
    first, second = table_shard(client), table_shard(client)
    part = inline_part(updates((1, "a", 4, 1)))
    client.commits.commit([], tables=TablesAppend(0, 5, {first: (part,)}))
    assert (
        client.reads.state(first).upper
        == client.reads.state(second).upper
        == client.reads.tables_upper()
        == 5
    )
    statements: list[str] = []
    event.listen(
        env.engine, "before_cursor_execute", lambda c, k, text, *rest: statements.append(text)
    )
    client.commits.commit([], tables=TablesAppend(5, 6, {}))
    assert len([text for text in statements if not text.startswith("BEGIN")]) == 1
    with pytest.raises(UpperMismatch):
        client.commits.commit([], tables=TablesAppend(5, 7, {}))
    assert reopened(env, client).reads.tables_upper() == 6


def test_steps_and_appends_are_one_transaction(env):
    client = env.lead()
    shard = own_shard(client)
    made = []

    def create(conn):
        made.append(client.definitions.create_shard(conn, DESC, 0, 3))

    def fail(conn):
        raise RuntimeError("no")

    part = inline_part(updates((1, "a", 0, 1)))
    with pytest.raises(RuntimeError):
        client.commits.commit([Append(shard, 0, 1, (part,))], steps=[create, fail])
    assert client.reads.state(shard).upper == 0
    with pytest.raises(UnknownShard):
        client.reads.state(made[0])
    client.commits.commit([Append(shard, 0, 1, (part,))], steps=[create])
    assert client.reads.state(made[1]).upper == 3


def test_shard_ids_are_not_reused(env):
    client = env.lead()
    first = own_shard(client)
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, first))
    assert own_shard(client) != first
    with pytest.raises(UnknownShard):
        append(client, first, 0, 1, (1, "a", 0, 1))
    later = reopened(env, client)
    assert first not in later.reads.shard_ids()
    assert own_shard(later) not in (first, first + 1)


def test_write_ids_are_remembered_for_a_day(env):
    now = [1_000_000]
    client = env.lead(clock=lambda: now[0])
    assert client.commits.commit([], write_ids={"w1": WriteResult(5, 2, 1)})
    assert client.commits.written("w1") == WriteResult(5, 2, 1)
    assert client.commits.written("w2") is None
    now[0] += 25 * 3600 * 1000
    client.commits.commit([], write_ids={"w3": WriteResult(7, 0, 0)})
    with env.engine.begin() as conn:
        assert conn.scalars(select(writes.c.write_id)).all() == ["w3"]


def test_i8_a_repeated_write_is_a_success_and_adds_nothing(env):
    client = env.lead()
    shard = own_shard(client)
    part = inline_part(updates((1, "a", 0, 1)))
    write = {"w1": WriteResult(0, 1, 0)}
    assert client.commits.commit([Append(shard, 0, 1, (part,))], write_ids=write)
    for reader in (client, None):
        reader = reader or reopened(env, client)
        # The upper has moved, and with the upper that it has now the token decides as well.
        assert not reader.commits.commit([Append(shard, 0, 1, (part,))], write_ids=write)
        again = inline_part(updates((1, "a", 1, 1)))
        assert not reader.commits.commit([Append(shard, 1, 2, (again,))], write_ids=write)
        assert contents(reader, shard, 9) == [(1, "a")]
        assert reader.reads.state(shard).upper == 1
        with pytest.raises(DuplicateWrite) as caught:
            reader.commits.commit([], write_ids={**write, "w2": WriteResult(5, 0, 0)})
        assert caught.value.write_ids == ("w1",)
        assert reader.commits.written("w2") is None


def test_a_fenced_leader_changes_nothing(env):
    old = env.lead()
    shard = own_shard(old)
    new = reopened(env, old)
    for attempt in (
        lambda: append(old, shard, 0, 1, (1, "a", 0, 1)),
        lambda: old.commits.advance({shard: 5}),
        lambda: old.maintenance.set_since({shard: 5}),
        lambda: own_shard(old),
        lambda: old.commits.commit([], tables=TablesAppend(0, 9, {})),
    ):
        with pytest.raises(Fenced):
            attempt()
    assert new.reads.state(shard).upper == 0
    append(new, shard, 0, 1, (1, "a", 0, 1))
    assert contents(new, shard, 0) == [(1, "a")]


def test_of_many_candidates_one_leads(env):
    env.lead()
    won, lost = [], []

    def stand(number):
        try:
            won.append(acquired(env.engine, 1, address=f"a{number}"))
        except LostElection:
            lost.append(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(stand, range(8)))
    assert won == [2]
    assert len(lost) == 7
    assert current_leader(env.engine).epoch == 2


def test_eight_threads_append(env):
    client = env.lead()
    shared = own_shard(client)
    own = [own_shard(client) for _ in range(8)]

    def work(number):
        for step in range(10):
            append(client, own[number], step, step + 1, (number, "own", step, 1))
            while True:
                upper = client.reads.state(shared).upper
                try:
                    append(client, shared, upper, upper + 1, (number, str(step), upper, 1))
                    break
                except UpperMismatch as mismatch:
                    if mismatch.actual <= upper:
                        raise

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    expected = sorted([(n, str(s)) for n in range(8) for s in range(10)], key=repr)
    for reader in (client, reopened(env, client)):
        assert contents(reader, shared, 80) == expected
        assert all(len(contents(reader, shard, 9)) == 10 for shard in own)


def test_since_and_upper_never_move_back(env):
    client = env.lead()
    shard = own_shard(client)
    client.commits.advance({shard: 9})
    client.commits.advance({shard: 3})
    client.maintenance.set_since({shard: 5})
    client.maintenance.set_since({shard: 2})
    for reader in (client, reopened(env, client)):
        assert (reader.reads.state(shard).since, reader.reads.state(shard).upper) == (5, 9)


def uniform_part(client, shard, time, rows, name="spark") -> NewPart:
    folder = blobs.local_path(client.files.staging_directory(shard, name))
    folder.mkdir(parents=True)
    path = folder / "part-0.parquet"
    pq.write_table(pa.table(rows), path)
    status = path.stat()
    body = FileBody(path.as_uri(), status.st_size, status.st_mtime_ns // 10**6, Uniform(time, 1))
    return NewPart(body, len(rows["k"]), time, time, False)


def test_a_negation_takes_back_uniform_parts_without_reading_them(env):
    client = env.lead()
    shard = own_shard(client)
    uniform = uniform_part(client, shard, 2, {"k": pa.array([1, 2], pa.int32()), "v": ["a", "b"]})
    row = inline_part(updates((3, "c", 2, 2)))
    client.commits.commit([Append(shard, 0, 5, (uniform, row))])
    negation = client.reads.negation(shard, 7).at(7)
    assert [part.rows for part in negation] == [2, 1]
    client.commits.commit([Append(shard, 5, 8, negation)])
    for reader in (client, reopened(env, client)):
        assert contents(reader, shard, 6) == [(1, "a"), (2, "b"), (3, "c"), (3, "c")]
        assert contents(reader, shard, 7) == []
        at_seven = reader.reads.parts_at(shard, 7)
        assert all(isinstance(part.body, InlineBody) for part in at_seven)
        assert len(reader.reads.parts_at(shard, 6)) == 2
        assert len(reader.reads.parts_between(shard, 7, 8)) == 2
        kinds = [
            getattr(part.body, "uniform", None) for part in reader.reads.parts_between(shard, 0, 5)
        ]
        assert kinds == [Uniform(2, 1), None]


def test_large_writes_become_files(env):
    client = env.lead()
    shard = own_shard(client)
    rows = 200_000
    table = pa.table(
        [
            pa.array(range(rows), pa.int32()),
            pa.array(["x" * 8] * rows),
            pa.repeat(pa.scalar(1, pa.int64()), rows),
            pa.repeat(pa.scalar(1, pa.int64()), rows),
        ],
        schema=DESC.update_schema(),
    )
    (part,) = client.files.new_parts(shard, table)
    assert isinstance(part.body, FileBody)
    assert part.body.size_bytes == os.path.getsize(blobs.local_path(part.body.uri))
    client.commits.commit([Append(shard, 0, 2, (part,))])
    assert client.reads.snapshot(shard, 1).num_rows == rows
    assert client.files.new_parts(shard, table.slice(0, 0)) == ()


WIDER = RelationDesc((*DESC.columns, *RelationDesc.of(w="double").columns))


def test_a_new_column_is_null_in_older_parts(env):
    client = env.lead()
    shard = own_shard(client)
    append(client, shard, 0, 1, (1, "a", 0, 1))
    client.transactions.transact(lambda conn: client.definitions.set_desc(conn, shard, WIDER, DESC))
    for reader in (client, reopened(env, client)):
        assert reader.reads.state(shard).desc == WIDER
        assert contents(reader, shard, 0) == [(1, "a", None)]


def test_columns_change_only_from_what_was_expected(env):
    client = env.lead()
    shard = own_shard(client)
    client.transactions.transact(lambda conn: client.definitions.set_desc(conn, shard, DESC, DESC))
    client.transactions.transact(lambda conn: client.definitions.set_desc(conn, shard, WIDER, DESC))
    with pytest.raises(ExpectedMismatch) as mismatch:
        client.transactions.transact(
            lambda conn: client.definitions.set_desc(conn, shard, WIDER, DESC)
        )
    assert mismatch.value.actual == WIDER
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))
    with pytest.raises(UnknownShard):
        client.transactions.transact(
            lambda conn: client.definitions.set_desc(conn, shard, WIDER, WIDER)
        )


K, V, W = WIDER.columns


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ((K, V), (K,), "missing"),
        ((K, V), (K, replace(V, type_json='"long"')), "type of v"),
        ((K, V), (K, V, replace(W, nullable=False)), "NOT NULL"),
        ((K, V), (K, replace(V, nullable=False)), "NULL in v"),
        ((K, V), (W, K, V), "after the others"),
        ((K, V), (K, V, replace(W, name="K")), "one name"),
    ],
)
def test_columns_that_parts_do_not_have_are_refused(env, before, after, reason):
    client = env.lead()
    shard = own_shard(client, desc=RelationDesc(before))
    with pytest.raises(Incompatible, match=reason):
        client.transactions.transact(
            lambda conn: client.definitions.set_desc(
                conn, shard, RelationDesc(after), RelationDesc(before)
            )
        )
    assert client.reads.state(shard).desc == RelationDesc(before)


def test_not_null_can_be_dropped(env):
    client = env.lead()
    strict = RelationDesc((replace(K, nullable=False), V))
    shard = own_shard(client, desc=strict)
    client.transactions.transact(
        lambda conn: client.definitions.set_desc(conn, shard, DESC, strict)
    )
    append(client, shard, 0, 1, (None, "a", 0, 1))
    assert contents(client, shard, 0) == [(None, "a")]


def test_no_space_is_an_error_that_leaves_nothing(env, monkeypatch):
    client = env.lead()
    shard = own_shard(client)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SlackwaterError) as caught:
        file_part(client.blobs, updates((1, "a", 0, 1)), str(blobs.local_path(env.location)))
    assert caught.value.condition == "SLACKWATER_NO_SPACE"
    monkeypatch.undo()
    left = [path for path in blobs.local_path(env.location).iterdir() if "parquet" in path.name]
    assert left == []
    assert client.reads.state(shard).upper == 0


def test_a_write_id_is_no_path(env):
    client = env.lead()
    with pytest.raises(ValueError, match="cannot be"):
        client.files.staging_directory(1, "../../etc")


def test_a_closed_shard_is_read_at_the_end_of_time(env):
    client = env.lead()
    shard = own_shard(client)
    append(client, shard, 0, 1, (1, "a", 0, 1))
    client.commits.advance({shard: TIMESTAMP_MAX})
    assert contents(client, shard, TIMESTAMP_MAX) == [(1, "a")]


def test_a_part_without_rows_cannot_be():
    with pytest.raises(ValueError, match="at least one"):
        inline_part(updates())


def test_reversed_bounds_are_refused(env):
    client = env.lead()
    shard = own_shard(client, upper=5)
    with pytest.raises(ValueError, match="reversed"):
        client.commits.commit([replace(Append(shard, 5, 6, ()), upper=4)])
