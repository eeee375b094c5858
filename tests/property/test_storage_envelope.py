"""Envelopes against their definition."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.dataflow_error import (
    DecodeError,
    KeyDecodeError,
    NullKeyError,
    ValueDecodeError,
)
from slackwater.repr.errors import FatalError
from slackwater.storage.envelope import (
    NULL_KEY,
    Message,
    appended,
    restored,
    row_key,
    unread_key,
    upserted,
)
from slackwater.storage.source_time import Position

BAD = DecodeError("f.csv, line 3", "not a number")
KEYS = [
    (row_key([1]), [("a", 1), ("b", 1), ValueDecodeError(BAD, "1")]),
    (row_key([2]), [("a", 2), ("b", 2)]),
    (unread_key(b"x"), [KeyDecodeError(b"x", BAD)]),
    (NULL_KEY, [NullKeyError("f.csv, line 4")]),
]


@st.composite
def messages_of_a_source(draw, partitions=3):
    """Messages in the order of the source: in a partition, offsets rise and times do not fall."""
    time, found, offsets = 0, [], [0] * partitions
    for _ in range(draw(st.integers(0, 14))):
        time += draw(st.integers(0, 2))
        key, values = draw(st.sampled_from(KEYS))
        value = draw(st.sampled_from([None, *values]))
        partition = draw(st.integers(0, partitions - 1))
        sent_ms = draw(st.integers(0, 3))
        found.append(Message(key, time, Position(partition, offsets[partition]), value, sent_ms))
        offsets[partition] += 1
    return found


def winner(messages):
    """Of messages for one key: those of the last time, of each partition the last of these, and of
    them the one that was sent last."""
    latest = max(message.time for message in messages)
    ends = {}
    for message in sorted(messages, key=lambda m: m.position):
        if message.time == latest:
            ends[message.position.partition] = message
    return max(ends.values(), key=lambda m: (m.sent_ms, m.position.partition))


def expected(messages, time):
    """What each key has after what has come up to `time`."""
    by_key = {}
    for message in messages:
        if message.time <= time:
            by_key.setdefault(message.key, []).append(message)
    last = {key: winner(found).value for key, found in by_key.items()}
    return {key: value for key, value in last.items() if value is not None}


def contents(updates, time):
    held = {}
    for update in updates:
        if update.time <= time:
            held[update.value] = held.get(update.value, 0) + update.diff
    return {value: count for value, count in held.items() if count}


def check(messages, updates):
    for time in {m.time for m in messages}:
        wanted = expected(messages, time)
        assert contents(updates, time) == dict.fromkeys(wanted.values(), 1)


@histories()
@given(messages_of_a_source(), st.randoms())
def test_i54_upsert_is_the_last_writer_at_each_time(messages, random):
    shuffled = list(messages)
    random.shuffle(shuffled)
    result = upserted({}, shuffled)
    check(messages, result.updates)
    assert [u.time for u in result.updates] == sorted(u.time for u in result.updates)
    assert {k: v for k, v in result.values.items() if v is not None} == expected(messages, 99)


@histories()
@given(messages_of_a_source(), st.integers(0, 30))
def test_i54_in_pieces_is_the_same_as_at_once(messages, cut):
    """Pieces end between two times, as steps of an ingestion do."""
    whole = upserted({}, messages)
    first = upserted({}, [m for m in messages if m.time < cut])
    had = {key: value for key, value in first.values.items() if value is not None}
    second = upserted(had, [m for m in messages if m.time >= cut])
    assert (*first.updates, *second.updates) == whole.updates
    assert {**first.values, **second.values} == whole.values


@histories()
@given(messages_of_a_source(), st.integers(0, 30))
def test_i54_state_is_restored_from_the_output_after_a_restart(messages, resume):
    """Before the resume upper everything is durable; from there on everything comes again."""
    whole = upserted({}, messages)
    durable = [u for u in whole.updates if u.time < resume]
    keys = {value: key for key, values in KEYS for value in values}
    before = restored((keys[u.value], u.value, u.diff) for u in durable)
    later = upserted(before, [m for m in messages if m.time >= resume])
    check(messages, (*durable, *later.updates))


def test_a_key_that_moves_to_another_partition_keeps_its_newest_message():
    """Partitions were added: the key's messages come from a partition with a larger number, or with
    a smaller one, and with offsets that have nothing to do with those before."""
    key = row_key(["a"])
    old = Message(key, 1, Position(1, 70), ("old",), 5)
    for place, sent_ms in ((Position(2, 0), 6), (Position(0, 3), 6), (Position(0, 3), 4)):
        moved = Message(key, 2, place, ("new",), sent_ms)
        assert upserted({}, [old, moved]).values == {key: ("new",)}
        step = upserted({}, [replace(old, time=2), replace(moved, time=2)])
        assert step.values == {key: ("new",) if sent_ms > 5 else ("old",)}


@histories()
@given(messages_of_a_source())
def test_none_keeps_every_message(messages):
    updates = appended(messages)
    assert [u.value for u in updates] == [m.value for m in messages if m.value is not None]
    assert {u.diff for u in updates} <= {1}


def test_keys_are_equal_as_sql_groups_them():
    payload = struct.unpack(">d", b"\x7f\xf8" + bytes(5) + b"\1")[0]
    for zero, number in ((-0.0, float("nan")), (0.0, -float("nan")), (0.0, payload)):
        assert row_key([zero, number]) == row_key([0.0, float("nan")])
        assert row_key([[{"a": zero}, number]]) == row_key([[{"a": 0.0}, float("nan")]])
    assert len({row_key([1]), row_key(["1"]), row_key([None]), unread_key(b"1"), NULL_KEY}) == 5
    long = [row_key(["x" * count]) for count in range(100)]
    assert len(set(long)) == 100
    assert max(map(len, long)) == len(NULL_KEY)


def test_a_collection_that_is_no_upsert_collection_is_refused():
    with pytest.raises(FatalError):
        restored([(b"k", ("a",), 1), (b"k", ("b",), 1)])
    with pytest.raises(FatalError):
        restored([(b"k", ("a",), 2)])
    assert restored([(b"k", ("a",), 1), (b"k", ("a",), -1)]) == {}
