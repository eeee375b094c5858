"""Errors as data: their texts, and the times at which they are present."""

import base64

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.persist.error_shards import first_refusal
from slackwater.repr.dataflow_error import (
    ERRORS,
    DecodeError,
    EvaluationError,
    KeyDecodeError,
    NullKeyError,
    ValueDecodeError,
    decode,
    encode,
    error_rows,
    refusal,
)
from slackwater.repr.errors import FatalError

decode_errors = st.builds(DecodeError, st.text(), st.text())
errors = st.one_of(
    decode_errors,
    st.builds(KeyDecodeError, st.binary(), decode_errors),
    st.builds(ValueDecodeError, decode_errors, st.text()),
    st.builds(NullKeyError, st.text()),
    st.builds(EvaluationError, st.text(), st.text(), st.text(), st.text(), st.text()),
)


@given(errors, errors)
def test_an_error_is_its_text(first, second):
    assert decode(encode(first)) == first
    assert (encode(first) == encode(second)) == (first == second)
    assert isinstance(first.text, str)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "other"}', '{"kind": "decode"}'])
def test_other_texts_are_refused(text):
    with pytest.raises(FatalError):
        decode(text)


class Parts:
    """The updates of one shard of errors, as one part."""

    def __init__(self, updates):
        self.table = pa.Table.from_pylist(
            [{"error": encode(e), "__time": t, "__diff": d} for e, t, d in updates],
            schema=ERRORS.update_schema(),
        )

    def parts_at(self, shard_id, as_of):
        return (None,) if any(t <= as_of for t in self.table["__time"].to_pylist()) else ()

    def read(self, parts, desc, *, lower=None, upper=None):
        assert desc == ERRORS
        return self.table.filter([t < upper for t in self.table["__time"].to_pylist()])


POOL = [DecodeError(f"f, line {n}", "bad") for n in range(3)]


@st.composite
def histories(draw):
    """Errors that are present during intervals, some for ever."""
    updates = []
    for _ in range(draw(st.integers(0, 4))):
        error, begin = draw(st.sampled_from(POOL)), draw(st.integers(0, 12))
        updates.append((error, begin, 1))
        if draw(st.booleans()):
            updates.append((error, begin + draw(st.integers(0, 6)), -1))
    return updates


def present(updates, time):
    held = {}
    for error, at, diff in updates:
        if at <= time:
            held[error] = held.get(error, 0) + diff
    return {error: count for error, count in held.items() if count}


@given(histories(), st.integers(0, 15), st.integers(0, 6))
def test_a_read_fails_at_exactly_the_times_with_errors(updates, lower, length):
    bad = [t for t in range(lower, lower + length) if present(updates, t)]
    error = first_refusal(Parts(updates), 1, "slackwater.default.f", lower, lower + length)
    if not bad:
        assert error is None
        return
    assert error.condition == "SLACKWATER_SOURCE_ERROR"
    assert error.is_data_error
    assert error.parameters["timestamp"] == str(bad[0])
    assert error.parameters["count"] == str(len(present(updates, bad[0])))
    assert any(each.text in error.message for each in present(updates, bad[0]))


def test_rows_of_errors_are_retractable():
    rows = error_rows([(POOL[0], 1), (POOL[0], -1)])
    assert rows["error"][0] == rows["error"][1]
    assert rows["__diff"].to_pylist() == [1, -1]
    raw = KeyDecodeError(b"\xff", POOL[1])
    assert base64.b64encode(b"\xff").decode() in encode(raw)


OF_BEFORE = (
    '{"cause":"[DIVIDE_BY_ZERO] Division by zero.","inputs":"t","kind":"evaluation",'
    '"sqlstate":"22012","view":"v"}'
)
"""As versions wrote it that knew no rows."""


def test_an_error_without_a_row_is_told_and_retracted_as_it_was_written():
    error = decode(OF_BEFORE)
    assert error.text == "a row makes the query of v fail: [DIVIDE_BY_ZERO] Division by zero."
    assert encode(error) == OF_BEFORE
    told = refusal(error_rows([(error, 1)]), "above", 5)
    assert told.message.startswith("above cannot be read at 5: a row makes the query of v fail")
    assert EvaluationError.of(told, "above", "v") == error


def test_the_row_goes_with_the_error_through_views():
    error = EvaluationError("v", "22012", "why", "t", "the row (k = 1)")
    told = refusal(error_rows([(error, 1)]), "above", 5)
    assert "the row (k = 1) makes the query of v fail: why." in told.message
    assert EvaluationError.of(told, "above", "v") == decode(encode(error)) == error
