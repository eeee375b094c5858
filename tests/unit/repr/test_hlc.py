"""Times of a hybrid logical clock and their ranges: the tables of the specification."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.repr.hlc import ZERO, Range, Time

MOST = 2**63 - 1


def t(nanos, logical=0):
    return Time(nanos, logical)


def inc(first, last):
    return Range.including(t(first), t(last))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100.0000000200", t(100, 200)),
        ("1586044290413968000.0000000000", t(1586044290413968000)),
        ("1.0", t(1)),
        ("1.00", t(1)),
        ("0.0000000000", ZERO),
        ("1.0000000001", t(1, 1)),
        ("1.9999999999", t(1, 9_999_999_999)),
        # Read as decimal, where Go's detection of a base finds octal.
        ("0123.0", t(123)),
        (f"{MOST}.0", t(MOST)),
        ("00000000000000000000000000007.0", t(7)),
    ],
)
def test_a_text_is_read_exactly(text, expected):
    assert Time.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "1", "1.", ".0", "1.1", "100.00000002", "1.0.0", "a.0", "1.a", "0"),
        *("0x10.0", "1_0.0", "+5.0", "-0.0", "-1.0", "1.-000000001", " 1.0", "1.0 ", "1.0\n"),
        *(f"{MOST + 1}.0", "9" * 10_000 + ".0", "1.00000000001", "\u0661.0", "1e3.0"),
    ],
)
def test_what_no_changefeed_writes_is_refused(text):
    with pytest.raises(ValueError, match="cannot parse timestamp"):
        Time.parse(text)


@pytest.mark.parametrize("value", [1.0, 1, None, b"1.0"])
def test_a_number_is_no_text(value):
    with pytest.raises(ValueError, match="cannot parse timestamp"):
        Time.parse(value)


times = st.builds(Time, st.integers(0, MOST), st.integers(0, 9_999_999_999))


@given(times, times)
def test_texts_keep_every_digit_and_times_order_by_nanos_then_logical(one, other):
    assert Time.parse(str(one)) == one
    assert (one < other) == ((one.nanos, one.logical) < (other.nanos, other.logical))
    assert one < one.next
    assert one.before < one
    assert one.next.before == one
    assert one.next.nanos == one.nanos


def test_next_of_before_is_not_the_same_where_logical_is_0():
    assert t(10).before == t(9, 2147483647)
    assert t(10).before.next == t(9, 2147483648)
    assert t(10, 5).before == t(10, 4)
    assert ZERO.before == t(-1, 2147483647)


@pytest.mark.parametrize(("nanos", "logical"), [(MOST + 1, 0), (-MOST - 1, 0), (0, -1)])
def test_what_64_bits_do_not_hold_is_no_time(nanos, logical):
    with pytest.raises(ValueError, match="is no time"):
        Time(nanos, logical)


def test_a_range_is_half_open():
    assert Range().is_empty
    assert Range.empty_at(t(5)).is_empty
    assert not inc(5, 5).is_empty
    assert inc(5, 7) == Range(t(5), t(7, 1))
    assert t(7) in inc(5, 7)
    assert t(5) in inc(5, 7)
    assert t(7) not in Range(t(5), t(7))
    assert t(4, 9) not in inc(5, 7)
    assert inc(5, 7).max_inclusive == t(7)
    assert str(inc(5, 7)) == "[ 5.0000000000 -> 7.0000000001 )"


def test_extending_lowers_min_or_raises_max_beyond_the_time():
    assert inc(10, 20).extend(t(5)) == inc(5, 20)
    assert inc(10, 20).extend(t(30)) == inc(10, 30)
    assert inc(10, 20).extend(t(15)) == inc(10, 20)
    assert Range(t(10), t(20)).extend(t(20)) == inc(10, 20)
    assert Range.empty_at(t(7)).extend(t(7)) == inc(7, 7)


def test_a_min_is_done_so_with_min_of_the_last_time_is_empty():
    assert inc(10, 20).with_min(t(15)) == inc(15, 20)
    assert t(20) in inc(10, 20)
    assert inc(10, 20).with_min(t(20)) == Range.empty_at(t(20))
    assert inc(10, 20).with_min(t(30)) == Range.empty_at(t(30))
    assert inc(10, 20).with_min(t(5)) == inc(5, 20)
    assert Range().with_min(t(3)) == Range.empty_at(t(3))


@given(times, times, times)
def test_what_a_range_was_extended_to_is_in_it(first, last, more):
    extended = Range.including(min(first, last), max(first, last)).extend(more)
    assert all(each in extended for each in (first, last, more))
