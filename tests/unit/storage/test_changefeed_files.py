"""Changefeeds into a folder: what is read, and what becomes of it. Source: spec checkpoint 5.6."""

import gzip
import json
from datetime import datetime, timezone
from random import Random

import pytest
from tests.support.storage.changefeed_world import World, config_of
from tests.support.storage.changefeeds import Upstream

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.hlc import Time
from slackwater.storage.changefeed import files
from slackwater.storage.changefeed.encoding import offset
from slackwater.storage.changefeed.files import FILES_FEED, FolderReader

EPOCH_S = 1_769_817_600
"""The beginning of 2026-01-31."""


def moment(time):
    """The day and the digits of a time in the names of files."""
    whole = datetime.fromtimestamp(time.nanos // 10**9, timezone.utc)
    return f"{whole:%Y-%m-%d}", f"{whole:%Y%m%d%H%M%S}{time.nanos % 10**9:09d}{time.logical:010d}"


def at(seconds, logical=0):
    return Time((EPOCH_S + seconds) * 10**9, logical)


class Sink:
    """Writes a folder as a changefeed does."""

    def __init__(self, folder):
        self.folder = folder

    def rows(self, time, payload, topic="a", number=1, pack=None):
        """A file whose name has the last time of its rows."""
        day, digits = moment(time)
        name = f"{digits}-5d-1-2-{number:08d}-{topic}-8.ndjson"
        data = "\n".join(map(json.dumps, payload)).encode()
        if pack is not None:
            name, data = f"{name}.gz", pack(data)
        return self._write(day, name, data)

    def resolved(self, time):
        day, digits = moment(time)
        return self._write(day, f"{digits}.RESOLVED", b"")

    def _write(self, day, name, data):
        (self.folder / day).mkdir(exist_ok=True, parents=True)
        (self.folder / day / name).write_bytes(data)
        return f"{day}/{name}"


def change(number, time):
    after = {"id": number, "owner": "o", "balance": number}
    return {"after": after, "key": [number], "topic": "a", "updated": str(time)}


@pytest.fixture
def sink(tmp_path):
    return Sink(tmp_path / "feed")


@pytest.fixture
def reading(sink):
    """Reads the folder from a file on: the keys that were read, the last file, and up to when."""

    def read(last=None, lookahead=None):
        said = []
        reader = FolderReader(
            str(sink.folder), {"a": ["id"]}, lambda time, feed: said.append((feed, time)), lookahead
        )
        found = reader.read(last)
        assert all(feed == FILES_FEED for feed, _ in said)
        return [row.key for row in found.rows], found.last, [time for _, time in said]

    return read


def test_what_is_before_the_last_resolved_is_read_once(sink, reading):
    assert reading() == ([], None, [])
    sink.rows(at(10), [change(1, at(5)), change(2, at(10))])
    assert reading() == ([], None, [])
    first = sink.resolved(at(10))
    # It is behind that, and waits for the next one.
    sink.rows(at(11), [change(3, at(11))])
    assert reading() == (["[1]", "[2]"], first, [at(10)])
    assert reading(first) == ([], first, [])
    # Of another day, and two at one time.
    sink.rows(at(90_000), [change(4, at(90_000))], pack=gzip.compress)
    sink.rows(at(90_000), [change(5, at(90_000))], number=2)
    second = sink.resolved(at(90_000, 7))
    assert reading(first) == (["[3]", "[4]", "[5]"], second, [at(90_000, 7)])
    assert reading(second) == ([], second, [])


def test_what_is_no_file_of_a_feed_is_left_alone(sink, reading):
    last = sink.resolved(at(10))
    day = sink.folder / last.partition("/")[0]
    for name in ("README", "0.tmp", "20269931000000000000000000000000000.RESOLVED"):
        (day / name).write_text("{")
    (sink.folder / "9999-file").write_text("{")
    (sink.folder / "9999-folder").mkdir()
    assert reading() == ([], last, [at(10)])


def test_a_read_is_bounded_by_bytes_and_by_the_lookahead(sink, reading, monkeypatch):
    ends = []
    for second in range(1, 6):
        sink.rows(at(second), [change(second, at(second))])
        ends.append(sink.resolved(at(second)))
    assert reading(lookahead=2) == (["[1]", "[2]"], ends[1], [at(2)])
    assert reading(ends[1], lookahead=2) == (["[3]", "[4]"], ends[3], [at(4)])
    assert reading(ends[3], lookahead=2) == (["[5]"], ends[4], [at(5)])
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    assert reading() == (["[1]"], ends[0], [at(1)])
    assert reading(ends[0]) == (["[2]"], ends[1], [at(2)])


def cut(data):
    return gzip.compress(data)[:-9]


def changed(data):
    packed = bytearray(gzip.compress(data))
    packed[12:16] = b"\xff\xff\xff\xff"
    return bytes(packed)


@pytest.mark.parametrize(
    ("payload", "pack"),
    [
        ([{"after": 1}], None),
        ([change(1, at(1))], cut),
        ([change(1, at(1))], changed),
        ([change(1, at(1))], lambda data: data),
    ],
)
def test_a_file_that_cannot_be_read_is_named(sink, reading, payload, pack):
    name = sink.rows(at(1), payload, pack=pack)
    sink.resolved(at(1))
    with pytest.raises(SlackwaterError) as raised:
        reading()
    assert raised.value.condition == "SLACKWATER_SOURCE_FILE_UNREADABLE"
    assert name in str(raised.value)


@pytest.mark.parametrize("seed", range(12))
def test_every_transaction_once_and_whole_whatever_is_repeated_and_whoever_dies(sink, seed):
    random = Random(seed)
    upstream = Upstream(seed, tables=2, accounts=3)
    config = config_of(
        upstream.tables,
        feeds=(FILES_FEED,),
        lookahead=1 + seed % 3 if seed % 2 else None,
        is_strict=seed % 4 < 2,
    )
    world = World(config, sink.folder)
    written, ends = 0, set()

    def write():
        nonlocal written
        news = upstream.changes[written:]
        again = [c for c in upstream.changes[:written] if random.random() < 0.1]
        written = len(upstream.changes)
        for number, table in enumerate(upstream.tables):
            payload = [c.payload() for c in (*again, *news) if c.table == table]
            random.shuffle(payload)
            sink.rows(upstream.now, payload, table, number)

    def end():
        sink.resolved(upstream.now)
        ends.add(offset(upstream.now.next))

    def step():
        before = world.frontier
        found = world.step(dies_before=random.random() < 0.2, dies_after=random.random() < 0.2)
        truth = upstream.contents(world.frontier)
        assert {table: world.rows(table) for table in upstream.tables} == truth
        if config.lookahead is not None:
            assert sum(before < end <= world.frontier for end in ends) <= config.lookahead
        return found

    for _ in range(25):
        for _ in range(random.randint(1, 3)):
            upstream.transact()
        write()
        if random.random() < 0.7:
            end()
        if random.random() < 0.4:
            step()
    end()
    while step():
        pass
    assert world.frontier == offset(upstream.now.next)
    # What comes from files is in the landing only as what the keys have now.
    assert all(is_bound for _, is_bound in world.landing)
