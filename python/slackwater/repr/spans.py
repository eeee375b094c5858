"""Spans: the seam through which parts say how long something took, and of what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

Attributes = Mapping[str, str | int | None]
"""The attributes of a span; those that are None are left out. No value of a user is in them."""

Fail = Callable[[str], None]
"""Says that what the span is of has failed, with a condition."""


class Spans(Protocol):
    """Takes spans. Thread-safe; it neither blocks nor raises."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Fail]:
        """The span of a block. It has failed when the block raises, or calls what it is given."""
        ...


@dataclass(frozen=True, slots=True)
class NoSpans:
    """Takes spans that nobody wants."""

    def span(self, name: str, attributes: Attributes) -> AbstractContextManager[Fail]:
        return nullcontext(_unheard)


def _unheard(condition: str) -> None:
    return None
