"""The seam to Spark: what dataflows and the adapter ask of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from slackwater.compute.peeked_rows import PeekLimits, PeekStashed, Stash
from slackwater.compute.records import ArrangementMemory, ArrangementSize, StepRecord
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.planner.delta.program import Program, Size
from slackwater.planner.plan.algebra import AnalyzedPlan
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

Function: TypeAlias = Mapping[str, Any]
"""A function that is not Spark's own, as the driver describes it, in JSON-able values."""


@dataclass(frozen=True, slots=True)
class Known:
    """The meanings of names in a query: `functions` beside Spark's own, and `relations`.

    Relations are objects of protocol section 2, with `id`, `kind`, `schema_name`, `name`, `schema`,
    `properties` and `view`: all that the query reads, and no catalog is asked for them. None: those
    that the catalog has.
    """

    functions: Sequence[Function] = ()
    relations: Sequence[Mapping[str, Any]] | None = None


BY_CATALOG = Known()
"""Names mean what the catalog has, and functions are Spark's own."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """The answer of Spark's analyzer about a query.

    `relations` and `views` are ids of ours, also those below a view; `named` are the ids of both
    that the query itself names. `functions` are those that it calls, without Spark's own. `timed`
    are the names of what it reads at a time of its own, by VERSION AS OF say.
    """

    desc: RelationDesc
    relations: tuple[str, ...]
    views: tuple[str, ...]
    named: tuple[str, ...]
    foreign: tuple[str, ...]
    nondeterministic: tuple[str, ...]
    uses_mz_now: bool
    functions: tuple[Function, ...] = ()
    timed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lookup:
    """Keys that are looked up in the index that `program` keeps.

    `keys` is an Arrow IPC stream of them. The rows are those that the updates
    before `below` make, while the contents at `as_of` are kept; at most what `limits` allow.
    """

    program: str
    keys: bytes
    as_of: Timestamp
    below: Timestamp
    limits: PeekLimits


@dataclass(frozen=True, slots=True)
class WholeIndex:
    """All rows of the index that `program` keeps, as `Lookup` has those of keys.

    Those that are more than `limits` allow go to `stash`; None: nobody wants them.
    """

    program: str
    as_of: Timestamp
    below: Timestamp
    limits: PeekLimits
    stash: Stash | None = None


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan whose expressions and operators the driver keeps under `plan_id`."""

    plan_id: str
    plan: AnalyzedPlan


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """The query of an index on a collection, whose last `keys` columns are the keys.

    `name` is for people.
    """

    query: str
    namespace: tuple[str, ...]
    keys: int
    name: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """Indexes below a query: the ids of plain views that have one, and those on collections."""

    views: tuple[str, ...] = ()
    indexes: tuple[IndexQuery, ...] = ()


NOTHING_INDEXED = Indexed()


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The plan of a view that the driver keeps, and the program that maintains the view.

    `program` is None where the view is recomputed, because of `reason`. `alone` does the same and
    looks up in no index of a collection; None: neither does `program`.
    """

    kept: KeptPlan
    program: Program | None
    reason: str = ""
    alone: Program | None = None

    @property
    def is_temporal(self) -> bool:
        """Whether the contents may change at a time at which no input does."""
        return self.kept.plan.depends_on_time


@dataclass(frozen=True, slots=True)
class Contents:
    """A collection with the columns of `desc`, as a relation in the form of `relation_json`."""

    desc: RelationDesc
    relation: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InputContents:
    """All inputs of a view at `as_of`, by their names. `few`: one task reads them."""

    as_of: Timestamp
    contents: Mapping[str, Contents]
    few: bool


@dataclass(frozen=True, slots=True)
class ViewContents:
    """The rows of a view at `as_of`, with the columns of `output`, over those of its inputs then.

    With `recorded`, updates of the view: only what the rows differ by from their sum.
    """

    kept: KeptPlan
    output: RelationDesc
    as_of: Timestamp
    inputs: Mapping[str, Contents]
    recorded: Contents | None = None


@dataclass(frozen=True, slots=True)
class FailingColumn:
    """A value of a failing row, as Spark shows it.

    `collection` is the id of that whose column it is; None: it is computed. `is_read`: the error
    comes of it.
    """

    name: str
    collection: str | None
    is_read: bool
    text: str


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A row of which a query cannot be computed, or a group of rows, and the error."""

    error: SlackwaterError
    is_group: bool
    columns: tuple[FailingColumn, ...]


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file of updates that Spark wrote. `min_time` and `max_time` are inclusive."""

    uri: str
    rows: int
    size_bytes: int
    modified_ms: int
    min_time: int
    max_time: int
    has_retractions: bool

    def part(self) -> NewPart:
        """The file as a part whose rows have their own times and diffs."""
        return NewPart(
            FileBody(self.uri, self.size_bytes, self.modified_ms, None),
            self.rows,
            Timestamp(self.min_time),
            Timestamp(self.max_time),
            self.has_retractions,
        )


@dataclass(frozen=True, slots=True)
class NamedUpdates:
    """The updates in `parts` with ``lower <= __time < upper``.

    `fields`: the columns of `desc` that are read; the others need not be brought.
    """

    name: str
    desc: RelationDesc
    fields: frozenset[str]
    parts: tuple[Part | NewPart, ...]
    lower: Timestamp
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class InferredFiles:
    """Local files of which Spark is to say what columns they have.

    `options` are those of Spark's reader of the format. The files of a group have the same columns
    in the same places; the columns of the first group are the answer, with types that all groups
    agree on by names.
    """

    format: str
    options: Mapping[str, str]
    groups: tuple[tuple[str, ...], ...]


class Interruption(Protocol):
    """The means by which a statement, or a tick, is ended before its time."""

    def on_cancel_or_deadline(self, action: Callable[[], None]) -> AbstractContextManager[None]:
        """Calls `action`, in any thread, if the statement is to end while the block runs."""

    def check_deadline(self, doing: str) -> None:
        """Raises when the statement is to end; `doing` says before what."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The updates of a tick, and what each step of the program did for them, in their order.

    `load_us`: to read what has changed.
    `scanned`: the collections that were read whole, each as often as it was.
    `next_change`: the first time from the tick's upper on at which the output changes though no
    input does, if none did before; TIMESTAMP_MAX: there is none.
    """

    updates: pa.Table
    steps: tuple[StepRecord, ...]
    next_change: Timestamp = TIMESTAMP_MAX
    load_us: int = 0
    scanned: tuple[str, ...] = ()


class TickEnded(Exception):
    """A tick of a program has ended before it was done: nothing of it counts.

    `reason`: `large`, it holds more than it may; `slow`, it takes longer than it may; `closed`,
    its dataflow is removed.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the tick has ended: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """A replica by its name in the environment, and its weight beside the others."""

    name: str
    weight: int


@dataclass(frozen=True, slots=True)
class ProgramOwner:
    """The view that a program maintains; `name` is for messages."""

    id: GlobalId
    name: str


@dataclass(frozen=True, slots=True)
class Hydrated:
    """A program keeps what it looks up, as of the time of its inputs.

    `next_change`: the first time after that at which the output changes though no input does.
    """

    next_change: Timestamp


@dataclass(frozen=True, slots=True)
class Behind:
    """An arrangement that the program shares has no updates from `upper` on yet."""

    upper: Timestamp


@dataclass(frozen=True, slots=True)
class MissedUpdates:
    """The updates of collections from `lower` on, up to where a program begins.

    `deltas`: of those that have changed; None: the updates cannot be read any more.
    """

    lower: Timestamp
    deltas: Mapping[str, NamedUpdates] | None


class TickProgram(Protocol):
    """A program in the driver, with what it keeps between ticks. Not thread-safe."""

    @property
    def handle(self) -> str:
        """The name under which queries in the driver find the program's index."""

    def load(self, inputs: InputContents, missed: MissedUpdates | None = None) -> Hydrated | Behind:
        """Hydrates what it keeps, or takes what other programs keep already.

        `Behind`: that lacks updates, with which, or with the answer that nobody has them, this is
        to be called again. Waits while another program loads what this one needs, too.
        Raises SLACKWATER_INDEX_MEMORY when there is no room for it.
        """

    def tick(
        self,
        lower: Timestamp,
        upper: Timestamp,
        deltas: Mapping[str, NamedUpdates],
        most_ms: int | None = None,
        before: InputContents | None = None,
    ) -> Ticked:
        """The output's updates with ``lower <= __time < upper``, consolidated.

        Columns: those of the output by their position, ``__time``, ``__diff``. `deltas` are the
        updates of the collections that have changed, if any has. `before` are all of them just
        before `lower`, for a program that is not resident. To be called again, it gives the same.
        Raises SLACKWATER_INDEX_MEMORY when what it keeps grows out of its room, and `TickEnded`
        when the tick takes longer than about `most_ms`, or too much memory.
        """

    def sizes(self) -> tuple[Size, ...]:
        """Those of the program's arrangements; zeros where it is not resident."""

    def reorder(self, program: Program) -> None:
        """Goes on as `program`, which differs in nothing but the order of its lookups."""

    def committed(self, upper: Timestamp) -> None:
        """No tick will begin before `upper`."""

    def advanced(self, upper: Timestamp) -> None:
        """Nothing changes before `upper`, neither the inputs nor by itself. Asks no driver.

        A program that is opened later finds what this one keeps complete up to there, and so does
        `Engine.unite_arrangements`.
        """

    def close(self) -> None: ...


class Check(Protocol):
    """A condition that few rows at a time are asked about, without a job. Thread-safe."""

    def holds(self, rows: pa.Table) -> list[bool]:
        """For each row whether the condition is true. One that fails is not; why is not said."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Spark, with temporary views over updates.

    Each method raises SlackwaterError: Spark's own condition for what the SQL or a row causes.
    Thread-safe.
    """

    def under(self, settings: Mapping[str, str] | None) -> Engine:
        """The same Spark, for queries that mean what they mean with these settings.

        All other settings that can change a result have Spark's defaults, not those of the
        application. None: the time zone is UTC, and the rest is as the application has it.
        """

    def on_replica(self, share: ReplicaShare) -> Engine:
        """The same Spark, for a replica, which has arrangements of its own.

        Of the memory for arrangements, and of the time of executors while all want some, each
        replica gets what its weight is of all weights. Another weight counts from now on.
        """

    def end_replica(self, name: str) -> None:
        """The replica has ended: others get its share. An unknown name changes nothing."""

    def ended_by(self, interruption: Interruption) -> AbstractContextManager[None]:
        """While the block runs, what this thread asks of Spark ends when `interruption` says so."""

    def rows_read(self, interruption: Interruption) -> int:
        """The number of rows read by the jobs that `interruption` would end, in any thread.

        A collection counts as often as the jobs read it. 0: none of them runs.
        """

    def analyze(
        self, text: str, catalog: str, namespace: Sequence[str], functions: Sequence[Function] = ()
    ) -> Analysis:
        """`functions` are known to the query, whatever its names mean elsewhere.

        Raises SLACKWATER_TEMPORARY_FUNCTION where one is called that cannot be kept.
        """

    def plan(
        self,
        text: str,
        catalog: str,
        namespace: Sequence[str],
        known: Known = BY_CATALOG,
        indexed: Indexed = NOTHING_INDEXED,
    ) -> KeptPlan:
        """The query's plan. Its id holds for this engine, until `forget_plan`.

        The views of `indexed` stay nodes of their own (`AnalyzedPlan.views`). Its indexes that can
        be planned are those of the plan (`AnalyzedPlan.indexed`). The plan's fingerprint is that of
        the plan which knows of none: both compute the same rows.
        """

    def infer(self, files: InferredFiles) -> RelationDesc:
        """The columns that Spark infers from the files. All may be NULL.

        Raises what Spark says of files that it cannot read.
        """

    def forget_plan(self, plan_id: str) -> None:
        """The driver may drop what it keeps of the plan. An unknown id changes nothing."""

    def look_up(self, wanted: Lookup) -> bytes | None:
        """The rows of the keys, as an Arrow IPC stream; None: the index does not have them.

        So it is where it is not there any more, has forgotten the time, or has too many.
        """

    def take_all(self, wanted: WholeIndex) -> bytes | PeekStashed | None:
        """All rows of an index, as `look_up` has those of keys, or as a file if they are many.

        One that `ended_by` ends leaves no file.
        """

    def arrangements(self) -> Sequence[ArrangementSize]:
        """The arrangements that programs of the replica keep, with all settings."""

    def unite_arrangements(self) -> None:
        """Lets programs that keep the same, from different times on, go on from one arrangement.

        To be called when programs were told that nothing changes. Asks the driver only if a program
        was loaded, or arrangements with the same rows were found, since the last call.
        """

    def arrangement_memory(self) -> Sequence[ArrangementMemory]:
        """The room for these arrangements, in memory and in files."""

    def open_program(
        self,
        kept: KeptPlan,
        program: Program,
        owner: ProgramOwner,
        as_of: Timestamp,
        resident: bool,
    ) -> TickProgram:
        """A program whose first tick begins just after `as_of`.

        `resident`: it keeps what it looks up. Else each tick reads what it needs from the inputs,
        and it keeps but the rows that wait for their times.
        """

    def collect_view(self, view: ViewContents, most_ms: int | None = None) -> pa.Table | None:
        """The contents, as updates at their time. None: they are too many; see `write_view`.

        Raises `TickEnded` when that takes longer than `most_ms`.
        """

    def write_view(
        self, view: ViewContents, directory: str, most_ms: int | None = None
    ) -> list[WrittenFile]:
        """Writes what `collect_view` gives into Parquet files, by executors."""

    def failing_row(self, view: ViewContents, *, few: bool) -> FailingRow | None:
        """A row for which the contents cannot be computed, as they cannot; `few`: one task looks.

        The same contents have the same row. None: the error cannot be brought to one. Raises what
        has nothing to do with the rows, as when there is no storage.
        """

    def check(self, condition: str, columns: RelationDesc) -> Check:
        """The condition over rows with `columns`; the last one is what the condition calls now.

        Raises SLACKWATER_INVALID_CHECK.
        """

    def milliseconds(self, expression: str) -> int:
        """The moment of a constant expression, in milliseconds since the epoch.

        Raises SLACKWATER_INVALID_AS_OF.
        """

    def register(
        self,
        view_name: str,
        desc: RelationDesc,
        relation: Mapping[str, Any],
        *,
        consolidated: bool = False,
    ) -> None:
        """Makes the temporary view over a relation in the form that `relation_json` writes.

        Columns: those of `desc`, ``__time``, ``__diff``. `consolidated`: each row once at each
        time, with the sum of its diffs, if that is not zero.
        """

    def unregister(self, view_names: Sequence[str]) -> None: ...

    def collect(
        self, sql: str, catalog: str | None = None, namespace: Sequence[str] | None = None
    ) -> pa.Table: ...

    def write(self, sql: str, directory: str) -> list[WrittenFile]:
        """Runs the query and writes its updates as Parquet files below `directory`, a URI."""
