"""Families of metrics, and their text as Prometheus reads it.

The text is format 0.0.4 of Prometheus. Its writer is our own because a scrape of an environment of
thousands of objects has to be quick (decision 0090).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from slackwater.repr.durations import BOUNDS_S, Durations

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[tuple[str, ...], float | Durations]
"""The values of a family's labels, and the value: durations in a histogram, else a number."""

Source = TypeVar("Source")

_ESCAPED = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")
_HERE = "\0"
"""The place of a sample's labels in the lines of a histogram."""


class Kind(Enum):
    """The types of metrics, by Prometheus's names."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family(Generic[Source]):
    """One metric: its name, its kind, what it means, the names of its labels, and its samples.

    Names of counters end in `_total`. `samples` reads them from a value, and does nothing else.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Source], Iterable[Sample]]


def text(families: Iterable[Family[Source]], source: Source) -> bytes:
    """All samples of the families that have some, ending with a newline."""
    return "".join(line for each in families for line in _lines(each, source)).encode()


def _lines(family: Family[Source], source: Source) -> Iterator[str]:
    samples = list(family.samples(source))
    if not samples:
        return
    yield f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind.value}\n"
    labels = ",".join(f'{name}="%s"' for name in family.labels)
    if family.kind is Kind.HISTOGRAM:
        yield from _histogram(family.name, labels, samples)
        return
    line = f"{family.name}{{{labels}}} %s\n" if labels else f"{family.name} %s\n"
    for values, value in samples:
        yield line % (*map(_escaped, values), value)


def _histogram(name: str, labels: str, samples: Iterable[Sample]) -> Iterator[str]:
    before, own = (f"{_HERE},", f"{{{_HERE}}}") if labels else ("", "")
    buckets = "".join(f'{name}_bucket{{{before}le="{bound}"}} %s\n' for bound in _BOUNDS)
    lines = f"{buckets}{name}_sum{own} %s\n{name}_count{own} %s\n"
    for values, value in samples:
        assert isinstance(value, Durations)
        shown = labels % tuple(map(_escaped, values))
        numbers = value.up_to
        # What is shown may have signs that mean something to a format: it comes in last.
        told = lines % (*numbers, value.sum_s, numbers[-1])
        yield told.replace(_HERE, shown)


def _escaped(value: str) -> str:
    # Most are ids and words, for which nothing is made anew.
    return value if value.isalnum() else value.translate(_ESCAPED)
