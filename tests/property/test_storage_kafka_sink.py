"""The KAFKA sink: whatever fails, a reader of committed messages sees each update exactly once."""

import json
from collections import Counter
from functools import partial
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.kafka.fake_producers import Cluster, Crash, Producer

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import user_id
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka import sink as kafka_sink
from slackwater.storage.kafka.sink import KafkaSink, Pending, Progress, SinkTopic, decoded
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import Encoder, KafkaSinkConfig, message_forms
from slackwater.storage.sink_folder import Claim

DESC = RelationDesc.of(k="long", v="string")
FORMATS = {"key_format": "JSON", "value_format": "JSON"}
KEYED = KafkaSinkConfig("t", envelope="UPSERT", key=("k",), **FORMATS)
UNKEYED = KafkaSinkConfig("t", envelope="DEBEZIUM", **FORMATS)
PAIRED = KafkaSinkConfig("t", envelope="DEBEZIUM", key=("k",), **FORMATS)
SCHEMA = SinkSchema(user_id(1))
AVRO = {"key_format": "AVRO", "value_format": "AVRO", "key_schema": SCHEMA, "value_schema": SCHEMA}
IN_AVRO = KafkaSinkConfig("t", envelope="UPSERT", key=("k",), **AVRO)
PAIRED_IN_AVRO = KafkaSinkConfig("t", envelope="DEBEZIUM", key=("k",), **AVRO)


@pytest.fixture(autouse=True, scope="module")
def _small_pieces():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_sink, "PIECE_MESSAGES", 3)
        patch.setattr(kafka_sink, "BATCH_MESSAGES", 2)
        yield


class Leadership:
    """The number of the leader."""

    def __init__(self):
        self.epoch = 0

    def claim(self, progress=None):
        """That of the next leader."""
        self.epoch += 1
        return Claim("u7", "the_sink", self.epoch, partial(self._confirm, self.epoch), progress)

    def _confirm(self, epoch):
        if epoch != self.epoch:
            raise Fenced(epoch, self.epoch)


def updates(rows):
    schema = DESC.update_schema()
    columns = list(zip(*rows, strict=True)) or [[]] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def encoder_of(config, claim):
    """The encoder of a sink that begins. The registry gives other ids to each leader, as one does
    that was restored."""
    return Encoder(config, DESC, "the_sink", SchemaIds(2 * claim.epoch, 2 * claim.epoch + 1))


def text_of(form, data):
    """The contents of a key or a value as JSON."""
    if data is None or form is None:
        return None if data is None else json.dumps(json.loads(data))
    schema = fastavro.parse_schema(json.loads(form.schema))
    return json.dumps(fastavro.schemaless_reader(BytesIO(data[5:]), schema, None))


def opened(cluster, claim=None, config=KEYED, **more):
    options = {"version": 0, "clock": lambda: 0, "is_stopped": lambda: False, "snapshot": True}
    options |= more
    version = options.pop("version")
    claim = Leadership().claim() if claim is None else claim
    return KafkaSink(
        encoder_of(config, claim),
        SinkTopic("t", "progress", version),
        claim,
        cluster.producer(),
        **options,
    )


def keyed_history(changes):
    """Updates by which each key has at most one row at each time, and the rows at each time."""
    rows, made, states = {}, [], {}
    for time in range(20):
        for k, v in changes.get(time, {}).items():
            if rows.get(k) == v:
                continue
            if k in rows:
                made.append((k, rows.pop(k), time, -1))
            if v is not None:
                rows[k] = v
                made.append((k, v, time, 1))
        states[time] = dict(rows)
    return made, states


CHANGES = st.dictionaries(
    st.integers(0, 19),
    st.dictionaries(st.integers(1, 4), st.sampled_from(["a", "b", None]), max_size=4),
    max_size=12,
)
FATES = st.sampled_from(["crash before", "crash after", "fail", "lose", "delay"])
CONFIGS = st.sampled_from([KEYED, UNKEYED, PAIRED, IN_AVRO, PAIRED_IN_AVRO])


def run(cluster, config, made, uppers, leader):
    """Opens the sink again and again, until everything is out."""
    recorded = None
    for attempt in range(200):
        try:
            sink = opened(cluster, leader.claim(recorded), config)
            while sink.frontier != Frontier(20):
                reached = sink.frontier
                lower = Frontier(0) if reached is None else reached
                wanted = uppers[attempt % len(uppers)] if attempt < 100 else 20
                upper = sink.end_of_range(Frontier(min(20, lower.value + wanted)))
                sink.write(lower, upper, [updates([u for u in made if u[2] < upper.value])])
                sink.flush()
                assert sink.frontier == upper
                recorded = upper
            return sink
        except (Crash, SlackwaterError):
            continue
    raise AssertionError("it does not get anywhere")


def expected(config, made):
    """The messages as a model has them: (key, value, time) and how often."""
    found = Counter()
    if config is UNKEYED:
        for k, v, time, diff in made:
            row = {"k": k, "v": v}
            before, after = (row, None) if diff < 0 else (None, row)
            found[(None, json.dumps({"before": before, "after": after}), time)] += 1
        return found
    at = {}
    for k, v, time, diff in made:
        at.setdefault((k, time), {})[diff] = {"k": k, "v": v}
    for (k, time), rows in at.items():
        value = rows.get(1)
        if config.envelope == "DEBEZIUM":
            value = {"before": rows.get(-1), "after": value}
        shown = None if value is None else json.dumps(value)
        found[(json.dumps({"k": k}), shown, time)] += 1
    return found


def seen(cluster, config):
    forms = message_forms(config, DESC)
    return Counter(
        (text_of(forms.key, k), text_of(forms.value, v), time) for k, v, time in cluster.messages
    )


@histories()
@given(
    CHANGES,
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 120), FATES, max_size=12),
    CONFIGS,
)
def test_each_update_is_committed_once_whatever_fails(changes, uppers, fates, config):
    made, _ = keyed_history(changes)
    calls = iter(range(10**6))

    def fate(call):
        # A commit is asked twice: whether it is delayed, and what becomes of it.
        found = fates.get(next(calls), "done")
        return found if (found == "delay") == (call == "delay") else "done"

    cluster = Cluster(fate)
    run(cluster, config, made, uppers, Leadership())
    assert seen(cluster, config) == expected(config, made)
    times = [time for _, _, time in cluster.messages]
    assert times == sorted(times)
    assert all(size <= 3 for size in cluster.transactions)


class Interrupted(Producer):
    """Lets `other` happen before its call number `at`."""

    def __init__(self, cluster, at, other):
        super().__init__(cluster)
        self.left, self.other = at, other

    def _do(self, call, act):
        self.left -= 1
        if self.left == -1:
            self.other()
        super()._do(call, act)


@histories()
@given(CHANGES, st.integers(1, 20), st.integers(0, 40), st.integers(1, 20), CONFIGS)
def test_a_leader_that_hangs_writes_nothing_beside_the_next_one(
    changes, first, hangs_at, second, config
):
    """The next one begins, and writes, while the first one is about to do anything."""
    made, _ = keyed_history(changes)
    cluster, leader = Cluster(), Leadership()
    hung = leader.claim()

    def next_leader():
        run(cluster, config, made, [second], leader)

    producer = Interrupted(cluster, hangs_at, next_leader)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "producer", lambda: producer)
        try:
            sink = None
            lower = 0
            encoder = encoder_of(config, hung)
            sink = KafkaSink(
                encoder, SinkTopic("t", "progress"), hung, producer,
                snapshot=True, clock=lambda: 0, is_stopped=lambda: False,
            )  # fmt: skip
            patch.undo()
            while lower < 20:
                upper = min(20, lower + first)
                sink.write(Frontier(lower), Frontier(upper), [updates(made)])
                sink.flush()
                lower = upper
        except Fenced:
            assert leader.epoch > 1
        patch.undo()
    run(cluster, config, made, [second], leader)
    assert seen(cluster, config) == expected(config, made)


def test_a_range_goes_on_where_it_was_left():
    cluster, leader = Cluster(), Leadership()
    rows = updates([(k, "a", 1, 1) for k in range(8)])
    stops = iter([False, True])
    sink = opened(cluster, leader.claim(), is_stopped=lambda: next(stops))
    sink.write(Frontier(0), Frontier(5), [rows])
    assert sink.is_in_range
    assert sink.frontier is None
    assert [k for k, _, _ in cluster.messages] == [b'{"k":%d}' % k for k in range(6)]
    last = decoded(cluster.records[-1])
    assert last == Progress(None, Pending(Frontier(0), Frontier(5), 6), 0, 1)
    assert sink.statistics.transactions_committed == 2
    sink.flush()
    assert len(cluster.records) == 2
    sink = opened(cluster, leader.claim())
    assert sink.end_of_range(Frontier(9)) == Frontier(5)
    with pytest.raises(FatalError, match="was begun to"):
        sink.write(Frontier(0), Frontier(9), [rows])
    sink.write(Frontier(0), Frontier(5), [rows])
    assert [k for k, _, _ in cluster.messages] == [b'{"k":%d}' % k for k in range(8)]
    assert cluster.transactions == [3, 3, 2]
    assert sink.statistics.messages_committed == sink.statistics.messages_staged == 2
    assert sink.frontier == Frontier(5)
    assert sink.end_of_range(Frontier(9)) == Frontier(9)


def test_a_transaction_ends_when_it_takes_long():
    now = iter(range(0, 10**9, 7_000))
    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka_sink, "PIECE_MESSAGES", 100)
        sink = opened(cluster, clock=lambda: next(now))
        sink.write(Frontier(0), Frontier(2), [updates([(k, "a", 1, 1) for k in range(9)])])
    assert cluster.transactions == [4, 4, 1]


def test_a_silent_relation_is_told_of_more_and_more_seldom():
    now = [0]
    cluster = Cluster()
    sink = opened(cluster, clock=lambda: now[0])
    sink.write(Frontier(0), Frontier(1), [])
    assert len(cluster.records) == 1
    for upper in range(2, 62):
        now[0] += 1_000
        sink.write(Frontier(upper - 1), Frontier(upper), [])
        sink.tell()
    told = [decoded(each).frontier.value for each in cluster.records]
    assert told == [1, 2, 4, 8, 16, 31, 46, 61]


@pytest.mark.parametrize(
    ("record", "version", "reason"),
    [
        (None, 0, "it says nothing, and all before 10 is out"),
        (b"{}", 0, "its record is none of a sink"),
        (Progress(Frontier(9), None, 0, 0).encoded(), 0, "it knows of 9, and all before 10"),
        (Progress(Frontier(10), None, 1, 0).encoded(), 0, "another copy of the environment"),
        (Progress(Frontier(10), None, 0, 5).encoded(), 0, "another copy of the environment"),
        (
            Progress(Frontier(10), Pending(Frontier(10), Frontier(12), 1), 0, 0).encoded(),
            1,
            "the relation before",
        ),
    ],
)
def test_what_does_not_say_where_to_go_on_is_refused(record, version, reason):
    cluster = Cluster(records=[] if record is None else [record])
    with pytest.raises(SlackwaterError, match=f"SLACKWATER_SINK_PROGRESS_LOST.*{reason}"):
        opened(cluster, Leadership().claim(Frontier(10)), version=version)
    assert not cluster.messages


def test_a_later_record_fences_a_leader_that_does_not_lead_any_more():
    leader = Leadership()
    old = leader.claim()
    run(cluster := Cluster(), KEYED, [], [20], leader)
    with pytest.raises(Fenced):
        opened(cluster, old)


def test_a_gap_is_refused():
    cluster = Cluster()
    sink = opened(cluster)
    sink.write(Frontier(0), Frontier(5), [])
    with pytest.raises(FatalError, match="leaves a gap"):
        sink.write(Frontier(6), Frontier(7), [])


def test_without_the_snapshot_only_what_comes_later_is_sent():
    cluster = Cluster()
    sink = opened(cluster, snapshot=False)
    sink.write(Frontier(3), Frontier(6), [updates([(1, "a", 2, 1), (2, "b", 5, 1)])])
    assert [(k, time) for k, _, time in cluster.messages] == [(b'{"k":2}', 5)]


def test_several_rows_of_a_key_send_nothing():
    cluster = Cluster()
    sink = opened(cluster)
    rows = updates([(1, "a", 2, 1), (1, "b", 2, 1), (2, "b", 1, 1)])
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_KEY.*k = 1 at 2"):
        sink.write(Frontier(0), Frontier(5), [rows])
    assert not cluster.messages
    assert not cluster.records


class Counting(Producer):
    """Notes what the sink counts of its first range whenever messages are handed over."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.sink, self.seen = None, []

    def send(self, messages):
        super().send(messages)
        found = self.sink.statistics
        self.seen.append((found.snapshot_records_staged, found.snapshot_records_known))


def test_the_first_range_is_counted_while_it_is_sent():
    """Batches have two messages here and transactions three, after one of which it is stopped."""
    rows = updates([(n, "a", 0, 1) for n in range(6)] + [(1, "a", 4, -1), (9, "b", 4, 1)])
    cluster, leader = Cluster(), Leadership()

    def run(**more):
        cluster.producer = lambda: producer
        producer = Counting(cluster)
        producer.sink = sink = opened(cluster, leader.claim(), **more)
        sink.write(Frontier(0), Frontier(5), [rows])
        return sink, producer.seen

    sink, seen = run(is_stopped=lambda: True)
    assert seen == [(0, 8), (2, 8)]
    assert sink.statistics.snapshot_records_staged == 3
    sink, seen = run()
    assert seen == [(3, 8), (5, 8), (6, 8)]
    sink.write(Frontier(5), Frontier(9), [updates([(2, "a", 6, -1)])])
    found = sink.statistics
    assert (found.snapshot_records_staged, found.snapshot_records_known) == (8, 8)
    assert opened(cluster, leader.claim()).statistics.snapshot_records_known is None
    later = opened(Cluster(), snapshot=False)
    later.write(Frontier(0), Frontier(5), [rows])
    assert later.statistics.snapshot_records_known is None
    assert later.statistics.messages_committed == 2
