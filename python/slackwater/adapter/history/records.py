"""The records of the history, as system relations show them and as files keep them.

Times are wall clock milliseconds of the leader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from slackwater.adapter.protocol import ReadStrategy


class Status(Enum):
    """The end of a statement. ABORTED: nobody said it, as its session or its leader had gone."""

    SUCCESS = "success"
    ERROR = "error"
    CANCELED = "canceled"
    ABORTED = "aborted"


class Step(Enum):
    """The steps of a statement, in the order in which they may come."""

    PLANNED = "planned"
    BEGAN = "execution-began"
    WAITED = "storage-dependencies-finished"
    BOUND = "bound"
    COMMITTED = "committed"
    FINISHED = "execution-finished"


@dataclass(frozen=True, slots=True)
class Reached:
    """A step that a statement has reached."""

    step: Step
    at_ms: int


@dataclass(frozen=True, slots=True)
class ShownText:
    """A statement's text as it may be shown.

    `sql` lacks secrets; it is None where there is none, or where a text that may hold a secret is
    no statement. `digest` is of `sql`, so that nobody can guess from it what was left out.
    `is_secret`: something may have been left out of `sql`.
    """

    kind: str
    sql: str | None
    digest: str | None
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement. What is not known, or has not happened yet, is None.

    `execution_id` is of the history alone. `statement_id` is what lines of the log have, and within
    its session the name of the execution; `spark_execution_id` is the number by which Spark's UI
    knows it. `throttled` counts statements that were left out just before it. `strategy` is that
    of a read that has ended well. Fields of later versions are optional: records last longer.
    """

    execution_id: str
    session_id: str
    statement_id: str
    began_ms: int
    text: ShownText
    application: str | None = None
    user: str = "anonymous"
    cluster: str | None = None
    isolation: str | None = None
    sample_rate: float = 1.0
    throttled: int = 0
    spark_execution_id: int | None = None
    planned_ms: int | None = None
    timestamp: int | None = None
    waited_ms: int = 0
    rows_returned: int | None = None
    rows_written: int | None = None
    finished_ms: int | None = None
    status: Status | None = None
    condition: str | None = None
    error: str | None = None
    steps: tuple[Reached, ...] = ()
    strategy: ReadStrategy | None = None
    cluster_id: str | None = None
    database: str | None = None
    search_path: tuple[str, ...] | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class SessionBegan:
    """A session, from its first call on."""

    session_id: str
    connected_ms: int
    application: str | None
    user: str


Record = Statement | SessionBegan

KINDS: Mapping[str, type[Record]] = {"statement": Statement, "session": SessionBegan}
"""By the names that lines of files have."""
