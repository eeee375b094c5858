"""The FILES sink: whatever the crash, a reader of the manifest sees each update exactly once."""

import io
import json
import os
from collections import Counter
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage import sink_files, sink_folder
from slackwater.storage.sink_files import FilesSink, LocalFileSystem, SinkConfig
from slackwater.storage.sink_folder import Claim

DESC = RelationDesc.of(k="long", v="string")


class CrashError(Exception):
    pass


class Leadership:
    """Which epoch leads."""

    def __init__(self):
        self.epoch = 0

    def claim(self, sink_id="u7"):
        """That of the next leader."""
        self.epoch += 1
        return Claim(sink_id, "the_sink", self.epoch, partial(self._confirm, self.epoch))

    def _confirm(self, epoch):
        if epoch != self.epoch:
            raise Fenced(epoch, self.epoch)


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

    def list(self, path):
        return self.inner.list(path)

    def exists(self, path):
        return self.inner.exists(path)

    def read(self, path):
        return self.inner.read(path)

    def link(self, source, target):
        self._step()
        return self.inner.link(source, target)

    def remove(self, path):
        self._step()
        self.inner.remove(path)

    def remove_directory(self, path):
        self._step()
        self.inner.remove_directory(path)

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


def opened(path, files=None, clock=lambda: 0, claim=None, progress=None, **more):
    config = SinkConfig(str(path), **{"format": "JSON", **more})
    claim = Leadership().claim() if claim is None else claim
    return FilesSink(config, DESC, replace(claim, progress=progress), clock=clock, files=files)


def visible(path):
    """The names that are for readers."""
    return sorted(name for name in os.listdir(path) if not name.startswith("_"))


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
    assert visible(tmp_path / "out") == [
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
    """Ranges of several files, so that a crash can come between them; no test loses power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink_files, "ROWS_PER_FILE", 3)
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def test_a_large_range_takes_several_files(tmp_path):
    rows = [updates([(k, "a", 1, 1) for k in range(7)])]
    opened(tmp_path).write(Frontier(0), Frontier(2), rows)
    assert [m["k"] for m in follow(tmp_path)[1]] == list(range(7))
    assert visible(tmp_path) == [
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
        try:
            sink = opened(path, CrashingFiles(at), format=form)
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


def test_silence_is_told_seldom(tmp_path):
    """After a second, and then after twice as long each time, up to 15 seconds."""
    now = [0]
    sink = opened(tmp_path, clock=lambda: now[0])
    sink.write(Frontier(5), Frontier(6), [])
    told = [follow(tmp_path)[0]]
    assert sink.frontier == Frontier(6)
    for second in range(1, 62):
        before = snapshot_of(tmp_path)
        now[0] = second * 1000
        sink.write(Frontier(5 + second), Frontier(6 + second), [])
        sink.tell()
        if follow(tmp_path)[0] == told[-1]:
            assert snapshot_of(tmp_path) == before
            assert sink.frontier == Frontier(told[-1])
        else:
            told.append(follow(tmp_path)[0])
    assert told == [6 + second for second in (0, 1, 3, 7, 15, 30, 45, 60)]
    # A change is told at once, and after it the next silence soon.
    sink.write(Frontier(67), Frontier(68), [updates([(1, "a", 67, 1)])])
    assert follow(tmp_path)[0] == 68
    now[0] += 1000
    sink.write(Frontier(68), Frontier(69), [updates([(1, "a", 68, 1), (1, "a", 68, -1)])])
    assert follow(tmp_path)[0] == 69
    sink.write(Frontier(69), Frontier(70), [])
    assert follow(tmp_path)[0] == 69
    sink.flush()
    assert follow(tmp_path)[0] == 70
    assert visible(tmp_path) == [f"{68:020d}-0.jsonl", "manifest.json"]


def snapshot_of(path):
    """Every file and directory with what changes when somebody writes there."""
    return {
        each: (each.stat().st_ino, each.stat().st_mtime_ns) for each in [path, *path.rglob("*")]
    }


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
        FilesSink(config, DESC, Leadership().claim("u8"), clock=lambda: 0)
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
    """The first time that the names of ranges are to be made durable, it fails."""

    failed = False

    def sync_directory(self, path):
        committed = path.endswith("commits") and os.listdir(path)
        if committed and not self.failed:
            self.failed = True
            raise OSError(5, "Input/output error")


def test_an_error_after_the_commit_does_not_repeat_it(tmp_path):
    rows = [updates([(1, "a", 0, 1), (2, "b", 1, 1)])]
    sink = opened(tmp_path, SyncFailsOnce())
    with pytest.raises(SlackwaterError):
        sink.write(Frontier(0), Frontier(1), rows)
    sink.write(Frontier(0), Frontier(1), rows)
    sink.write(Frontier(1), Frontier(2), rows)
    assert [m["k"] for m in follow(tmp_path)[1]] == [1, 2]


# Two leaders


class HangingFiles(CrashingFiles):
    """Before operation number `at`, the writer hangs while `meanwhile` happens; then it goes on.

    `look` is called after each operation.
    """

    def __init__(self, at, meanwhile, look):
        super().__init__()
        self.at, self.meanwhile, self.look = at, meanwhile, look
        self.done = 0

    def _step(self):
        self.look()
        if self.done == self.at:
            self.meanwhile()
        self.done += 1


class Reader:
    """Who follows the manifest alone: nothing that it has seen goes away or comes twice."""

    def __init__(self, path, expected):
        self.path, self.expected = path, expected
        self.frontier, self.files = 0, []

    def look(self):
        frontier, messages = follow(self.path)
        if frontier is None:
            assert self.frontier == 0
            return
        with open(os.path.join(self.path, "manifest.json")) as handle:
            files = json.load(handle)["files"]
        assert frontier >= self.frontier
        assert files[: len(self.files)] == self.files
        self.frontier, self.files = frontier, files
        counted = Counter((m["k"], m["v"], m["mz_timestamp"]) for m in messages)
        assert max(counted.values(), default=1) == 1
        assert counted.keys() == {u for u in self.expected if u[2] < frontier}


ROWS = [(k, "ab"[k % 2], time, 1) for time in range(12) for k in range(4) if time not in (4, 5)]
EXPECTED = {row[:3] for row in ROWS}


def advance(sink, *uppers):
    for upper in uppers:
        lower = Frontier(0) if sink.frontier is None else sink.frontier
        sink.write(lower, Frontier(upper), [updates(ROWS)])


def test_a_leader_that_hangs_at_any_step_changes_nothing_when_it_comes_back(tmp_path_factory):
    at = 0
    while True:
        path = tmp_path_factory.mktemp("sink")
        leadership, reader, hung = Leadership(), Reader(path, EXPECTED), []
        began = []

        def takes_over(path=path, leadership=leadership, hung=hung, began=began):
            if (path / "manifest.json").exists():
                began.append(True)
            hung.append(opened(path, claim=leadership.claim()))
            # It has not got so far as the old one, as far, and further.
            advance(hung[0], 2, 4)

        files = HangingFiles(at, takes_over, reader.look)
        try:
            old = opened(path, files, claim=leadership.claim())
            advance(old, 2, 4, 7)
            fenced = False
        except Fenced:
            fenced = True
        reader.look()
        if not hung:
            assert not fenced
            break
        # The new one goes on, and has not been told to start again.
        assert fenced or files.done == files.at + 1
        advance(hung[0], 6, 8, 12)
        hung[0].flush()
        reader.look()
        assert reader.frontier == 12
        assert {
            tuple(m[c] for c in ("k", "v", "mz_timestamp")) for m in follow(path)[1]
        } == EXPECTED
        # Once it has begun, who reads the folder instead of the manifest sees the same.
        listed = {name for name in visible(path) if name.endswith(".jsonl")}
        left = listed - {file["path"] for file in reader.files}
        assert not left if began else all(name.startswith(f"{2:020d}") for name in left)
        at += 1
    assert at > 30


@histories()
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.lists(st.integers(1, 12), min_size=1, max_size=4)),
        min_size=2,
        max_size=5,
    )
)
def test_leaders_that_hang_inside_each_other_s_writes(tmp_path_factory, leaders):
    """Each hangs somewhere, the next takes over; then they come back, the last one first."""
    path = tmp_path_factory.mktemp("sink")
    leadership, reader = Leadership(), Reader(path, EXPECTED)

    def lead(number):
        if number == len(leaders):
            return
        at, uppers = leaders[number]
        files = HangingFiles(at, lambda: lead(number + 1), reader.look)
        claim = leadership.claim()
        try:
            advance(opened(path, files, claim=claim), *sorted(uppers))
        except Fenced:
            assert claim.epoch < leadership.epoch
        reader.look()

    lead(0)
    last = opened(path, claim=leadership.claim())
    advance(last, 12)
    last.flush()
    reader.look()
    assert reader.frontier == 12


class LeakyFiles(HangingFiles):
    """Nobody can be kept out: what a writer has is not taken away from it."""

    def remove_directory(self, path):
        pass

    def replace(self, source, target):
        if target.endswith("manifest.json"):
            super().replace(source, target)


def test_the_exclusive_name_of_a_range_is_enough_to_keep_it_whole(tmp_path_factory):
    """Where a directory cannot be taken away, what the old one commits in time counts."""
    at = 0
    while True:
        path = tmp_path_factory.mktemp("sink")
        leadership, new = Leadership(), []
        config_files = LeakyFiles(None, None, lambda: None)

        def takes_over(path=path, leadership=leadership, new=new, files=config_files):
            new.append(opened(path, files, claim=leadership.claim()))

        files = LeakyFiles(at, takes_over, lambda: None)
        try:
            advance(opened(path, files, claim=leadership.claim()), 2, 3)
        except Fenced:
            assert new
        if not new:
            break
        advance(new[0], 3, 7, 12)
        new[0].flush()
        reader = Reader(path, EXPECTED)
        reader.look()
        assert reader.frontier == 12
        assert opened(path, config_files, claim=leadership.claim()).frontier == Frontier(12)
        at += 1
    assert at > 15


def test_of_two_sinks_in_one_folder_the_second_is_refused(tmp_path):
    one, other = opened(tmp_path), opened(tmp_path, claim=Leadership().claim("u8"))
    advance(one, 2)
    with pytest.raises(SlackwaterError) as failed:
        advance(other, 2)
    assert failed.value.condition == "SLACKWATER_SINK_LOCATION_IN_USE"
    advance(one, 12)
    assert len(follow(tmp_path)[1]) == len(ROWS)


# How much is written


class CountingFiles(CrashingFiles):
    bytes_written = 0

    def write(self, path, data):
        self.bytes_written += len(data)
        self.inner.write(path, data)


def test_a_range_costs_what_is_in_it_however_long_the_history_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sink_folder, "FREE_BYTES", 2_000)
    now = [0]
    files = CountingFiles()
    sink = opened(tmp_path, files, clock=lambda: now[0])
    costs = []
    for time in range(400):
        before = files.bytes_written
        sink.write(Frontier(time), Frontier(time + 1), [updates([(1, "a", time, 1)])])
        costs.append(files.bytes_written - before)
        if time % 10 == 9:
            now[0] += 1
    # The range alone, and then also a kilobyte of manifest.json for each millisecond.
    assert min(costs[300:]) == min(costs[100:200]) < 300
    assert sum(costs) < 400 * min(costs[300:]) + 40 * 1024 + 100_000
    assert sink.frontier == Frontier(400)
    frontier, messages = follow(tmp_path)
    assert len(messages) == frontier < 400
    now[0] += 100
    sink.tell()
    assert len(follow(tmp_path)[1]) == follow(tmp_path)[0] == 400


def test_what_manifest_json_does_not_say_yet_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sink_folder, "FREE_BYTES", -(10**9))
    sink = opened(tmp_path)
    advance(sink, 2, 7)
    assert sink.frontier == Frontier(7)
    # The first range is told at once.
    assert follow(tmp_path)[0] == 2
    sink = opened(tmp_path)
    assert sink.frontier == Frontier(7)
    advance(sink, 12)
    reader = Reader(tmp_path, EXPECTED)
    reader.look()
    assert reader.frontier == 12


def test_an_earlier_version_s_folder_is_continued(tmp_path):
    """It had manifest.json alone, whose frontier silence had moved on from the last range."""
    (tmp_path / f"{2:020d}-0.jsonl").write_text(
        "".join(
            json.dumps({"mz_timestamp": t, "mz_diff": d, "k": k, "v": v}) + "\n"
            for k, v, t, d in ROWS
            if t < 2
        )
    )
    (tmp_path / f"{6:020d}-0.jsonl").write_text("half of a range that was not commi")
    file = {"path": f"{2:020d}-0.jsonl", "lower": 0, "upper": 2, "rows": 8}
    manifest = {"sink": "u7", "envelope": "DIFF", "frontier": 2, "files": [file]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    reader = Reader(tmp_path, EXPECTED)
    reader.look()
    leadership = Leadership()
    for upper in (6, 12):
        sink = opened(tmp_path, claim=leadership.claim())
        advance(sink, upper)
        reader.look()
    assert reader.frontier == 12
    assert sorted(file["path"] for file in reader.files) == visible(tmp_path)[:-1]


def test_what_was_reported_is_not_taken_back(tmp_path):
    """The input may have been compacted up to there."""
    advance(opened(tmp_path), 4)
    assert opened(tmp_path, progress=Frontier(6)).frontier == Frontier(6)
    assert opened(tmp_path, progress=Frontier(3)).frontier == Frontier(4)
    moved = tmp_path / "moved"
    with pytest.raises(SlackwaterError, match=r"its manifest\.json is gone") as failed:
        opened(moved, progress=Frontier(6))
    assert failed.value.condition == "SLACKWATER_SINK_LOCATION_UNWRITABLE"
    assert not moved.exists()


class NotingFiles(LocalFileSystem):
    """Notes what the sink counts of its first range whenever a file is written."""

    sink = None

    def write(self, path, data):
        if self.sink is not None and "data." in path:
            found = self.sink.statistics
            self.seen.append((found.snapshot_records_staged, found.snapshot_records_known))
        super().write(path, data)


@pytest.mark.parametrize("form", ["JSON", "PARQUET"])
def test_the_first_range_is_counted_while_it_is_written(tmp_path, form):
    """Files have three rows here."""
    files = NotingFiles()
    files.seen = []
    files.sink = sink = opened(tmp_path, files, format=form)
    sink.write(Frontier(0), Frontier(9), [updates([(n, "a", 0, 1) for n in range(7)])])
    assert files.seen == [(0, 7), (3, 7), (6, 7)]
    sink.write(Frontier(9), Frontier(12), [updates([(1, "a", 10, -1)])])
    found = sink.statistics
    assert (found.snapshot_records_staged, found.snapshot_records_known) == (7, 7)
    assert (found.messages_staged, found.messages_committed) == (8, 8)
    assert found.bytes_committed > 0
    later = opened(tmp_path / "later", snapshot=False)
    later.write(Frontier(0), Frontier(9), [updates([(1, "a", 0, 1), (2, "a", 1, 1)])])
    assert later.statistics.snapshot_records_known is None
    assert later.statistics.messages_committed == 1
    empty = opened(tmp_path / "empty")
    empty.write(Frontier(0), Frontier(9), [updates([])])
    assert empty.statistics.snapshot_records_known == 0
