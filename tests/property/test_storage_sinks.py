"""The FILES sink: whatever the crash, a reader of the manifest sees each update exactly once."""

import io
import json
import os
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage import sink_files
from slackwater.storage.sink_files import FilesSink, LocalFileSystem, SinkConfig

DESC = RelationDesc.of(k="long", v="string")


class CrashError(Exception):
    pass


class CrashingFiles:
    """Real files; the process ends before, or in the middle of, operation number `at`."""

    def __init__(self, at=None):
        self.inner = LocalFileSystem()
        self.left = at

    def _step(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise CrashError

    def make_directory(self, path):
        self._step()
        self.inner.make_directory(path)

    def read(self, path):
        return self.inner.read(path)

    def write(self, path, data):
        try:
            self._step()
        except CrashError:
            self.inner.write(path, data[: len(data) // 2])
            raise
        self.inner.write(path, data)

    def replace(self, source, target):
        self._step()
        self.inner.replace(source, target)

    def sync_directory(self, path):
        self._step()
        self.inner.sync_directory(path)


def updates(rows):
    schema = DESC.update_schema()
    columns = list(zip(*rows, strict=True)) or [[]] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def opened(path, files=None, clock=lambda: 0, **more):
    config = SinkConfig(str(path), **{"format": "JSON", **more})
    return FilesSink.open(config, "u7", DESC, "the_sink", clock=clock, files=files)


def follow(path):
    """What a reader of the manifest sees: the frontier and all messages in order."""
    manifest_path = os.path.join(path, "manifest.json")
    if not os.path.exists(manifest_path):
        return None, []
    with open(manifest_path) as handle:
        manifest = json.load(handle)
    messages = []
    for file in manifest["files"]:
        with open(os.path.join(path, file["path"]), "rb") as handle:
            data = handle.read()
        if file["path"].endswith(".parquet"):
            rows = pq.read_table(io.BytesIO(data)).to_pylist()
        else:
            rows = [json.loads(line) for line in data.splitlines()]
        assert len(rows) == file["rows"]
        assert all(file["lower"] <= row["mz_timestamp"] < file["upper"] for row in rows)
        messages += rows
    assert all(message["mz_timestamp"] < manifest["frontier"] for message in messages)
    return manifest["frontier"], messages


def test_the_contract_of_names_and_manifest(tmp_path):
    sink = opened(tmp_path / "out", format="PARQUET")
    assert sink.frontier is None
    sink.write(Frontier(10), Frontier(21), [updates([(1, "a", 10, 1), (2, "b", 20, 2)])])
    assert sorted(os.listdir(tmp_path / "out")) == [
        "00000000000000000021-0.parquet",
        "manifest.json",
    ]
    with open(tmp_path / "out" / "manifest.json") as handle:
        assert json.load(handle) == {
            "sink": "u7",
            "envelope": "DIFF",
            "frontier": 21,
            "files": [
                {"path": "00000000000000000021-0.parquet", "lower": 10, "upper": 21, "rows": 2}
            ],
        }
    assert follow(tmp_path / "out")[1] == [
        {"mz_timestamp": 10, "mz_diff": 1, "k": 1, "v": "a"},
        {"mz_timestamp": 20, "mz_diff": 2, "k": 2, "v": "b"},
    ]
    assert opened(tmp_path / "out").frontier == Frontier(21)


@pytest.fixture(autouse=True, scope="module")
def _small_files():
    """Ranges of several files, so that a crash can come between them."""
    before = sink_files.ROWS_PER_FILE
    sink_files.ROWS_PER_FILE = 3
    yield
    sink_files.ROWS_PER_FILE = before


def test_a_large_range_takes_several_files(tmp_path):
    rows = [updates([(k, "a", 1, 1) for k in range(7)])]
    opened(tmp_path).write(Frontier(0), Frontier(2), rows)
    assert [m["k"] for m in follow(tmp_path)[1]] == list(range(7))
    assert sorted(os.listdir(tmp_path)) == [
        *(f"00000000000000000002-{n}.jsonl" for n in range(3)),
        "manifest.json",
    ]


HISTORY = st.lists(
    st.tuples(
        st.integers(1, 3), st.sampled_from(["a", "b"]), st.integers(0, 19), st.sampled_from([1, -1])
    ),
    max_size=15,
)


@histories()
@given(
    HISTORY,
    st.lists(st.integers(1, 20), max_size=5),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 20)), max_size=4),
    st.sampled_from(["JSON", "PARQUET"]),
)
def test_each_update_exactly_once_whatever_crashes(tmp_path_factory, history, cuts, crashes, form):
    path = tmp_path_factory.mktemp("sink")
    expected = Counter()
    for k, v, time, diff in history:
        expected[(k, v, time)] += diff

    def write_to(sink, upper):
        lower = Frontier(0) if sink.frontier is None else sink.frontier
        sink.write(lower, Frontier(upper), [updates(history)])

    def seen():
        frontier, messages = follow(path)
        sums = Counter()
        for m in messages:
            assert (m["k"], m["v"], m["mz_timestamp"]) not in sums
            sums[(m["k"], m["v"], m["mz_timestamp"])] = m["mz_diff"]
        wanted = {u: d for u, d in expected.items() if d and u[2] < (frontier or 0)}
        assert dict(sums) == wanted

    for at, upper in crashes:
        sink = opened(path, CrashingFiles(at), format=form)
        try:
            for cut in sorted({*cuts, upper}):
                write_to(sink, cut)
                seen()
        except CrashError:
            pass
        seen()
    sink = opened(path, format=form)
    write_to(sink, 20)
    sink.flush()
    seen()
    assert follow(path)[0] == 20


def test_empty_ranges_move_the_frontier_at_most_once_a_second(tmp_path):
    now = [0]
    sink = opened(tmp_path, clock=lambda: now[0])
    sink.write(Frontier(5), Frontier(6), [])
    assert (follow(tmp_path)[0], sink.frontier) == (6, Frontier(6))
    sink.write(Frontier(6), Frontier(7), [])
    assert (follow(tmp_path)[0], sink.frontier) == (6, Frontier(6))
    now[0] = 1000
    sink.write(Frontier(7), Frontier(8), [])
    assert follow(tmp_path)[0] == 8
    sink.write(Frontier(8), Frontier(9), [updates([(1, "a", 8, 1), (1, "a", 8, -1)])])
    assert follow(tmp_path)[0] == 8
    sink.flush()
    assert follow(tmp_path)[0] == 9
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_the_snapshot_has_the_time_of_the_as_of(tmp_path):
    rows = [updates([(1, "a", 2, 1), (2, "b", 3, 1), (1, "a", 4, -1), (3, "c", 6, 1)])]
    opened(tmp_path / "with").write(Frontier(5), Frontier(7), rows)
    assert [(m["mz_timestamp"], m["k"]) for m in follow(tmp_path / "with")[1]] == [(5, 2), (6, 3)]
    opened(tmp_path / "without", snapshot=False).write(Frontier(5), Frontier(7), rows)
    assert [(m["mz_timestamp"], m["k"]) for m in follow(tmp_path / "without")[1]] == [(6, 3)]


def test_without_snapshot_only_later_changes_go_out(tmp_path):
    sink = opened(tmp_path, snapshot=False)
    sink.write(Frontier(5), Frontier(7), [updates([(1, "a", 5, 1), (2, "b", 6, 1)])])
    assert [m["k"] for m in follow(tmp_path)[1]] == [2]
    sink = opened(tmp_path, snapshot=False)
    sink.write(Frontier(7), Frontier(8), [updates([(3, "c", 7, 1)])])
    assert [m["k"] for m in follow(tmp_path)[1]] == [2, 3]


def test_upsert(tmp_path):
    sink = opened(tmp_path, envelope="UPSERT", key=("k",))
    rows = [(1, "a", 1, 1), (2, "b", 1, 1), (1, "a", 2, -1), (1, "c", 2, 1), (2, "b", 3, -1)]
    sink.write(Frontier(0), Frontier(4), [updates(rows)])
    assert follow(tmp_path)[1] == [
        {"mz_timestamp": 1, "mz_op": "upsert", "k": 1, "v": "a"},
        {"mz_timestamp": 1, "mz_op": "upsert", "k": 2, "v": "b"},
        {"mz_timestamp": 2, "mz_op": "upsert", "k": 1, "v": "c"},
        {"mz_timestamp": 3, "mz_op": "delete", "k": 2, "v": None},
    ]
    with pytest.raises(SlackwaterError, match="more than one row with k = 5 at 4") as failed:
        sink.write(Frontier(4), Frontier(5), [updates([(5, "a", 4, 1), (5, "b", 4, 1)])])
    assert failed.value.condition == "SLACKWATER_SINK_KEY"
    assert follow(tmp_path)[0] == 4


@pytest.mark.parametrize("form", ["JSON", "PARQUET"])
def test_debezium(tmp_path, form):
    rows = [(1, "a", 1, 1), (1, "a", 2, -1), (1, "c", 2, 1), (1, "c", 3, -1)]
    a, c = {"k": 1, "v": "a"}, {"k": 1, "v": "c"}
    keyed = opened(tmp_path / "keyed", envelope="DEBEZIUM", key=("k",), format=form)
    keyed.write(Frontier(0), Frontier(4), [updates(rows)])
    assert [(m["before"], m["after"]) for m in follow(tmp_path / "keyed")[1]] == [
        (None, a), (a, c), (c, None)
    ]  # fmt: skip
    plain = opened(tmp_path / "plain", envelope="DEBEZIUM", format=form)
    plain.write(Frontier(0), Frontier(4), [updates([*rows, (1, "a", 1, 1)])])
    assert [(m["before"], m["after"]) for m in follow(tmp_path / "plain")[1]] == [
        (None, a), (None, a), (a, None), (None, c), (c, None)
    ]  # fmt: skip


def test_refusals(tmp_path):
    sink = opened(tmp_path)
    sink.write(Frontier(0), Frontier(1), [])
    config = SinkConfig(str(tmp_path), "JSON")
    with pytest.raises(SlackwaterError) as failed:
        FilesSink.open(config, "u8", DESC, "other", clock=lambda: 0)
    assert failed.value.condition == "SLACKWATER_SINK_LOCATION_IN_USE"
    with pytest.raises(FatalError, match="gap"):
        sink.write(Frontier(5), Frontier(6), [])
    for more in ({"envelope": "UPSERT"}, {"envelope": "UPSERT", "key": ("z",)}, {"key": ("k",)}):
        with pytest.raises(SlackwaterError) as failed:
            opened(tmp_path, **more)
        assert failed.value.condition == "SLACKWATER_SINK_KEY"
    (tmp_path / "file").write_text("")
    with pytest.raises(SlackwaterError) as failed:
        opened(tmp_path / "file" / "below").write(Frontier(0), Frontier(1), [])
    assert failed.value.condition == "SLACKWATER_SINK_LOCATION_UNWRITABLE"


class FullDisk(CrashingFiles):
    def write(self, path, data):
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_named_and_may_pass(tmp_path):
    rows = [updates([(1, "a", 0, 1)])]
    sink = opened(tmp_path, FullDisk())
    with pytest.raises(SlackwaterError) as failed:
        sink.write(Frontier(0), Frontier(1), rows)
    assert failed.value.condition == "SLACKWATER_NO_SPACE"
    opened(tmp_path).write(Frontier(0), Frontier(1), rows)
    assert len(follow(tmp_path)[1]) == 1


class SyncFailsOnce(CrashingFiles):
    """The second directory sync, the one after the manifest's replacement, fails."""

    syncs = 0

    def sync_directory(self, path):
        self.syncs += 1
        if self.syncs == 2:
            raise OSError(5, "Input/output error")


def test_an_error_after_the_commit_does_not_repeat_it(tmp_path):
    rows = [updates([(1, "a", 0, 1), (2, "b", 1, 1)])]
    sink = opened(tmp_path, SyncFailsOnce())
    with pytest.raises(SlackwaterError):
        sink.write(Frontier(0), Frontier(1), rows)
    sink.write(Frontier(0), Frontier(1), rows)
    sink.write(Frontier(1), Frontier(2), rows)
    assert [m["k"] for m in follow(tmp_path)[1]] == [1, 2]


def test_a_fenced_writer_cannot_overwrite(tmp_path):
    old, new = opened(tmp_path), opened(tmp_path)
    new.write(Frontier(0), Frontier(5), [updates([(1, "a", 0, 1)])])
    with pytest.raises(FatalError, match="manifest moved"):
        old.write(Frontier(0), Frontier(3), [updates([(1, "a", 0, 1)])])
    assert follow(tmp_path)[0] == 5
