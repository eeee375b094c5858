"""A source that reads a topic, against its definition, whatever the topic, the network and the
process do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.kafka.fake_topic import FakeCluster, FakeUpstream, Partition

from slackwater.planner.parser.kafka_source import Decoding, Included, Payload
from slackwater.repr.dataflow_error import decode
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import DIFF_COLUMN, RelationDesc
from slackwater.storage.envelope import row_key
from slackwater.storage.ingestion import IngestionProgress, IngestionStep
from slackwater.storage.kafka.columns import source_columns
from slackwater.storage.kafka.decoding import Decoder
from slackwater.storage.kafka.envelopes import Appended, ByKey, Reading, key_of_error
from slackwater.storage.kafka.ingestion import CHECK_MS, KafkaConfig, KafkaIngestion, Resnapshot
from slackwater.storage.kafka.topic import TopicIdentity
from slackwater.storage.keyed_rows import RowsInMemory
from slackwater.storage.row_bytes import RowBytes

KEYS = [b"a", b"b", b"c", None, b"\xff"]
VALUES = [b"1", b"22", b"x\xff", None]
ACTIONS = [
    "send",
    "send",
    "send",
    "mark",
    "partition",
    "retain",
    "fail",
    "poll",
    "poll",
    "crash",
    "lose",
    "skip",
    "anew",
    "replace",
]


@st.composite
def actions(draw):
    """What happens: each with what it needs, which only some look at."""
    return [
        (
            draw(st.sampled_from(ACTIONS)),
            draw(st.integers(0, 5)),
            draw(st.sampled_from(KEYS)),
            draw(st.sampled_from(VALUES)),
            draw(st.integers(0, 3)),
        )
        for _ in range(draw(st.integers(1, 40)))
    ]


@dataclass
class World:
    """A topic, the durable state of the source that reads it, and the process that runs it."""

    decoding: Decoding
    read_size: int
    cluster: FakeCluster = field(default_factory=FakeCluster)
    rows: Counter = field(default_factory=Counter)
    errors: Counter = field(default_factory=Counter)
    letters: Counter = field(default_factory=Counter)
    dead: int = 0
    """The dead letters that steps have counted."""
    frontier: object = None
    sent: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    skipped: set = field(default_factory=set)
    now_ms: int = 0
    pause_ms: int = CHECK_MS
    said: str | None = None
    wanted: Resnapshot | None = None
    replaced: bool = False

    def __post_init__(self):
        self.columns = source_columns(self.decoding, None)
        self.ingestion = self.resumed()

    def resumed(self):
        """The ingestion as a new process makes it of what is durable."""
        self.wanted = None
        reading = Reading("t", self.decoding, Decoder(self.decoding, self.columns), self._stage)
        errors = [decode(text) for text in self.errors.elements()]
        if self.decoding.envelope == "NONE":
            envelope = Appended(reading, errors[0] if errors else None)
        else:
            values = {key_of_error(error, reading.decoder): error for error in errors}
            desc = self.columns.desc
            table = desc.with_diffs((row, 1) for row in self.rows.elements())
            encoded = RowBytes(desc).encode(table.drop_columns([DIFF_COLUMN]))
            for row, data in zip(self.rows.elements(), encoded, strict=True):
                values[row_key(row[:1])] = data
            envelope = ByKey(reading, desc, RowsInMemory(values, 1 << 30, "s"))
        identity = TopicIdentity("cluster", "topic")
        config = KafkaConfig("s", "t", identity, "s", "s_dead_letters")
        return KafkaIngestion(
            config, FakeUpstream(self.cluster, self.read_size), envelope, self.frontier
        )

    @staticmethod
    def _stage(rows):
        raise AssertionError("so few rows stay in memory")

    def poll(self):
        """The next step, through as many polls as it takes; None: there is none."""
        for _ in range(200):
            self.now_ms += self.pause_ms
            try:
                step = self.ingestion.poll(self.now_ms)
            except SlackwaterError as error:
                if error.condition not in _MAY_PASS:
                    raise
                self.said = error.condition
                return None
            if not isinstance(step, IngestionProgress):
                return step
        raise AssertionError("the snapshot does not become whole")

    def acknowledge(self, step):
        self.ingestion.committed(step)
        assert self.wanted is None or self.wanted.done.is_set()
        self.wanted = None

    def read_again(self):
        """All messages that the topic has belong to the next step, and no other does."""
        self.skipped = {(p, m.offset) for p, m in self.sent if not self._is_there(p, m)}
        self.steps = []

    def _is_there(self, partition, message):
        return message.offset >= self.cluster.partitions[partition].first

    def commit(self, step: IngestionStep):
        assert not self.replaced, "nothing of another topic is ever committed"
        if self.wanted is not None:
            self.read_again()
        for export, into in (("s", self.rows), ("s_dead_letters", self.letters)):
            if export in step.updates:
                for *row, diff in zip(*step.updates[export].to_pydict().values(), strict=True):
                    into[tuple(row)] += diff
        self.dead += step.statistics.dead_letters
        for text, diff in zip(*step.errors.get("s", _NONE).to_pydict().values(), strict=True):
            self.errors[text] += diff
        for counts in (self.rows, self.errors, self.letters):
            assert min(counts.values(), default=0) >= 0
        self.rows, self.errors = +self.rows, +self.errors
        if self.frontier is not None:
            assert self.frontier.not_after(step.frontier)
        self.frontier = step.frontier
        self.steps.append(step.frontier)

    def step_of(self, partition, offset):
        """The number of the step that brought a message; None: none did."""
        for number, frontier in enumerate(self.steps):
            if (frontier.offset(partition) or 0) > offset:
                return number
        return None

    def brought(self):
        """The messages that steps have brought, in the order of the topic."""
        for partition, message in self.sent:
            number = self.step_of(partition, message.offset)
            if number is not None and (partition, message.offset) not in self.skipped:
                yield number, partition, message

    def check(self):
        if self.decoding.envelope == "NONE":
            self._check_appended()
        else:
            self._check_upserted()

    def _check_appended(self):
        good, bad = Counter(), 0
        for _, _, message in self.brought():
            text = _text(message.value)
            if text is _BAD or _text(message.key) is _BAD:
                bad += 1
            else:
                good[_text(message.key), text] += 1
        assert self.rows == good
        kept = self.errors if self.decoding.on_error == "PROPAGATE" else self.letters
        assert sum(kept.values()) == (0 if self.decoding.on_error == "SKIP" else bad)

    def _check_upserted(self):
        """Each key has what its last message says that is no bad one, or its error."""
        propagates = self.decoding.on_error == "PROPAGATE"
        last = {}
        for number, partition, message in self.brought():
            bad = message.value is not None and (
                message.key is None or _BAD in (_text(message.key), _text(message.value))
            )
            if bad and not propagates:
                continue
            known = last.get((message.key, partition))
            if known is None or known[0:2] <= (number, message.offset):
                last[message.key, partition] = (number, message.offset, message, bad)
        by_key = {}
        for (key, partition), (number, _, message, bad) in last.items():
            rank = (number, message.sent_ms, partition)
            if key not in by_key or by_key[key][0] < rank:
                by_key[key] = (rank, message, bad)
        good = Counter(
            (_text(key), _text(message.value))
            for key, (_, message, bad) in by_key.items()
            if message.value is not None and not bad
        )
        assert self.rows == good
        errors = [key for key, (_, message, bad) in by_key.items() if bad]
        assert sum(self.errors.values()) == len(errors)
        if self.decoding.on_error == "DEAD LETTER":
            self._check_letters()

    def _check_letters(self):
        """Each message that is no row is a dead letter once, however often it was read."""
        assert set(self.letters.values()) <= {1}
        assert self.dead == len(self.letters)
        brought = {
            (partition, message.offset)
            for _, partition, message in self.brought()
            if message.value is not None
            and (message.key is None or _BAD in (_text(message.key), _text(message.value)))
        }
        assert brought <= {letter[:2] for letter in self.letters}


_BAD = object()
_MAY_PASS = (
    "SLACKWATER_SOURCE_UNREACHABLE",
    "SLACKWATER_SOURCE_HISTORY_LOST",
    "SLACKWATER_SOURCE_REPLACED",
)


def _text(data):
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return _BAD


_NONE = source_columns(Decoding(Payload("TEXT")), None).desc.with_diffs([])


def run(world, history):
    for action, number, key, value, sent_ms in history:
        partition = number % len(world.cluster.partitions)
        log = world.cluster.partitions[partition]
        match action:
            case "send":
                world.cluster.send(partition, key, value, sent_ms)
                if not world.replaced:
                    world.sent.append((partition, log.messages[-1]))
            case "mark":
                world.cluster.mark(partition)
            case "partition":
                world.cluster.partitions.append(Partition())
            case "retain":
                world.cluster.retain_from(partition, log.end - number)
                if not world.replaced:
                    _note_lost(world, partition)
            case "fail":
                world.cluster.fails = number
            case "replace" if number == 5:
                world.replaced = True
                world.cluster.identity = TopicIdentity("cluster", "another")
                world.cluster.partitions = [Partition() for _ in world.cluster.partitions]
                for partition in range(len(world.cluster.partitions)):
                    for _ in range(10):
                        world.cluster.send(partition, key, value)
            case "replace":
                continue
            case "anew" if world.decoding.is_by_key and world.frontier is not None:
                world.wanted = world.ingestion.resnapshot()
            case "anew":
                continue
            case "skip":
                world.ingestion.skip_lost()
            case _:
                # Most polls are sooner than the topic is looked at again by itself.
                world.pause_ms = CHECK_MS if number == 0 else 1
                step = world.poll()
                if action == "poll" and step is not None:
                    world.commit(step)
                    world.acknowledge(step)
                elif action == "lose" and step is not None:
                    world.commit(step)
                if action in ("crash", "lose"):
                    world.ingestion = world.resumed()
        assert world.replaced or world.said != "SLACKWATER_SOURCE_REPLACED"
        world.check()


def _note_lost(world, partition):
    """Messages that went before a step brought them are in no step."""
    first = world.cluster.partitions[partition].first
    for place, message in world.sent:
        gone = place == partition and message.offset < first
        if gone and world.step_of(partition, message.offset) is None:
            world.skipped.add((partition, message.offset))


def settle(world):
    """Lets everything come that can."""
    world.cluster.fails, world.pause_ms = 0, CHECK_MS
    for _ in range(2 * len(world.cluster.partitions) + 2):
        step = world.poll()
        if step is None:
            world.ingestion.skip_lost()
        else:
            world.commit(step)
            world.acknowledge(step)
    world.check()
    for partition, log in enumerate(world.cluster.partitions):
        assert (world.frontier.offset(partition) or 0) == log.end
        assert world.cluster.told.get(partition, 0) <= log.end


@histories()
@given(
    actions(),
    st.sampled_from(["NONE", "UPSERT"]),
    st.sampled_from(["PROPAGATE", "SKIP", "DEAD LETTER"]),
    st.integers(1, 4),
)
def test_a_topic_is_what_its_messages_before_the_frontier_are(history, envelope, on_error, size):
    decoding = Decoding(
        Payload("TEXT"),
        Payload("TEXT"),
        (Included("KEY", "key"),),
        envelope,
        on_error=on_error,
    )
    world = World(decoding, size)
    run(world, history)
    if not world.replaced:
        settle(world)


CHANGES = {
    "create": b'{"op": "c", "after": {"n": 1}}',
    "update": b'{"op": "u", "before": {"n": 1}, "after": {"n": 2}}',
    "read": b'{"schema": {}, "payload": {"op": "r", "after": {"n": 3}}}',
    "sink": b'{"before": null, "after": {"n": 4}}',
    "delete": b'{"op": "d", "before": {"n": 2}, "after": null}',
    "truncate": b'{"op": "t", "after": null}',
    "bad": b'{"op": "c", "after": {"n": "x"}}',
    "none": b'{"n": 1}',
    "tombstone": None,
}
ROWS = {"create": 1, "update": 2, "read": 3, "sink": 4}
DEBEZIUM_KEYS = [b"a", b"b", b"c", None, b"\xff"]
TABLE = RelationDesc.from_json(
    '{"type": "struct", "fields": ['
    '{"name": "n", "type": "integer", "nullable": false, "metadata": {}}]}'
)


@dataclass
class DebeziumWorld(World):
    """A topic of Debezium, whose messages are named."""

    def __post_init__(self):
        self.columns = source_columns(self.decoding, TABLE)
        self.ingestion = self.resumed()

    def _check_upserted(self):
        """Of each key the last message that says something, or empties the table, is what counts:
        within a partition by offsets, of a step's partitions by time, of steps the last."""
        propagates = self.decoding.on_error == "PROPAGATE"
        names = {value: name for name, value in CHANGES.items()}
        told = []
        for number, partition, message in self.brought():
            name = names[message.value]
            is_bad = (message.key is None and name not in ("truncate", "tombstone")) or (
                _text(message.key) is _BAD and name != "tombstone"
            )
            if name in ("bad", "none"):
                is_bad = True
            if is_bad and not propagates:
                continue
            if message.key is None and name == "tombstone":
                continue
            told.append((number, partition, message, "bad" if is_bad else name))
        keys = {message.key for _, _, message, name in told if name != "truncate"}
        rows, errors = Counter(), 0
        for key in keys:
            last = {}
            for number, partition, message, name in told:
                if name == "truncate" or message.key == key:
                    known = last.get(partition)
                    if known is None or known[:2] <= (number, message.offset):
                        last[partition] = (number, message.offset, message, name)
            _, name = max(
                ((number, message.sent_ms, partition), name)
                for partition, (number, _, message, name) in last.items()
            )
            errors += name == "bad"
            if name in ROWS:
                rows[_text(key), ROWS[name]] += 1
        assert self.rows == rows
        assert sum(self.errors.values()) == errors


@st.composite
def changes(draw):
    """A history whose messages are changes; those that empty a table have no key."""
    found = []
    for action, number, _, _, sent_ms in draw(actions()):
        name = draw(st.sampled_from(sorted(CHANGES)))
        key = None if name == "truncate" else draw(st.sampled_from(DEBEZIUM_KEYS))
        found.append((action, number, key, CHANGES[name], sent_ms))
    return found


@histories()
@given(changes(), st.sampled_from(["PROPAGATE", "SKIP", "DEAD LETTER"]), st.integers(1, 4))
def test_a_topic_of_debezium_is_the_table_that_its_changes_make(history, on_error, size):
    decoding = Decoding(
        Payload("JSON"),
        Payload("TEXT"),
        (Included("KEY", "key"),),
        "DEBEZIUM",
        on_error=on_error,
    )
    world = DebeziumWorld(decoding, size)
    run(world, history)
    if not world.replaced:
        settle(world)
