"""The calls of the shim: one frozen type for the request of each endpoint of protocol section 2.

`slackwater.server.decoding` makes them of JSON, once, and refuses fields that they do not have.
`Caller` has what each call may carry beside its own request. Names of fields are the protocol's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.time.selection import AtLeastTimestamp, AtTimestamp
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import JsonType, RelationDesc

AsOf = AtTimestamp | AtLeastTimestamp

NO_CONTEXT = Context()


def _new_call() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Caller:
    """The session, the context and the statement of a call.

    `call` names this call alone, `execution` the statement that it belongs to. `transaction` is
    ``open`` when the session is inside a block, as far as the shim knows. `internal`: a statement
    or tick of the coordinator's own waits for the call. `application` is the name of the Spark
    application, and `sql` the text of a statement of Spark's, if it has one.
    """

    session: str | None = None
    context: Context | None = None
    execution: str | None = None
    transaction: Literal["open"] | None = None
    internal: bool = False
    call: str = field(default_factory=_new_call)
    application: str | None = None
    sql: str | None = None

    @property
    def statement(self) -> str:
        """The name of the statement, on lines of the log too; of one that has none, of the call."""
        return self.execution or self.call

    @property
    def session_id(self) -> str:
        """The session. Raises SLACKWATER_INVALID_REQUEST for a call that lacks one."""
        if self.session is None:
            raise user_error(
                "SLACKWATER_INVALID_REQUEST", request="Caller", reason="it lacks the field session"
            )
        return self.session

    @property
    def where(self) -> Context:
        """The context of the call; without one, the default schema and no user."""
        return self.context or NO_CONTEXT


def schema_of(namespace: tuple[str, ...]) -> str:
    """The schema that a namespace names. Raises SLACKWATER_SCHEMA_NOT_FOUND."""
    if len(namespace) != 1:
        raise user_error("SLACKWATER_SCHEMA_NOT_FOUND", schemaName=".".join(namespace))
    return namespace[0]


@dataclass(frozen=True, slots=True)
class CloseSession:
    """The session of the caller ends."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ends the running calls of the caller's execution, or the one `named_call`."""

    named_call: str | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Asks what the running calls of the caller's execution wait for."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Says how far the jobs of the caller's write are: so many rows, and of so many tasks, as far
    as these are known, so many are done. `tasks` is None when they are over."""

    rows: int = 0
    tasks: int | None = None
    tasks_done: int = 0


@dataclass(frozen=True, slots=True)
class QueryIn:
    """Asks for the query whose names the coordinator would resolve for a statement."""

    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    text: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Executes a statement. `write_id` is the client's name for a COMMIT.

    `planned_at` is what the answer to its plan said.
    """

    text: str
    write_id: str | None = None
    planned_at: int | None = None


@dataclass(frozen=True, slots=True)
class RelationRead:
    """A relation that a query reads; `not_null` names columns that its plan takes for NOT NULL."""

    id: GlobalId
    as_of: AsOf | None = None
    not_null: tuple[str, ...] = ()


class ReadStrategy(Enum):
    """The way in which a query has read collections when it ran. Of several the first counts.

    FAST_PATH: all rows of collections came from indexes in memory. CONSTANT: there were none to be
    read. STANDARD: anything else.
    """

    STANDARD = "standard"
    FAST_PATH = "fast-path"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class EndedRead:
    """The end of the reads under a hold in Spark, `ago_ms` before the call was sent.

    `took_ms` is how long Spark's execution took, if it has told of both its ends. `rows` is how
    many it brought to the driver, if somebody has counted them; `condition` and `message` are of
    the error with which it failed. `strategy` is None where nothing ran under the hold.
    """

    hold: str
    ago_ms: int = 0
    took_ms: int | None = None
    rows: int | None = None
    condition: str | None = None
    message: str | None = None
    strategy: ReadStrategy | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """The relations of a query. `as_of` is for those that state no time of their own.

    `released` are holds of other statements that have ended, released before anything else, and
    `ended` says how some of these did. `views` are the plain views that were expanded in the query.
    """

    relations: tuple[RelationRead, ...] = ()
    as_of: AsOf | None = None
    write_targets: tuple[GlobalId, ...] = ()
    released: tuple[str, ...] = ()
    views: tuple[GlobalId, ...] = ()
    ended: tuple[EndedRead, ...] = ()

    @property
    def names_no_time(self) -> bool:
        """Whether the time is to be chosen for all relations."""
        return self.as_of is None and not any(each.as_of for each in self.relations)


@dataclass(frozen=True, slots=True)
class BindAnswer:
    """The answer to a bind. `relations` are in the order of the request.

    Each is the JSON of a relation of the protocol. `lease_ms`: the hold has locked tables, and is
    lost when it is not renewed for so long. `views` has the indexes of those views that have some.
    `result_bytes` is the most that the session lets a query bring to the driver. `again`: who reads
    all of these relations by indexes, soon, and as long as the leader's mark says the same, may do
    so at the mark's read timestamp without a bind.
    """

    timestamp: Timestamp
    hold: str | None
    relations: tuple[Mapping[str, Any], ...]
    result_bytes: int
    again: bool = False
    lease_ms: int | None = None
    views: Mapping[GlobalId, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peek:
    """A look-up of keys in an index, from an application that does not keep it.

    `keys` is an Arrow IPC stream in base64, with a row for each key; None: all keys. The rows at
    `as_of` are wanted, or those of the last time before at which the index is complete; at most so
    many `rows` and `bytes` of them. More rows of all keys may come as a file, which is there as
    long as `hold` is; None: they may not.
    """

    index: GlobalId
    keys: str | None
    as_of: Timestamp
    rows: int
    bytes: int
    hold: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """The part of a query that has looked for rows of `relation` with one value in each column.

    It has read `rows_read` rows, of which `rows_kept` have these values.
    """

    relation: GlobalId
    columns: tuple[str, ...]
    rows_read: int
    rows_kept: int


@dataclass(frozen=True, slots=True)
class Scanned:
    """Tells of scans of a query of the session which kept few of their rows.

    `later`: nobody looks at the answer; a notice goes out with the session's next one.
    """

    scans: tuple[Scan, ...]
    later: bool = False


@dataclass(frozen=True, slots=True)
class System:
    """System relations, by ``schema.name``, all at one time.

    Of those in `after`, only rows are wanted whose first TIMESTAMP that is NOT NULL is at or after
    the milliseconds since the epoch there, and those of what has not finished.
    """

    relations: tuple[str, ...] = ()
    after: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Release:
    """Releases holds. Unknown ones are ignored. `ended` says how reads under some of them did."""

    holds: tuple[str, ...] = ()
    ended: tuple[EndedRead, ...] = ()


@dataclass(frozen=True, slots=True)
class UnboundRead:
    """A read at `timestamp` that nobody has asked for: see `BindAnswer.again`.

    It has begun and ended so many ms before the call was sent, and has found its rows `took_us`
    after its beginning. The rest is as in `Caller` and `EndedRead`.
    """

    session: str
    execution: str
    timestamp: Timestamp
    began_ago_ms: int
    took_us: int
    ago_ms: int = 0
    took_ms: int | None = None
    context: Context | None = None
    application: str | None = None
    sql: str | None = None
    rows: int | None = None
    condition: str | None = None
    message: str | None = None
    strategy: ReadStrategy | None = None


@dataclass(frozen=True, slots=True)
class UnboundReads:
    """Tells of reads of any sessions without a bind, after their ends."""

    reads: tuple[UnboundRead, ...]


@dataclass(frozen=True, slots=True)
class Renew:
    """Renews the leases of locks, by their holds. Unknown ones are ignored."""

    holds: tuple[str, ...]


class WriteMode(Enum):
    """The effect of a write's rows: they are added, replace the table's, or have their diffs."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    DIFF = "diff"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file that executors have put into the directory of a write."""

    uri: str
    rows: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows for one table: Arrow IPC streams in base64, and files.

    `table` None: the definition that comes with them makes the table.
    """

    write_id: str
    table: GlobalId | None
    mode: WriteMode
    inline: tuple[str, ...] = ()
    files: tuple[StagedFile, ...] = ()


class TableMode(Enum):
    """Whether a table that is defined with its rows is new, replaces another one, or either."""

    CREATE = "create"
    REPLACE = "replace"
    CREATE_OR_REPLACE = "create_or_replace"


@dataclass(frozen=True, slots=True)
class NewTable:
    namespace: tuple[str, ...]
    name: str
    schema: RelationDesc
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class StageTable:
    """A table that is to be made, or replaced, together with its rows."""

    table: NewTable
    mode: TableMode

    @property
    def statement(self) -> str:
        return "CREATE TABLE AS SELECT" if self.mode is TableMode.CREATE else "REPLACE TABLE"


@dataclass(frozen=True, slots=True)
class StagedTarget:
    """The table that a staged definition makes or fills.

    `replaces` is the table that exists. Without `shard` it keeps its columns and gets other
    contents; else the definition makes a new table, whose shard has this reserved id. The rows have
    the columns of `schema`.
    """

    id: GlobalId
    replaces: GlobalId | None
    shard: int | None
    schema: RelationDesc


@dataclass(frozen=True, slots=True)
class Definition:
    """A staged table as a write brings it. Without `as_select` it is empty afterwards."""

    staged: StageTable
    target: StagedTarget
    as_select: bool


@dataclass(frozen=True, slots=True)
class WriteTables:
    """Rows for one table, or for several in one commit; `definition` is committed with them.

    `hold` is that of the bind with the tables as its write targets.
    """

    write_id: str
    rows: tuple[TableRows, ...]
    hold: str | None = None
    definition: Definition | None = None


@dataclass(frozen=True, slots=True)
class PrepareWrite:
    """Asks where the files of a write go; `shard` is that of a definition's target."""

    write_id: str
    table: GlobalId | None = None
    shard: int | None = None


@dataclass(frozen=True, slots=True)
class ListSchemas:
    """Lists all schemas."""


@dataclass(frozen=True, slots=True)
class ListObjects:
    namespace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindSchemas:
    """Schemas by a pattern of JDBC; None: all of them."""

    schemas: str | None = None


@dataclass(frozen=True, slots=True)
class FindRelations:
    """Objects that can be read, by patterns of JDBC; None: all. Without `types`: of any type."""

    schemas: str | None = None
    names: str | None = None
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FindColumns:
    """The columns of what can be read, by patterns of JDBC; None: all."""

    schemas: str | None = None
    names: str | None = None
    columns: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    namespace: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class CreateNamespace:
    namespace: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class AlterNamespace:
    """Changes a schema. An empty `comment` removes its comment."""

    namespace: tuple[str, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class DropNamespace:
    namespace: tuple[str, ...]
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a column. `name` is a path: for a field in a column it has parts. `default` is SQL."""

    name: tuple[str, ...]
    type: JsonType
    nullable: bool
    comment: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SetNullability:
    name: tuple[str, ...]
    nullable: bool


@dataclass(frozen=True, slots=True)
class SetColumnComment:
    name: tuple[str, ...]
    comment: str


@dataclass(frozen=True, slots=True)
class SetProperty:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveProperty:
    name: str


@dataclass(frozen=True, slots=True)
class SetComment:
    comment: str


@dataclass(frozen=True, slots=True)
class UnsupportedChange:
    """A change that Spark knows and tables of ours do not take: `kind` as the protocol names it."""

    kind: str
    spark_name: str | None = None


TableChange = (
    AddColumn
    | SetNullability
    | SetColumnComment
    | SetProperty
    | RemoveProperty
    | SetComment
    | UnsupportedChange
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    namespace: tuple[str, ...]
    name: str
    changes: tuple[TableChange, ...]


@dataclass(frozen=True, slots=True)
class RenameTable:
    namespace: tuple[str, ...]
    name: str
    to_namespace: tuple[str, ...]
    to_name: str


@dataclass(frozen=True, slots=True)
class DropRelation:
    namespace: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class ReadMetrics:
    """The metrics now, as Prometheus reads them."""


@dataclass(frozen=True, slots=True)
class NewView:
    """Creates a view. `schema` has its columns, with their comments."""

    namespace: tuple[str, ...]
    name: str
    schema: RelationDesc
    query: str
    properties: Mapping[str, str] = field(default_factory=dict)
    replace: bool = False
    comment: str | None = None
