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

_ESCAPES = {"\\": "\\\\", "\n": "\\n", '"': '\\"'}
_ESCAPED = str.maketrans(_ESCAPES)
_HERE = "\0"
"""The place of a sample's labels in the lines of a histogram."""
_BOUNDS = (*map(str, BOUNDS_S), "+Inf")


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
    return "".join([_text(each, source) for each in families]).encode()


def _text(family: Family[Source], source: Source) -> str:
    samples = _escaped(list(family.samples(source)))
    if not samples:
        return ""
    head = f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind.value}\n"
    labels = ",".join(f'{name}="%s"' for name in family.labels)
    if family.kind is Kind.HISTOGRAM:
        return head + "".join(_histogram(family.name, labels, samples))
    if len(family.labels) == 1:
        # Most families have an id alone, and all of an environment's objects.
        before = f'{family.name}{{{family.labels[0]}="'
        lines = [f'{before}{key}"}} {value}\n' for (key,), value in samples]
    else:
        line = f"{family.name}{{{labels}}} %s\n" if labels else f"{family.name} %s\n"
        lines = [line % (*values, value) for values, value in samples]
    return head + "".join(lines)


def _histogram(name: str, labels: str, samples: Iterable[Sample]) -> Iterator[str]:
    before, own = (f"{_HERE},", f"{{{_HERE}}}") if labels else ("", "")
    buckets = "".join(f'{name}_bucket{{{before}le="{bound}"}} %s\n' for bound in _BOUNDS)
    lines = f"{buckets}{name}_sum{own} %s\n{name}_count{own} %s\n"
    for values, value in samples:
        assert isinstance(value, Durations)
        numbers = value.up_to
        # What is shown may have signs that mean something to a format: it comes in last.
        told = lines % (*numbers, value.sum_s, numbers[-1])
        yield told.replace(_HERE, labels % values)


def _escaped(samples: list[Sample]) -> list[Sample]:
    """The samples with labels as the text has them: most are ids and words, which stay."""
    texts = "".join([each for values, _ in samples for each in values])
    if not any(special in texts for special in _ESCAPES):
        return samples
    return [(tuple(each.translate(_ESCAPED) for each in values), v) for values, v in samples]
