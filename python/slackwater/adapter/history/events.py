"""The events of the history: what the calls of a statement tell it, in the order of their times.

`Ended` is what comes of them for others, once for each statement.

A statement is known by `Key`; it may have several calls. Times are wall clock milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.history.records import Status
from slackwater.adapter.protocol import ReadStrategy
from slackwater.repr.frontier import Timestamp


@dataclass(frozen=True, slots=True)
class Key:
    """The session of a statement, and the statement's name in it."""

    session_id: str
    statement_id: str


@dataclass(frozen=True, slots=True)
class Said:
    """A statement as its first call says it.

    `text` is None for actions of DataFrames; `kind` is given where no text says it. `rate` is the
    sample rate of its session. `database` and `search_path` are where it resolves names, None if
    its call did not say that; `version` is that of the leader.
    """

    text: str | None = None
    kind: str | None = None
    writes: bool = False
    application: str | None = None
    user: str = "anonymous"
    cluster: str | None = None
    isolation: str | None = None
    rate: float = 1.0
    planned_ms: int | None = None
    cluster_id: str | None = None
    database: str | None = None
    search_path: tuple[str, ...] | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class CallBegan:
    """A call of a statement begins. The first one that comes is the statement's beginning."""

    key: Key
    at_ms: int
    execution_id: str
    said: Said


@dataclass(frozen=True, slots=True)
class Failure:
    """The condition of an error, and its message."""

    condition: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """The statement reads at `timestamp` from now on, under `hold` if there is one."""

    timestamp: Timestamp | None
    hold: str | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """The statement's write is committed, which ends it."""

    timestamp: Timestamp
    rows: int


@dataclass(frozen=True, slots=True)
class Done:
    """The statement has ended, with so many rows if it has an answer."""

    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Computed:
    """The jobs of the statement's write are over, which alone is not its end."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call has ended, after it had waited for `waited_ms` in all, up to `waited_until_ms`."""

    key: Key
    at_ms: int
    result: Bound | Wrote | Done | Failure | Computed
    waited_ms: int = 0
    waited_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """Nothing is read under the hold any more; the rest is what Spark said, if it did.

    `took_ms` is how long its execution took. `strategy` is None where nothing was executed.
    """

    hold: str
    at_ms: int
    rows: int | None = None
    failure: Failure | None = None
    took_ms: int | None = None
    strategy: ReadStrategy | None = None


@dataclass(frozen=True, slots=True)
class Connected:
    """A session's first call has come."""

    session_id: str
    at_ms: int
    application: str | None
    user: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The session has ended, and with it all that it ran."""

    session_id: str
    at_ms: int


Event = CallBegan | CallEnded | Released | Connected | Disconnected


@dataclass(frozen=True, slots=True)
class ReadEnded:
    """A read of Spark for a statement, under one hold, and its times."""

    began_ms: int
    ended_ms: int
    rows: int | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """A statement from its first call to its end, without texts. What is not known is None."""

    key: Key
    kind: str
    began_ms: int
    ended_ms: int
    status: Status
    spark_execution_id: int | None = None
    timestamp: int | None = None
    rows_returned: int | None = None
    rows_written: int | None = None
    failure: Failure | None = None
    reads: tuple[ReadEnded, ...] = ()
