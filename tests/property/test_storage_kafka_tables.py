"""Tables of a source that reads a topic, against their definition, whatever the topic, the network,
the process and the catalog do. Tables with keys are read again at any moment."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.kafka.fake_topic import FakeCluster, FakeUpstream, Partition

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.dataflow_error import decode
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.envelope import row_key
from slackwater.storage.ingestion import IngestionProgress
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import Appended, ByKey, Reading, key_of_error
from slackwater.storage.kafka.ingestion import CHECK_MS, KafkaConfig, KafkaIngestion
from slackwater.storage.kafka.topic import TopicIdentity
from slackwater.storage.keyed_rows import RowsInMemory
from slackwater.storage.row_bytes import RowBytes

KEYS = [b"a", b"b", b"c", b"\xff"]
VALUES = [b"1", b"22", b"x\xff", None]
ACTIONS = [
    *["send"] * 5,
    *["poll"] * 4,
    *["mark", "partition", "fail", "crash", "lose", "create", "create", "drop", "full"],
    *["again", "expire"],
]
KINDS = [
    ("NONE", "PROPAGATE"),
    ("NONE", "SKIP"),
    ("UPSERT", "PROPAGATE"),
    ("UPSERT", "SKIP"),
    ("NONE", "DEAD LETTER"),
    ("UPSERT", "DEAD LETTER"),
]


LETTERS = "_dead_letters"


@st.composite
def actions(draw):
    """What happens: each with what it needs, which only some look at."""
    return [
        (
            draw(st.sampled_from(ACTIONS)),
            draw(st.integers(0, 5)),
            draw(st.sampled_from(KEYS)),
            draw(st.sampled_from(VALUES)),
        )
        for _ in range(draw(st.integers(1, 40)))
    ]


@dataclass
class Table:
    """A table of the catalog, and what is durable of it."""

    decoding: Decoding
    rows: Counter = field(default_factory=Counter)
    errors: Counter = field(default_factory=Counter)
    letters: Counter = field(default_factory=Counter)
    begun_in: int | None = None
    first: list = field(default_factory=lambda: [0, 0])
    """Of each partition with messages, the first offset that it may have read last."""

    def __post_init__(self):
        self.columns = source_columns(self.decoding, None)
        self.origin = self.first
        """The first offsets that it may have read first: whoever reads again adds no letters."""

    @property
    def has_letters(self):
        return self.decoding.on_error == "DEAD LETTER"

    def is_bad(self, message):
        if self.decoding.envelope == "UPSERT" and message.value is None:
            return False
        return _BAD in (_text(message.key), _text(message.value))


class FullDisk:
    """The envelope of a table that fails when it has taken messages, maybe a part of them."""

    def __init__(self, world, inner):
        self._world = world
        self._inner = inner

    def anew(self):
        return FullDisk(self._world, self._inner.anew())

    def take(self, messages):
        self._inner.take(messages)
        self._world.full -= 1
        if self._world.full == 0:
            raise user_error(
                "SLACKWATER_SOURCE_UNREACHABLE",
                objectName="s",
                upstream="the topic t",
                connectionName="k",
                reason="the disk is full",
            )

    def __getattr__(self, name):
        return getattr(self._inner, name)


@dataclass
class World:
    """A topic, the tables of its source, and the process that runs it."""

    read_size: int
    cluster: FakeCluster = field(default_factory=FakeCluster)
    tables: dict = field(default_factory=dict)
    begun: set = field(default_factory=set)
    frontier: object = None
    steps: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    now_ms: int = 0
    full: int = 0
    """The number of takes up to the one that fails."""
    made: int = 0
    retained: list = field(default_factory=lambda: [[0], [0]])
    """Of each partition with messages, where retention has got to, one after the other."""
    asked: list = field(default_factory=list)
    """What is to be read again: the request, the tables, and where retention was."""

    def __post_init__(self):
        self.ingestion = self.resumed()

    def create(self, kind):
        envelope, on_error = kind
        included = (Included("KEY", "key"),)
        text = Payload("TEXT")
        self.tables[f"t{self.made}"] = Table(
            Decoding(text, text, included, envelope, on_error=on_error),
            first=[each[-1] for each in self.retained],
        )
        self.made += 1

    def again(self, number):
        """Asks for some of the tables with keys."""
        named = [n for n, each in self.tables.items() if each.decoding.envelope == "UPSERT"]
        names = frozenset(named[: 1 + number % 2])
        if names:
            done = self.ingestion.resnapshot_tables(names)
            self.asked.append((done, names, [each[-1] for each in self.retained]))

    def expire(self, partition, number):
        """Retention removes messages that were read."""
        if partition < len(self.cluster.partitions) and self.frontier is not None:
            read = self.frontier.offset(partition) or 0
            self.cluster.retain_from(partition, min(read, self.retained[partition][-1] + number))
            self.retained[partition].append(self.cluster.partitions[partition].first)

    def committed(self, step):
        self.commit(step)
        self.ingestion.committed(step)
        for each in list(self.asked):
            done, names, first = each
            if done.done.is_set():
                self.asked.remove(each)
                for name in names & self.tables.keys():
                    self.tables[name].first = first

    def resumed(self):
        """The ingestion as a new process makes it of what is durable."""
        config = KafkaConfig("s", "t", TopicIdentity("cluster", "topic"), None)
        upstream = FakeUpstream(self.cluster, self.read_size)
        return KafkaIngestion(config, upstream, None, self.frontier, Provided(self))

    def poll(self):
        """The next step, through as many polls as it takes; None: there is none."""
        for _ in range(400):
            self.now_ms += CHECK_MS
            try:
                step = self.ingestion.poll(self.now_ms)
            except SlackwaterError as error:
                if error.condition != "SLACKWATER_SOURCE_UNREACHABLE":
                    raise
                return None
            if not isinstance(step, IngestionProgress):
                return step
        raise AssertionError("a copy does not become whole")

    def commit(self, step):
        if self.frontier is not None:
            assert self.frontier.not_after(step.frontier)
        self.steps.append(step.frontier)
        for name in step.statistics.begun:
            assert name not in self.begun
            if name in self.tables:
                self.tables[name].begun_in = len(self.steps) - 1
        self.begun |= set(step.statistics.begun)
        for name, updates in step.updates.items():
            table = self.tables.get(name.removesuffix(LETTERS))
            if table is None:
                continue  # it was dropped meanwhile
            assert name in self.begun
            into = table.letters if name.endswith(LETTERS) else table.rows
            for *row, diff in zip(*updates.to_pydict().values(), strict=True):
                into[tuple(row)] += diff
        for name, updates in step.errors.items():
            if name not in self.tables:
                continue
            for text, diff in zip(*updates.to_pydict().values(), strict=True):
                self.tables[name].errors[text] += diff
        for table in self.tables.values():
            for counts in (table.rows, table.errors):
                assert min(counts.values(), default=0) >= 0
            table.rows, table.errors = +table.rows, +table.errors
        self.frontier = step.frontier

    def check(self):
        """Each table has what a table from the begin on would have; before its begin nothing."""
        for name, table in self.tables.items():
            if name not in self.begun:
                assert not table.rows
                assert not table.errors
                assert not table.letters
                continue
            found = (table.rows, sum(table.errors.values()))
            assert any(found == self.expected(table, each) for each in self.firsts(table.first))
            assert (name + LETTERS in self.begun) == table.has_letters
            letters = Counter(letter[:2] for letter in table.letters.elements())
            assert any(letters == self.dead(table, each) for each in self.firsts(table.origin))

    def firsts(self, least):
        """The offsets from `least` on from which a table may have read the messages that it has."""
        return itertools.product(
            *(
                {each for each in places if each >= first}
                for first, places in zip(least, self.retained, strict=True)
            )
        )

    def before(self, first):
        """The messages from `first` to the frontier, with their partitions."""
        return [
            (partition, message)
            for partition, message in self.sent
            if first[partition] <= message.offset < (self.frontier.offset(partition) or 0)
        ]

    def dead(self, table, first):
        """The places of the messages from `first` to the frontier that are dead letters."""
        found = self.before(first) if table.has_letters else []
        return Counter((p, message.offset) for p, message in found if table.is_bad(message))

    def expected(self, table, first):
        """The rows, and the number of errors, of the messages from `first` to the frontier."""
        before = self.before(first)
        propagates = table.decoding.on_error == "PROPAGATE"
        if table.decoding.envelope == "NONE":
            rows = [(_text(m.key), _text(m.value)) for _, m in before]
            bad = [row for row in rows if _BAD in row]
            return Counter(r for r in rows if _BAD not in r), len(bad) if propagates else 0
        last = {}
        for _, message in before:
            is_bad = table.is_bad(message)
            if is_bad and not propagates:
                continue
            # Keys of these histories have one partition each.
            last[message.key] = (message, is_bad)
        good = Counter(
            (_text(key), _text(message.value))
            for key, (message, is_bad) in last.items()
            if message.value is not None and not is_bad
        )
        return good, sum(is_bad for _, is_bad in last.values())


@dataclass
class Provided:
    """The tables of a world, as the catalog has them."""

    world: World

    def __post_init__(self):
        self.begun = frozenset(self.world.begun)

    def names(self):
        return list(self.world.tables)

    def letters(self, name):
        return name + LETTERS if self.world.tables[name].has_letters else None

    def upstream(self, name):
        return FakeUpstream(self.world.cluster, self.world.read_size)

    def envelope(self, name):
        table = self.world.tables[name]
        decoder = Decoder(table.decoding, table.columns)
        reading = Reading("t", table.decoding, decoder, _stage)
        errors = [decode(text) for text in table.errors.elements()]
        if table.decoding.envelope == "NONE":
            return FullDisk(self.world, Appended(reading, errors[0] if errors else None))
        values = {key_of_error(error, decoder): error for error in errors}
        desc = table.columns.desc
        stored = desc.with_diffs((row, 1) for row in table.rows.elements())
        encoded = RowBytes(desc).encode(stored.drop_columns([DIFF_COLUMN]))
        for row, data in zip(table.rows.elements(), encoded, strict=True):
            values[row_key(row[:1])] = data
        return FullDisk(self.world, ByKey(reading, desc, RowsInMemory(values, 1 << 30, "s")))


def _stage(rows):
    raise AssertionError("so few rows stay in memory")


_BAD = object()


def _text(data):
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return _BAD


def run(world, history):
    for action, number, key, value in history:
        partitions = len(world.cluster.partitions)
        match action:
            case "send":
                partition = KEYS.index(key) % min(partitions, 2)
                _send(world, partition, key, value)
            case "mark":
                world.cluster.mark(number % partitions)
            case "partition":
                # Later ones have marks only: no key moves.
                if partitions > 1 or not world.sent:
                    world.cluster.partitions.append(Partition())
            case "fail":
                world.cluster.fails = number
            case "full":
                world.full = number
            case "create":
                world.create(KINDS[number % len(KINDS)])
            case "drop" if world.tables:
                del world.tables[sorted(world.tables)[number % len(world.tables)]]
            case "drop":
                continue
            case "again":
                world.again(number)
            case "expire":
                world.expire(KEYS.index(key) % 2, number)
            case _:
                step = world.poll()
                if action == "poll" and step is not None:
                    world.committed(step)
                elif action == "lose" and step is not None:
                    world.commit(step)
                if action in ("crash", "lose"):
                    world.ingestion = world.resumed()
                    world.asked.clear()
        world.check()


def _send(world, partition, key, value):
    world.cluster.send(partition, key, value)
    world.sent.append((partition, world.cluster.partitions[partition].messages[-1]))


@histories()
@given(actions(), st.integers(1, 4), st.integers(0, 2))
def test_tables_are_what_the_messages_before_the_frontier_are(history, size, tables):
    world = World(size)
    for number in range(tables):
        world.create(KINDS[3 - number])
    run(world, history)
    world.cluster.fails = world.full = 0
    for _ in range(3):
        step = world.poll()
        if step is not None:
            world.committed(step)
        world.check()
    assert not world.asked
    assert world.tables.keys() <= world.begun
    for partition, log in enumerate(world.cluster.partitions):
        assert (world.frontier.offset(partition) or 0) == log.end
