"""All that is known of an environment: one frozen value, of which each page is a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
"""A row of a system relation, by the names of its columns."""

Sample = tuple[int, int]
"""A time and a lag then, both in milliseconds."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The coordinator that leads, and since when, in milliseconds since the epoch."""

    epoch: int
    location: str
    version: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Failure:
    """The error for which an object cannot be read now, and the time at which it came, if known."""

    object_id: str
    condition: str
    message: str
    since_ms: int | None


@dataclass(frozen=True, slots=True)
class Absence:
    """There is no answer. `since_ms`: when the last one came; None: there was none yet.

    `leads`: somebody leads, and refuses to answer.
    """

    since_ms: int | None
    reason: str
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known. While `absence` says that nobody leads, the rest is what was last known.

    `at_ms` is the leader's clock at the last answer. `tables` has the rows of the relations that
    were asked for, by ``schema.name``; one that the leader does not have is not in it. `rates` are
    rows a second, and `lags` the samples of the last hour, by the ids of objects.
    """

    at_ms: int = 0
    leader: Leader | None = None
    absence: Absence | None = None
    tables: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    rates: Mapping[str, float] = field(default_factory=dict)
    lags: Mapping[str, tuple[Sample, ...]] = field(default_factory=dict)

    def rows(self, relation: str) -> tuple[Row, ...]:
        """The rows of a relation; none, if the leader has not told them."""
        return self.tables.get(relation, ())

    def by_id(self, relation: str, column: str = "id") -> Mapping[str, Row]:
        """The rows of a relation by a column that is different in each."""
        return {row[column]: row for row in self.rows(relation)}
