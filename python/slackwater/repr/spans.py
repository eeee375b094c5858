"""Spans: the seam through which parts say how long something took, and of what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId

Attributes = Mapping[str, str | int | None]
"""The attributes of a span; those that are None are left out. No value of a user is in them."""

Fail = Callable[[str], None]
"""Says that what the span is of has failed, with a condition."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Work that moves the upper of a collection or a dataflow from `lower` on, up to `upper`.

    What is not known before the work is done is None.
    """

    global_id: GlobalId
    lower: Timestamp | None = None
    upper: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """A wait for an object to be complete at a time, or, without a time, to have contents.

    `below` gives the object and all that it is made of. It is called once at most, when the wait is
    over and somebody wants its span.
    """

    object_id: GlobalId
    below: Callable[[], Collection[GlobalId]]
    time: Timestamp | None = None


@dataclass(frozen=True, slots=True)
class PastSpan:
    """A span that is over, or has failed with `condition`. Times are wall clock milliseconds."""

    name: str
    began_ms: int
    ended_ms: int
    attributes: Attributes = field(default_factory=dict)
    condition: str | None = None


class Spans(Protocol):
    """Takes spans. Thread-safe; it neither blocks nor raises.

    A span is below the one of whose block it is a part, if there is one in its thread.
    """

    def span(
        self, name: str, attributes: Attributes, moves: Moves | None = None
    ) -> AbstractContextManager[Fail]:
        """The span of a block. It has failed when the block raises, or calls what it is given."""
        ...

    def call(
        self, statement: Hashable, name: str, attributes: Attributes
    ) -> AbstractContextManager[Fail]:
        """The span of a block that is a call of a statement, below the span of the statement.

        That one begins with the first call, and ends by `ended`.
        """
        ...

    def wait(self, name: str, awaited: Awaited) -> AbstractContextManager[Fail]:
        """The span of a block that waits. It has links to the spans of what moved these uppers."""
        ...

    def ended(self, statement: Hashable, whole: PastSpan, parts: Sequence[PastSpan]) -> None:
        """A statement has ended. `parts` are spans below that of the `whole` beside its calls."""
        ...


@dataclass(frozen=True, slots=True)
class NoSpans:
    """Takes spans that nobody wants."""

    def span(
        self, name: str, attributes: Attributes, moves: Moves | None = None
    ) -> AbstractContextManager[Fail]:
        return nullcontext(_unheard)

    def call(
        self, statement: Hashable, name: str, attributes: Attributes
    ) -> AbstractContextManager[Fail]:
        return nullcontext(_unheard)

    def wait(self, name: str, awaited: Awaited) -> AbstractContextManager[Fail]:
        return nullcontext(_unheard)

    def ended(self, statement: Hashable, whole: PastSpan, parts: Sequence[PastSpan]) -> None:
        return None


def _unheard(condition: str) -> None:
    return None
