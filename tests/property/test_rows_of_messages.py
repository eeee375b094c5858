"""Changes of rows that are read together, against each of them read by itself."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.fake_postgres import UNSENT, delete, insert, update

from slackwater.storage.postgres.row_changes import changed_relation, row_changes

OID = 16_384
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.sampled_from(["", "NULL", "\0", "N", "ü" * 300]),
)
values = st.one_of(texts, texts, st.none(), st.just(UNSENT))


def plain(message, places):
    """The kind of a change, its new row and its old one, and whether that is whole."""
    kind, first = message[:1], message[5:6]
    (oid,) = struct.unpack_from(">I", message, 1)
    assert oid == OID
    if kind not in (b"I", b"U", b"D") or first not in {b"I": b"N", b"D": b"KO"}.get(kind, b"NKO"):
        raise ValueError("it is of an unknown kind")
    found, at = row(message, 6)
    new, old = (found, None) if first == b"N" else (None, found)
    if kind == b"U" and old is not None:
        if message[at : at + 1] != b"N":
            raise ValueError("there is no new row")
        new, _ = row(message, at + 1)
        kind = b"R"
    own = [
        None if each is None else [None if place is None else each[place] for place in places]
        for each in (new, old)
    ]
    return kind, *own, first == b"O" or kind == b"I"


def row(message, at):
    """The values of a tuple, and where it ends."""
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    found = []
    for _ in range(count):
        kind, at = message[at : at + 1], at + 1
        if kind == b"t":
            (size,) = struct.unpack_from(">I", message, at)
            at += 4
            if at + size > len(message):
                raise ValueError("it ends within a value")
            found.append(message[at : at + size].decode())
            at += size
        elif kind in (b"n", b"u"):
            found.append(None if kind == b"n" else UNSENT)
        else:
            raise ValueError("a value is of an unknown kind")
    return found, at


def together(messages, places):
    """The same as `plain` says of each message, of messages that are read together."""
    changes = row_changes(messages, places)
    new, old = iter(rows(changes.new)), iter(rows(changes.old))
    found = [
        (
            bytes([kind]),
            None if kind == b"D"[0] else next(new),
            next(old) if kind in b"RD" else None,
        )
        for kind in changes.kinds
    ]
    assert next(new, None) is next(old, None) is None
    return found, changes.has_all


def rows(tuples):
    columns = [column.to_pylist() for column in tuples.columns]
    count = len(tuples.columns[0])
    found = [[column[number] for column in columns] for number in range(count)]
    for number, unsent in tuples.unsent.items():
        for place in unsent:
            assert found[number][place] is None
            found[number][place] = UNSENT
    for place in range(len(columns)):
        assert tuples.nulls(place) == sum(each[place] is None for each in found)
    return found


@st.composite
def relations(draw):
    """Messages about rows of a relation, and where a collection has its columns from."""
    width = draw(st.integers(1, 4))
    row = st.lists(values, min_size=width, max_size=width)
    change = st.one_of(
        st.builds(insert, st.just(OID), row),
        st.builds(update, st.just(OID), row),
        st.builds(update, st.just(OID), row, row, st.sampled_from("KO")),
        st.builds(delete, st.just(OID), row, st.sampled_from("KO")),
    )
    place = st.one_of(st.integers(0, width - 1), st.none())
    return draw(st.lists(change, min_size=1, max_size=12)), draw(st.lists(place, min_size=1))


@histories()
@given(relations())
def test_changes_that_are_read_together_are_what_each_of_them_says(given_):
    messages, places = given_
    expected = [plain(message, places) for message in messages]
    found, has_all = together(messages, places)
    assert found == [(kind, new, old) for kind, new, old, _ in expected]
    assert has_all == all(is_whole for *_, is_whole in expected)
    assert {changed_relation(message) for message in messages} == {OID}


@histories()
@given(relations(), st.data())
def test_a_message_that_is_damaged_is_refused_or_says_what_it_says_by_itself(given_, data):
    messages, _ = given_
    before, damaged = messages[:-1], bytearray(messages[-1])
    at = data.draw(st.integers(5, len(damaged) - 1))
    if data.draw(st.booleans()):
        damaged = damaged[:at]
    else:
        damaged[at] = data.draw(st.sampled_from([*b"tnuNKO\0\1\xff"]))
    (width,) = struct.unpack_from(">H", messages[-1], 6)
    places = list(range(width))
    try:
        expected = [plain(bytes(message), places)[:3] for message in (*before, damaged)]
    except (ValueError, IndexError, struct.error):
        with pytest.raises(ValueError, match=r"early|unknown kind|values|UTF8"):
            together([*before, bytes(damaged)], places)
        return
    try:
        found, _ = together([*before, bytes(damaged)], places)
    except ValueError as error:
        # One that says by itself that its relation has more columns does not fit to the others.
        assert "another number of values" in str(error)  # noqa: PT017
    else:
        assert found == expected
