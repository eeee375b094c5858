"""Admission: the lane of each call, and the most calls at once. `app` acts on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slackwater.adapter.protocol import Caller, WriteTables
from slackwater.repr.errors import user_error


class Lane(Enum):
    """A group of calls with threads of its own, so that none of another group can keep it waiting.

    CONTROL: calls that wait for nothing at all. QUICK: those that only the metastore may keep
    waiting, or a second for each replica. INSIDE: calls that a statement or a tick makes from
    inside, by way of Spark, and those with which a statement ends: what they belong to was admitted
    already, and waits for them. STATEMENT: everything else.
    """

    CONTROL = "control"
    QUICK = "quick"
    INSIDE = "inside"
    STATEMENT = "statement"


CONTROL_CALLS = frozenset({"/v1/cancel", "/v1/renew"})
QUICK_CALLS = frozenset(
    {
        "/v1/release",
        "/v1/scanned",
        "/v1/waits",
        "/v1/writing",
        "/v1/session/close",
        "/v1/catalog/namespaces",
        "/v1/catalog/list",
        "/v1/catalog/load",
        "/v1/catalog/find_schemas",
        "/v1/catalog/find_relations",
        "/v1/catalog/find_columns",
        "/v1/metrics",
        "/v1/system",
    }
)

INSIDE_CALLS = frozenset({"/v1/peek", "/v1/prepare_write"})
"""Those of a statement that may have locked what other statements wait for."""


def lane_of(path: str, caller: Caller, asked: object) -> Lane:
    """The lane of a call."""
    if path in CONTROL_CALLS:
        return Lane.CONTROL
    if path in QUICK_CALLS:
        return Lane.QUICK
    if caller.internal or path in INSIDE_CALLS:
        return Lane.INSIDE
    if isinstance(asked, WriteTables) and asked.hold is not None:
        return Lane.INSIDE
    return Lane.STATEMENT


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """The limits of what the server takes at once.

    `statements` is the most calls of statements that may be under way; as many may be INSIDE, since
    each of them belongs to one statement. `request_bytes` and `answer_bytes` are for one call.
    """

    control_threads: int = 16
    quick_threads: int = 64
    statements: int = 512
    request_bytes: int = 64 * 1024 * 1024
    answer_bytes: int = 512 * 1024 * 1024


class Admission:
    """Counts the statements that are under way. Used by one thread."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._statements = 0

    def enter(self, lane: Lane) -> None:
        """Admits a call. Raises SLACKWATER_TOO_MANY_REQUESTS; else `leave` has to follow."""
        if lane is not Lane.STATEMENT:
            return
        if self._statements >= self._limits.statements:
            raise user_error(
                "SLACKWATER_TOO_MANY_REQUESTS",
                what="The coordinator",
                limit=f"{self._limits.statements} statements",
            )
        self._statements += 1

    def leave(self, lane: Lane) -> None:
        if lane is Lane.STATEMENT:
            self._statements -= 1
