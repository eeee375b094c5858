"""Envelopes against their definition."""

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
def messages_of_a_source(draw):
    """Messages in the order of the source: positions are unique, times do not fall."""
    time, found = 0, []
    for offset in range(draw(st.integers(0, 14))):
        time += draw(st.integers(0, 2))
        key, values = draw(st.sampled_from(KEYS))
        value = draw(st.sampled_from([None, *values]))
        found.append(Message(key, time, Position(0, offset), value))
    return found


def expected(messages, time):
    """Last writer by position, of what has come up to `time`."""
    last = {}
    for message in sorted(messages, key=lambda m: m.position):
        if message.time <= time:
            last[message.key] = message.value
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
    assert {k: s.value for k, s in result.slots.items() if s.value is not None} == expected(
        messages, 99
    )


@histories()
@given(messages_of_a_source(), st.integers(0, 14), st.integers(0, 14))
def test_i54_in_pieces_and_again_is_the_same_as_at_once(messages, cut, again):
    """Pieces end anywhere, also within a time; what was seen before is seen again."""
    whole = upserted({}, messages)
    first = upserted({}, messages[:cut])
    repeated = upserted(first.slots, messages[max(0, cut - again) : cut])
    assert repeated.updates == ()
    second = upserted(first.slots, messages[max(0, cut - again) :])
    for time in {m.time for m in messages}:
        assert contents((*first.updates, *second.updates), time) == contents(whole.updates, time)
    assert {**first.slots, **second.slots} == whole.slots


@histories()
@given(messages_of_a_source(), st.integers(0, 30))
def test_i54_state_is_restored_from_the_output_after_a_restart(messages, resume):
    """Before the resume upper everything is durable; from there on everything comes again."""
    whole = upserted({}, messages)
    durable = [u for u in whole.updates if u.time < resume]
    keys = {value: key for key, values in KEYS for value in values}
    slots = restored((keys[u.value], u.value, u.diff) for u in durable)
    later = upserted(slots, [m for m in messages if m.time >= resume])
    check(messages, (*durable, *later.updates))


def test_a_delete_leaves_a_tombstone_that_older_messages_do_not_pass():
    key = row_key(["a"])
    gone = upserted({}, [Message(key, 1, Position(0, 5), None)])
    assert gone.updates == ()
    late = upserted(gone.slots, [Message(key, 2, Position(0, 4), ("late",))])
    assert (late.updates, late.slots) == ((), {})


@histories()
@given(messages_of_a_source())
def test_none_keeps_every_message(messages):
    updates = appended(messages)
    assert [u.value for u in updates] == [m.value for m in messages if m.value is not None]
    assert {u.diff for u in updates} <= {1}


def test_keys_are_equal_as_sql_groups_them():
    assert row_key([0.0, float("nan")]) == row_key([-0.0, float("nan")])
    assert len({row_key([1]), row_key(["1"]), row_key([None]), unread_key(b"1"), NULL_KEY}) == 5


def test_a_collection_that_is_no_upsert_collection_is_refused():
    with pytest.raises(FatalError):
        restored([(b"k", ("a",), 1), (b"k", ("b",), 1)])
    with pytest.raises(FatalError):
        restored([(b"k", ("a",), 2)])
    assert restored([(b"k", ("a",), 1), (b"k", ("a",), -1)]) == {}
