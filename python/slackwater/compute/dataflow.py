"""Descriptions of dataflows, by the kinds of their outputs, and the seam to shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slackwater.compute.engine import ViewPlan
from slackwater.persist.appends import Append, UpperMismatch
from slackwater.persist.shard_files import ShardFiles
from slackwater.persist.shard_reads import ShardReads
from slackwater.planner.delta.program import Program
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.refresh import RefreshSchedule
from slackwater.repr.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class Input:
    """A collection that a dataflow reads. `desc` has the columns that its plan knows.

    `errors_shard` has the errors that are in its contents, if it can have any; `name` is for
    messages.
    """

    shard_id: int
    desc: RelationDesc
    errors_shard: int | None = None
    name: str = ""

    @property
    def shards(self) -> tuple[tuple[int, RelationDesc], ...]:
        """The shards of the contents: that of the rows, and that of the errors."""
        rows = (self.shard_id, self.desc)
        return (rows,) if self.errors_shard is None else (rows, (self.errors_shard, ERRORS))


@dataclass(frozen=True, slots=True)
class ViewExport:
    """A view whose contents a dataflow writes into shards.

    For every time t with ``as_of <= t < upper`` of the output::

        sum of the output's updates up to t  =  query(the inputs at t)     if `errors` is empty at t
        errors at t                          =  why the query fails at t   otherwise

    where the contents of a shard at t are the sum of its updates up to t. The uppers of both shards
    move as one. An output shard whose upper is not beyond `as_of` is empty, and the first tick
    hydrates it.

    `desc` has the view's columns: those of the query, under the view's names. `plan_changed`: the
    output may be that of another plan than the dataflow's, so that it is computed as a whole at its
    first change, before it is followed.
    """

    desc: RelationDesc
    shard_id: int
    errors_shard: int
    plan_changed: bool = False


@dataclass(frozen=True, slots=True)
class IndexExport:
    """An index: the rows of a relation in an arrangement, which queries look up by its keys.

    The plan's columns are those of the relation, then the keys, `keys` of them. For every time t
    with ``since <= t < upper`` of the index::

        what it finds for keys k at t  =  the rows of the relation at t whose keys are k

    where NULL is the same key as NULL. `since` is where compaction is allowed, or later. An index
    has no shards: it begins anew with each process, and where memory ends it is not there.
    """

    keys: int


@dataclass(frozen=True, slots=True)
class SubscriptionExport:
    """The changes of a query after the dataflow's as-of, which somebody follows.

    Nobody stores them: a replica gives them as they happen. See `MaintainedSubscription`.
    """


@dataclass(frozen=True, slots=True)
class Dataflow:
    """A query that is maintained: its plan, the shards of its inputs, and its output.

    `settings` are Spark's settings from the creation of its object, under which `Engine.under` runs
    the query. `as_of` is the time at which the output begins. A view with a schedule, `refresh`,
    has at each time what `RefreshSchedule` says instead. `takes_over` is a dataflow whose program
    it goes on with, if both have the same plan.
    """

    global_id: GlobalId
    name: str
    plan: ViewPlan
    inputs: Mapping[GlobalId, Input]
    as_of: Timestamp
    export: ViewExport | IndexExport | SubscriptionExport
    settings: Mapping[str, str] | None = None
    refresh: RefreshSchedule | None = None
    takes_over: GlobalId | None = None

    @property
    def view(self) -> ViewExport:
        """The view that it writes. Raises `FatalError` for an index and a subscription."""
        if isinstance(self.export, ViewExport):
            return self.export
        raise FatalError(f"{self.name} has no shards: it is no view")

    @property
    def program(self) -> Program:
        """The program that maintains it. Raises `FatalError` where the query is recomputed."""
        if self.plan.program is None:
            raise FatalError(f"{self.name} has no program")
        return self.plan.program

    @property
    def input_names(self) -> str:
        """The names of what it reads, for messages."""
        return ", ".join(sorted(source.name for source in self.inputs.values()))


class Shards(Protocol):
    """The durable shards as ticks use them: the parts of a `PersistClient` that they need."""

    @property
    def reads(self) -> ShardReads: ...

    @property
    def files(self) -> ShardFiles: ...


Offered = tuple[Dataflow, Sequence[Append]]
"""A view, with the appends to its rows and to its errors over one interval."""


class Outputs(Protocol):
    """The seam to whoever writes the outputs of dataflows. Thread-safe."""

    def append(self, offered: Sequence[Offered]) -> Sequence[UpperMismatch | None]:
        """Appends to the shards of views, in one commit if all can be; durable when it returns.

        Says for each that was not appended why: somebody else was first, or nobody wants the view
        any more. Raises what the metastore raises, after which each may have happened or not.
        """
        ...

    def advance(self, moves: Sequence[tuple[Dataflow, Timestamp, Timestamp]]) -> None:
        """Moves uppers of views on which nothing happens, from the first time to the second.

        Raises what the metastore raises; of those that somebody else has moved it says nothing.
        """
        ...


def upper_of(shards: Shards, shard_id: int) -> Timestamp:
    """The shard's upper; that of the tables if it shares it."""
    state = shards.reads.state(shard_id)
    return shards.reads.tables_upper() if state.shares_tables_upper else state.upper
