"""Times of a hybrid logical clock as offsets of a source, and as DECIMAL(29,10).

The offset of a time is ``nanos * 10**10 + logical``: a whole number that orders as the times do,
for the logical part of a feed's time has ten digits. As DECIMAL(29,10) it reads as CockroachDB
writes the time itself, ``1700000000000000000.0000000002``. As a frontier it is the first time that
may still come; the one behind a logical part of ten nines is the next nanosecond, and between these
no feed has a time. Source: spec checkpoint 5.2.
"""

from __future__ import annotations

from decimal import Context, Decimal

from slackwater.repr.hlc import Time

DECIMAL = "decimal(29,10)"
_DIGITS = 10
_STEP: int = 10**_DIGITS
_EXACT = Context(prec=40)


def offset(time: Time) -> int:
    """The offset of a time. Raises ValueError for a logical part of more than ten digits."""
    if time.logical > _STEP:
        raise ValueError(f"{time} has a logical part of more than ten digits")
    return time.nanos * _STEP + time.logical


def time_at(place: int) -> Time:
    """The time with this offset."""
    return Time(*divmod(place, _STEP))


def decimal(place: int) -> Decimal:
    """The offset as a value of `DECIMAL`."""
    return _EXACT.scaleb(Decimal(place), -_DIGITS)


def place_of(value: Decimal) -> int:
    """The offset that `decimal` was given."""
    return int(_EXACT.scaleb(value, _DIGITS))
