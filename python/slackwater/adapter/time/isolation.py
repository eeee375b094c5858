"""Isolation levels, by the values of the variable `transaction_isolation`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from slackwater.planner.parser import variables
from slackwater.planner.parser.durations import parse_duration


class Level(Enum):
    STRICT_SERIALIZABLE = variables.STRICT_SERIALIZABLE
    STRONG_SESSION_SERIALIZABLE = variables.STRONG_SESSION_SERIALIZABLE
    SERIALIZABLE = variables.SERIALIZABLE
    BOUNDED_STALENESS = variables.BOUNDED_STALENESS


@dataclass(frozen=True, slots=True)
class Isolation:
    """An isolation level. `staleness_ms` is that of BOUNDED_STALENESS, and is 0 for others."""

    level: Level
    staleness_ms: int = 0

    @property
    def follows_oracle(self) -> bool:
        """Whether a read without AS OF asks the oracle for its time."""
        return self.level is not Level.SERIALIZABLE


STRICT_SERIALIZABLE = Isolation(Level.STRICT_SERIALIZABLE)


@lru_cache(maxsize=64)
def isolation_of(value: str) -> Isolation:
    """The isolation of a value of the variable, in canonical form."""
    bounded = Level.BOUNDED_STALENESS
    if value.startswith(bounded.value):
        return Isolation(bounded, parse_duration(value.removeprefix(bounded.value)))
    return Isolation(Level(value))
