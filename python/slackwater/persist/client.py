"""The client of the shards: what the leader reads and writes, with all states in memory.

Only the leader writes, and each of its transactions first updates the environment's row under the
condition that its epoch still leads. So what is cached is what is stored, reads ask no database,
and a commit needs few statements. The work is done by what the client is put together from:
`transactions`, `shard_reads`, `commits`, `definitions` and `shard_maintenance`. Source: spec
controllers 2.1, 2.10, 3.3, 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Connection, Engine

from slackwater.persist import blobs, directories
from slackwater.persist.appends import (
    Append,
    DuplicateWrite,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
)
from slackwater.persist.blobs import Blobs
from slackwater.persist.commits import Commits
from slackwater.persist.definitions import ShardDefinitions
from slackwater.persist.metastore import RETRY_POLICY, RetryPolicy
from slackwater.persist.negation import Negation
from slackwater.persist.parts import NewPart, Part
from slackwater.persist.rows import ShardState, WriteResult
from slackwater.persist.shard_maintenance import ShardMaintenance
from slackwater.persist.shard_reads import ShardReads
from slackwater.persist.transactions import Step, Transactions
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp
from slackwater.repr.relation import RelationDesc

__all__ = [
    "Append",
    "DuplicateWrite",
    "PersistClient",
    "ShardState",
    "TablesAppend",
    "UnknownShard",
    "UpperMismatch",
    "WriteResult",
]

T = TypeVar("T")


class PersistClient:
    """The shards of one environment, for the leader of `epoch`. Thread-safe.

    Writers wait for each other. Readers wait for nobody, except that the first look at a
    shard's parts waits for the writer. Each method that writes is one transaction
    and raises `Fenced` when another application leads, SLACKWATER_METASTORE_UNAVAILABLE when the
    metastore was away for 10 s (the text says if the outcome is unknown), SLACKWATER_NO_SPACE.
    Steps may be run more than once when the metastore goes away; they take effect once at most.
    """

    def __init__(
        self,
        engine: Engine,
        blobs: Blobs,
        epoch: int,
        *,
        clock: Callable[[], int] = wall_clock_ms,
        retry_policy: RetryPolicy = RETRY_POLICY,
    ) -> None:
        """`blobs` holds the files of parts; `clock` gives wall clock milliseconds."""
        self.blobs = blobs
        self._transactions = Transactions(engine, epoch, retry_policy)
        self._reads = ShardReads(self._transactions, blobs)
        self._definitions = ShardDefinitions(self._transactions, self._reads)
        self._commits = Commits(self._transactions, self._reads, clock)
        self._maintenance = ShardMaintenance(self._transactions, self._reads, blobs, clock)

    # Transactions

    def transact(self, *steps: Step) -> None:
        """Runs the steps in one fenced transaction."""
        self._transactions.transact(*steps)

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body`, which only reads, beside the writers and without asking who leads."""
        return self._transactions.query(body)

    def commit(
        self,
        appends: Sequence[Append],
        *,
        tables: TablesAppend | None = None,
        steps: Sequence[Step] = (),
        write_ids: Mapping[str, WriteResult] = {},
    ) -> bool:
        """Appends to any number of shards, runs the steps and remembers the writes, atomically.

        True: it is done. False: all of the write ids were committed before, so this is a
        repetition, and nothing was added (I8); `DuplicateWrite` when only some were. Else every
        expected upper must be the actual one (`UpperMismatch`), and every shard must exist
        (`UnknownShard`). Each part's times must be within the append's bounds (ValueError).

        When the error says that the outcome is unknown, `written` tells it as soon as the metastore
        can be reached again, and repeating the call with the same write ids is safe at any time.
        Without write ids the uppers tell: an append of a non-empty interval happened if and only
        if the upper moved on from `lower` by this leader's hand.
        """
        return self._commits.commit(appends, tables=tables, steps=steps, write_ids=write_ids)

    @property
    def epoch(self) -> int:
        """That of the leader which this client is for."""
        return self._transactions.epoch

    def confirm_leadership(self) -> None:
        """Raises `Fenced` when another application leads.

        When it returns, no write of a later leader was acknowledged before the call. To be asked
        by reads that must see all of them.
        """
        self._transactions.confirm_leadership()

    def advance(self, uppers: Mapping[int, Timestamp]) -> None:
        """Moves the uppers of shards that have their own, without data, in one transaction.

        An upper that has been reached already stays. Raises `UnknownShard`.
        """
        self._commits.advance(uppers)

    def set_since(self, sinces: Mapping[int, Timestamp]) -> None:
        """Moves sinces forward in one transaction; a since never moves back.

        The caller makes sure that no hold is before them. Raises `UnknownShard`.
        """
        self._maintenance.set_since(sinces)

    def reserve_shard(self) -> int:
        """An id for a shard to come, in whose directory files may be before it is made.

        It is never given again. Files of a shard that is never made are found by listing.
        """
        return self._definitions.reserve_shard()

    # Steps: to be called inside a transaction of this client

    def create_shard(
        self,
        conn: Connection,
        desc: RelationDesc,
        since: Timestamp,
        upper: Timestamp | None,
        shares_tables_upper: bool,
        *,
        reserved: int | None = None,
    ) -> int:
        """Makes a shard and returns its id, which was never used before, or was `reserved`.

        `shares_tables_upper`: its upper is the tables upper, and `upper` is None; else `upper` is
        needed.
        """
        return self._definitions.create_shard(
            conn, desc, since, upper, shares_tables_upper, reserved
        )

    def add_first_parts(
        self,
        conn: Connection,
        shard_id: int,
        news: Sequence[NewPart],
        lower: Timestamp,
        upper: Timestamp,
    ) -> None:
        """Gives a shard that this transaction has made its first parts, of ``[lower, upper)``."""
        self._commits.add_first_parts(conn, shard_id, news, lower, upper)

    def drop_shard(self, conn: Connection, shard_id: int) -> None:
        """Marks the shard as dropped: it takes no more appends, and is to be finalized.

        Who still holds it reads on; its parts and files stay until `finalize`. Dropping twice has
        no effect. Raises `UnknownShard`.
        """
        self._definitions.drop_shard(conn, shard_id)

    def set_desc(
        self, conn: Connection, shard_id: int, desc: RelationDesc, expected: RelationDesc
    ) -> None:
        """Changes the columns of the shard; of parts from before, a new column reads as NULL.

        Raises `UnknownShard`, `ExpectedMismatch` when the columns are not the expected ones, and
        `Incompatible`. With the columns that there are it has no effect.
        """
        self._definitions.set_desc(conn, shard_id, desc, expected)

    # Maintenance

    def replace_parts(
        self,
        shard_id: int,
        removed: Set[int],
        news: Sequence[NewPart],
        *,
        since: Timestamp = TIMESTAMP_MIN,
    ) -> bool:
        """Puts `news` in the place of exactly the parts whose ids are `removed`, if all are there.

        False, and nothing is changed, when one is not, or when the shard was dropped. In the same
        transaction the since moves to `since`, if that is forward, and files that no part names
        any more go onto the garbage list. The caller makes sure that reads at and after `since`
        are the same with the new parts (I3), and that nobody holds the shard before. Tuples of
        parts that readers have stay readable. Raises `UnknownShard`.
        """
        return self._maintenance.replace_parts(shard_id, removed, news, since=since)

    def take_changed(self) -> frozenset[int]:
        """The shards that commits added parts to since the last call."""
        return self._commits.take_changed()

    def unfinalized(self) -> tuple[int, ...]:
        """The dropped shards that have not been finalized, also by earlier leaders."""
        return self._reads.unfinalized()

    def finalize(self, shard_id: int, limit: int = 1000) -> bool:
        """Makes a dropped shard a tombstone: since and upper empty, no parts. True once it is one.

        A call deals with at most `limit` parts, whose files go onto the garbage list. The caller
        makes sure that nobody holds the shard. Of a tombstone it changes nothing (I28). Raises
        `UnknownShard`, and ValueError for a shard that was not dropped (I26).
        """
        return self._maintenance.finalize(shard_id, limit)

    def discard(self, news: Sequence[NewPart]) -> None:
        """Deletes the files of parts that were made and will not be committed."""
        self._maintenance.discard(news)

    # Reading

    def state(self, shard_id: int) -> ShardState:
        """The state of the shard, also of a dropped one. Raises `UnknownShard`."""
        return self._reads.state(shard_id)

    def is_finalized(self, shard_id: int) -> bool:
        """Whether the shard is a tombstone."""
        return self._reads.is_finalized(shard_id)

    def shard_ids(self) -> tuple[int, ...]:
        """All shards that are not dropped."""
        return self._reads.shard_ids()

    def upper(self, shard_id: int) -> Timestamp:
        """The upper of the shard, or the tables upper if it shares that. Raises `UnknownShard`."""
        return self._reads.upper(shard_id)

    def tables_upper(self) -> Timestamp:
        """The upper that shards of tables share."""
        return self._reads.tables_upper()

    def written(self, write_id: str) -> WriteResult | None:
        """What the write with this id did, if it was committed in the last day.

        Definite also after a commit whose outcome was unknown: one that may still be under way is
        waited for.
        """
        return self._commits.written(write_id)

    def parts(self, shard_id: int) -> tuple[Part, ...]:
        """All parts of the shard, ordered by time. Raises `UnknownShard`."""
        return self._reads.parts(shard_id)

    def parts_at(self, shard_id: int, as_of: Timestamp) -> tuple[Part, ...]:
        """The parts that are needed for the contents at `as_of`, ordered by time.

        They may hold later times too: filter. A uniform file part and its exact negation, both at
        or before `as_of`, are left out. Raises `UnknownShard`.
        """
        return self._reads.parts_at(shard_id, as_of)

    def parts_between(self, shard_id: int, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
        """The parts whose times meet ``[lower, upper)``, ordered by time.

        Raises `UnknownShard`.
        """
        return self._reads.parts_between(shard_id, lower, upper)

    def read(
        self,
        parts: Sequence[Part | NewPart],
        desc: RelationDesc,
        *,
        lower: Timestamp | None = None,
        upper: Timestamp | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The updates in the parts; see `slackwater.persist.reading.read`."""
        return self._reads.read(parts, desc, lower=lower, upper=upper, columns=columns)

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """The rows at `as_of`, a row of multiplicity n n times. For small collections.

        The caller holds the shard at `as_of`, which is before its upper. Raises `UnknownShard`,
        `SinceAdvanced` for a time that cannot be told apart any more (I34), and `FatalError` when a
        row has a negative multiplicity.
        """
        return self._reads.snapshot(shard_id, as_of)

    def negation(self, shard_id: int, upper: Timestamp) -> Negation:
        """What retracts all that is present just before `upper`, at a time that is chosen later.

        Uniform file parts are negated over the same file, which is not read; the rest is read now.
        The caller makes sure that nothing else is written from this call until the commit, that
        the shard is held meanwhile, and that the commit's time is at or after `upper`. Raises
        `UnknownShard` and what `file_part` raises.
        """
        return self._reads.negation(shard_id, upper)

    def unmatched_retractions(self, shard_id: int, changes: Sequence[NewPart]) -> int:
        """How many retractions of `changes` take away rows that are not there.

        The caller makes sure that nothing else is written from this call until the commit of the
        changes, and that the shard is held meanwhile. Raises `UnknownShard` and what `read` does.
        """
        return self._reads.unmatched_retractions(shard_id, changes)

    # Parts and their places

    def inline_part(self, updates: pa.Table) -> NewPart:
        """See `slackwater.persist.blobs.inline_part`."""
        return blobs.inline_part(updates)

    def file_part(self, updates: pa.Table, directory: str) -> NewPart:
        """See `slackwater.persist.blobs.file_part`."""
        return blobs.file_part(self.blobs, updates, directory)

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        """The updates as parts of the shard: inline up to 2 MB, else a file; none for no rows."""
        return blobs.new_parts(self.blobs, updates, self.shard_directory(shard_id))

    def shard_directory(self, shard_id: int) -> str:
        """The URI of the directory of the shard's files. It need not exist yet."""
        return directories.shard_directory(self.blobs, shard_id)

    def staging_directory(self, shard_id: int, write_id: str) -> str:
        """The URI of a directory for the files of one write. Registered files stay there.

        Raises ValueError for a write id that is no plain name.
        """
        return directories.staging_directory(self.blobs, shard_id, write_id)
