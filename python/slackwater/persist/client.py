"""The client of the shards: what the leader reads and writes, with all states in memory.

Only the leader writes, and each of its transactions first updates the environment's row under the
condition that its epoch still leads. So what is cached is what is stored, reads ask no database,
and a commit needs few statements. Source: spec controllers 2.1, 2.10, 3.3, 3.9.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from threading import Lock, RLock
from typing import Any, TypeVar

import pyarrow as pa
from sqlalchemy import (
    Connection,
    Engine,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from slackwater.persist import blobs, contents, garbage, reading, statements
from slackwater.persist.appends import (
    Append,
    DuplicateWrite,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
    check_bounds,
)
from slackwater.persist.blobs import Blobs
from slackwater.persist.cache import ShardCache, load
from slackwater.persist.evolution import ExpectedMismatch, Incompatible, incompatibility
from slackwater.persist.holds import SinceAdvanced
from slackwater.persist.leadership import Fenced, was_last_commit
from slackwater.persist.metastore import (
    PATIENCE,
    OutcomeUnknown,
    Patience,
    environment,
    query,
    transaction,
)
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import FileBody, NewPart, Part, Uniform
from slackwater.persist.rows import (
    ShardState,
    WriteResult,
    committed_part,
    part_from_row,
    part_to_row,
)
from slackwater.persist.tables import parts, shards, writes
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp
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
Step = Callable[[Connection], None]
Effect = Callable[[], None]

WRITE_IDS_KEPT_MS = 24 * 3600 * 1000
_PRUNE_EVERY_MS = 3600 * 1000
_WRITE_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(slots=True)
class _Open:
    """The transaction that is being run. Its effects on the cache wait for the commit."""

    conn: Connection
    token: str
    next_shard_id: int
    effects: list[Effect] = field(default_factory=list)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


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
        clock: Callable[[], int] = _wall_clock_ms,
        patience: Patience = PATIENCE,
    ) -> None:
        """`blobs` holds the files of parts; `clock` gives wall clock milliseconds."""
        self.blobs = blobs
        self._engine = engine
        self._epoch = epoch
        self._clock = clock
        self._patience = patience
        self._write_lock = RLock()
        self._cache_lock = Lock()
        self._open: _Open | None = None
        self._stale = False
        self._pruned_ms = 0
        self._changed: set[int] = set()
        self._cache = self._load()

    # Transactions

    def transact(self, *steps: Step) -> None:
        """Runs the steps in one fenced transaction."""
        with self._write_lock:
            self._transaction(self._fence, *steps)

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body`, which only reads, beside the writers and without asking who leads."""
        return query(self._engine, body, patience=self._patience)

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
        check_bounds(appends, tables)
        with self._write_lock:
            self._refresh()
            try:
                self._check_uppers(appends, tables)
            except (UpperMismatch, UnknownShard):
                # A repetition is told apart before the uppers, which have moved since (spec 3.3).
                if write_ids and self._is_repeated(write_ids):
                    return False
                raise
            added = self._numbered(appends, tables)
            next_part = self._cache.next_part_id + len(added)

            def write(conn: Connection) -> None:
                self._fence(conn, tables=tables, next_part=next_part)
                self._move_uppers(conn, [(a.shard_id, a.lower, a.upper) for a in appends])
                self._insert_parts(conn, added)

            def remember(conn: Connection) -> None:
                if write_ids:
                    self._remember(conn, write_ids)

            def apply() -> None:
                self._cache.next_part_id = next_part
                if tables is not None:
                    self._cache.tables_upper = tables.upper
                self._apply_uppers({a.shard_id: a.upper for a in appends})
                self._changed.update(part.shard_id for part in added)
                for part in added:
                    if (index := self._cache.indexes.get(part.shard_id)) is not None:
                        index.add(part)

            try:
                self._transaction(write, *steps, remember, effect=apply)
            except DuplicateWrite:
                if self._is_repeated(write_ids):
                    return False
                raise
            return True

    def confirm_leadership(self) -> None:
        """Raises `Fenced` when another application leads.

        When it returns, no write of a later leader was acknowledged before the call. To be asked
        by reads that must see all of them.
        """
        statement = select(environment.c.epoch)
        epoch = self.query(lambda conn: conn.execute(statement).scalar_one())
        if epoch != self._epoch:
            raise Fenced(self._epoch, epoch)

    def advance(self, uppers: Mapping[int, Timestamp]) -> None:
        """Moves the uppers of shards that have their own, without data, in one transaction.

        An upper that has been reached already stays. Raises `UnknownShard`.
        """
        with self._write_lock:
            self._refresh()
            moves = []
            for shard_id, upper in uppers.items():
                state = self._writable(shard_id, grouped=False)
                if upper > state.upper:
                    moves.append((shard_id, state.upper, upper))
            if moves:
                self._transaction(
                    self._fence,
                    lambda conn: self._move_uppers(conn, moves),
                    effect=lambda: self._apply_uppers({move[0]: move[2] for move in moves}),
                )

    def set_since(self, sinces: Mapping[int, Timestamp]) -> None:
        """Moves sinces forward in one transaction; a since never moves back.

        The caller makes sure that no hold is before them. Raises `UnknownShard`.
        """
        with self._write_lock:
            self._refresh()
            moves = {
                shard_id: since
                for shard_id, since in sinces.items()
                if since > self.state(shard_id).since
            }

            def move(conn: Connection) -> None:
                rows = [{"moved": key, "to_since": since} for key, since in moves.items()]
                conn.execute(statements.MOVE_SINCE, rows)

            def apply() -> None:
                for shard_id, since in moves.items():
                    self._apply_since(shard_id, since)

            if moves:
                self._transaction(self._fence, move, effect=apply)

    # Steps: to be called inside a transaction of this client

    def create_shard(
        self,
        conn: Connection,
        desc: RelationDesc,
        since: Timestamp,
        upper: Timestamp | None,
        grouped: bool,
    ) -> int:
        """Makes a shard and returns its id, which was never used before.

        `grouped`: its upper is the tables upper, and `upper` is None; else `upper` is needed.
        """
        if grouped != (upper is None):
            raise ValueError("a grouped shard has no upper of its own, any other has one")
        current = self._current(conn)
        shard_id = current.next_shard_id
        current.next_shard_id += 1
        conn.execute(update(environment).values(next_shard_id=current.next_shard_id))
        conn.execute(
            insert(shards).values(
                shard_id=shard_id,
                schema_json=desc.to_json(),
                since=since,
                upper=upper,
                dropped=False,
            )
        )
        state = ShardState(shard_id, desc, since, Timestamp(upper or 0), grouped)

        def apply() -> None:
            self._cache.next_shard_id = max(self._cache.next_shard_id, shard_id + 1)
            self._cache.states[shard_id] = state
            self._cache.indexes[shard_id] = PartIndex()

        current.effects.append(apply)
        return shard_id

    def drop_shard(self, conn: Connection, shard_id: int) -> None:
        """Marks the shard as dropped: it takes no more appends, and is to be finalized.

        Who still holds it reads on; its parts and files stay until `finalize`. Dropping twice has
        no effect. Raises `UnknownShard`.
        """
        current = self._current(conn)
        self.state(shard_id)
        if shard_id in self._cache.dropped:
            return
        conn.execute(update(shards).where(shards.c.shard_id == shard_id).values(dropped=True))

        def apply() -> None:
            self._cache.dropped.add(shard_id)
            self._cache.unfinalized.add(shard_id)

        current.effects.append(apply)

    def set_desc(
        self, conn: Connection, shard_id: int, desc: RelationDesc, expected: RelationDesc
    ) -> None:
        """Changes the columns of the shard; of parts from before, a new column reads as NULL.

        Raises `UnknownShard`, `ExpectedMismatch` when the columns are not the expected ones, and
        `Incompatible`. With the columns that there are it has no effect.
        """
        current = self._current(conn)
        actual = self.state(shard_id).desc
        if shard_id in self._cache.dropped:
            raise UnknownShard(shard_id)
        if actual != expected:
            raise ExpectedMismatch(shard_id, actual)
        if (reason := incompatibility(actual, desc)) is not None:
            raise Incompatible(shard_id, reason)
        if actual == desc:
            return
        conn.execute(
            update(shards).where(shards.c.shard_id == shard_id).values(schema_json=desc.to_json())
        )

        def apply() -> None:
            self._cache.states[shard_id] = replace(self._cache.states[shard_id], desc=desc)

        current.effects.append(apply)

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
        with self._write_lock:
            self._refresh()
            state = self.state(shard_id)
            present = self.parts(shard_id)
            gone = tuple(part for part in present if part.part_id in removed)
            if shard_id in self._cache.dropped or len(gone) != len(removed) or not gone:
                return False
            lower, upper = min(p.lower for p in gone), max(p.upper for p in gone)
            first = self._cache.next_part_id
            added = tuple(
                committed_part(new, first + number, shard_id, lower, upper)
                for number, new in enumerate(news)
            )
            kept = [part for part in present if part.part_id not in removed]
            unnamed = garbage.unnamed(gone, [*kept, *added], self._clock())

            def write(conn: Connection) -> None:
                self._fence(conn, next_part=first + len(added))
                conn.execute(
                    statements.DELETE_PARTS, [{"gone": part_id} for part_id in sorted(removed)]
                )
                self._insert_parts(conn, added)
                garbage.add(conn, unnamed)
                if since > state.since:
                    conn.execute(statements.MOVE_SINCE, [{"moved": shard_id, "to_since": since}])

            def apply() -> None:
                self._cache.next_part_id = first + len(added)
                self._apply_since(shard_id, since)
                if (index := self._cache.indexes.get(shard_id)) is not None:
                    self._cache.indexes[shard_id] = index.replaced(removed, added)

            self._transaction(write, effect=apply)
            self._correct_stamps(unnamed)
        return True

    def take_changed(self) -> frozenset[int]:
        """The shards that commits added parts to since the last call."""
        with self._cache_lock:
            changed, self._changed = frozenset(self._changed), set()
            return changed

    def unfinalized(self) -> tuple[int, ...]:
        """The dropped shards that have not been finalized, also by earlier leaders."""
        with self._cache_lock:
            return tuple(sorted(self._cache.unfinalized))

    def finalize(self, shard_id: int, limit: int = 1000) -> bool:
        """Makes a dropped shard a tombstone: since and upper empty, no parts. True once it is one.

        A call deals with at most `limit` parts, whose files go onto the garbage list. The caller
        makes sure that nobody holds the shard. Of a tombstone it changes nothing (I28). Raises
        `UnknownShard`, and ValueError for a shard that was not dropped (I26).
        """
        with self._write_lock:
            self._refresh()
            state = self.state(shard_id)
            if shard_id not in self._cache.dropped:
                raise ValueError(f"shard {shard_id} is in use")
            if shard_id not in self._cache.unfinalized:
                return True
            present = self.parts(shard_id)
            gone, kept = present[:limit], present[limit:]
            unnamed = garbage.unnamed(gone, kept, self._clock())

            def write(conn: Connection) -> None:
                self._fence(conn)
                conn.execute(
                    update(shards)
                    .where(shards.c.shard_id == shard_id)
                    .values(since=TIMESTAMP_MAX, upper=TIMESTAMP_MAX)
                )
                if gone:
                    conn.execute(statements.DELETE_PARTS, [{"gone": part.part_id} for part in gone])
                garbage.add(conn, unnamed)

            def apply() -> None:
                self._cache.states[shard_id] = replace(
                    state, since=TIMESTAMP_MAX, upper=TIMESTAMP_MAX, grouped=False
                )
                self._cache.indexes[shard_id] = PartIndex.of(kept)
                if not kept:
                    self._cache.unfinalized.discard(shard_id)

            self._transaction(write, effect=apply)
            self._correct_stamps(unnamed)
        return not kept

    def discard(self, news: Sequence[NewPart]) -> None:
        """Deletes the files of parts that were made and will not be committed."""
        for new in news:
            if isinstance(new.body, FileBody):
                self.blobs.delete(new.body.uri)

    # Reading

    def state(self, shard_id: int) -> ShardState:
        """The state of the shard, also of a dropped one. Raises `UnknownShard`."""
        with self._cache_lock:
            return self._state(shard_id)

    def is_finalized(self, shard_id: int) -> bool:
        """Whether the shard is a tombstone."""
        with self._cache_lock:
            return shard_id in self._cache.dropped and shard_id not in self._cache.unfinalized

    def shard_ids(self) -> tuple[int, ...]:
        """All shards that are not dropped."""
        with self._cache_lock:
            return tuple(sorted(self._cache.states.keys() - self._cache.dropped))

    def upper(self, shard_id: int) -> Timestamp:
        """The upper of the shard; of a grouped one, that of the tables. Raises `UnknownShard`."""
        with self._cache_lock:
            state = self._cache.states.get(shard_id)
            if state is None:
                raise UnknownShard(shard_id)
            return self._cache.tables_upper if state.grouped else state.upper

    def tables_upper(self) -> Timestamp:
        """The upper that all grouped shards share."""
        return self._cache.tables_upper

    def written(self, write_id: str) -> WriteResult | None:
        """What the write with this id did, if it was committed in the last day.

        Definite also after a commit whose outcome was unknown: one that may still be under way is
        waited for.
        """
        if self._stale:
            with self._write_lock:
                self._refresh()
        statement = select(writes.c.time, writes.c.inserted, writes.c.deleted).where(
            writes.c.write_id == write_id
        )
        row = self.query(lambda conn: conn.execute(statement).one_or_none())
        return None if row is None else WriteResult(*row)

    def parts(self, shard_id: int) -> tuple[Part, ...]:
        """All parts of the shard, ordered by time. Raises `UnknownShard`."""
        return self._indexed(shard_id, PartIndex.parts)

    def parts_at(self, shard_id: int, as_of: Timestamp) -> tuple[Part, ...]:
        """The parts that are needed for the contents at `as_of`, ordered by time.

        They may hold later times too: filter. A uniform file part and its exact negation, both at
        or before `as_of`, are left out. Raises `UnknownShard`.
        """
        return self._indexed(shard_id, lambda index: index.at(as_of))

    def parts_between(self, shard_id: int, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
        """The parts whose times meet ``[lower, upper)``, ordered by time.

        Raises `UnknownShard`.
        """
        return self._indexed(shard_id, lambda index: index.between(lower, upper))

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
        return reading.read(
            parts, desc, blobs=self.blobs, lower=lower, upper=upper, columns=columns
        )

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """The rows at `as_of`, a row of multiplicity n n times. For small collections.

        The caller holds the shard at `as_of`, which is before its upper. Raises `UnknownShard`,
        `SinceAdvanced` for a time that cannot be told apart any more (I34), and `FatalError` when a
        row has a negative multiplicity.
        """
        state = self.state(shard_id)
        if as_of < state.since:
            raise SinceAdvanced(shard_id, state.since, as_of)
        desc = state.desc
        found = self.read(self.parts_at(shard_id, as_of), desc, upper=_after(as_of))
        rows = contents.present_rows(found)
        if rows is None:
            raise FatalError(f"shard {shard_id} has a negative multiplicity at {as_of}")
        return rows

    def negation(self, shard_id: int, time: Timestamp) -> tuple[NewPart, ...]:
        """Parts at `time` that retract all that is present just before.

        Uniform file parts are negated over the same file, which is not read; the rest is read. The
        caller makes sure that nothing else is written from this call until the commit, and that
        `time` is at or after the shard's upper. Raises `UnknownShard` and what `file_part` raises.
        """
        before = Timestamp(time - 1)
        negated, rest = [], []
        for part in self.parts_at(shard_id, before):
            match part.body:
                case FileBody(uniform=Uniform(_, diff)):
                    uniform = Uniform(time, -diff)
                    body = replace(part.body, uniform=uniform)
                    negated.append(NewPart(body, part.rows, time, time, uniform.diff < 0))
                case _:
                    rest.append(part)
        desc = self.state(shard_id).desc
        updates = contents.negated(self.read(rest, desc, upper=time), time)
        return (*negated, *self.new_parts(shard_id, updates))

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
        return self.blobs.uri("shards", str(shard_id))

    def staging_directory(self, shard_id: int, write_id: str) -> str:
        """The URI of a directory for the files of one write. Registered files stay there.

        Raises ValueError for a write id that is no plain name.
        """
        if _WRITE_ID.fullmatch(write_id) is None:
            raise ValueError(f"{write_id!r} cannot be the id of a write")
        return self.blobs.uri("shards", str(shard_id), f"{garbage.STAGING_PREFIX}{write_id}")

    # The transaction itself; the write lock is held in all that follows

    def _transaction(self, *steps: Step, effect: Effect | None = None) -> None:
        if self._open is not None:
            raise ValueError("a step cannot begin another transaction")
        self._refresh()
        token = uuid.uuid4().hex

        def body(conn: Connection) -> list[Effect]:
            self._open = _Open(conn, token, self._cache.next_shard_id)
            for step in steps:
                step(conn)
            return self._open.effects

        try:
            effects = transaction(
                self._engine,
                body,
                committed=lambda conn: was_last_commit(conn, self._epoch, token),
                patience=self._patience,
            )
        except OutcomeUnknown as unknown:
            self._stale = True
            raise unknown.error from None
        finally:
            self._open = None
        with self._cache_lock:
            for apply in [*([effect] if effect else []), *effects]:
                apply()

    def _fence(
        self,
        conn: Connection,
        *,
        tables: TablesAppend | None = None,
        next_part: int | None = None,
    ) -> None:
        """The one statement that proves the epoch, marks the commit and moves the tables upper."""
        values: dict[str, Any] = {
            "leading": self._epoch,
            "token": self._current(conn).token,
            "next_part": self._cache.next_part_id if next_part is None else next_part,
        }
        statement = statements.FENCED_UPDATE
        if tables is not None:
            statement = statements.FENCED_TABLES_UPDATE
            values |= {"tables_lower": tables.lower, "tables_upper": tables.upper}
        if conn.execute(statement, values).rowcount != 1:
            row = conn.execute(select(environment)).one()
            if row.epoch != self._epoch:
                raise Fenced(self._epoch, row.epoch)
            raise FatalError(
                f"the tables upper is {row.tables_upper}, which is not what was cached"
            )

    def _move_uppers(
        self, conn: Connection, moves: Sequence[tuple[int, Timestamp, Timestamp]]
    ) -> None:
        rows = [
            {"moved": shard_id, "from_upper": lower, "to_upper": upper}
            for shard_id, lower, upper in moves
            if lower != upper
        ]
        if rows and conn.execute(statements.MOVE_UPPER, rows).rowcount not in (len(rows), -1):
            raise FatalError("the upper of a shard is not what was cached")

    def _insert_parts(self, conn: Connection, added: Sequence[Part]) -> None:
        if added:
            garbage.reclaim(conn, added)
            conn.execute(statements.INSERT_PARTS, [part_to_row(part) for part in added])

    def _is_repeated(self, write_ids: Mapping[str, WriteResult]) -> bool:
        """Whether all of them were committed; raises `DuplicateWrite` when only some were."""
        done = tuple(write_id for write_id in write_ids if self.written(write_id) is not None)
        if done and len(done) < len(write_ids):
            raise DuplicateWrite(done)
        return bool(done)

    def _remember(self, conn: Connection, write_ids: Mapping[str, WriteResult]) -> None:
        now_ms = self._clock()
        rows = [
            {
                "write_id": write_id,
                "time": result.timestamp,
                "inserted": result.inserted,
                "deleted": result.deleted,
                "written_ms": now_ms,
            }
            for write_id, result in write_ids.items()
        ]
        if now_ms - self._pruned_ms >= _PRUNE_EVERY_MS:
            conn.execute(delete(writes).where(writes.c.written_ms < now_ms - WRITE_IDS_KEPT_MS))
            self._pruned_ms = now_ms
        try:
            conn.execute(statements.INSERT_WRITES, rows)
        except IntegrityError:
            raise DuplicateWrite(tuple(write_ids)) from None

    def _current(self, conn: Connection) -> _Open:
        if self._open is None or self._open.conn is not conn:
            raise ValueError("this is a step of a transaction of this client")
        return self._open

    def _check_uppers(self, appends: Sequence[Append], tables: TablesAppend | None) -> None:
        if len({append.shard_id for append in appends}) != len(appends):
            raise ValueError("a commit has at most one append for each shard")
        for append in appends:
            state = self._writable(append.shard_id, grouped=False)
            if state.upper != append.lower:
                raise UpperMismatch(append.shard_id, append.lower, state.upper)
        if tables is None:
            return
        for shard_id in tables.parts:
            self._writable(shard_id, grouped=True)
        if tables.lower != self._cache.tables_upper:
            raise UpperMismatch(None, tables.lower, self._cache.tables_upper)

    def _writable(self, shard_id: int, *, grouped: bool) -> ShardState:
        state = self.state(shard_id)
        if shard_id in self._cache.dropped:
            raise UnknownShard(shard_id)
        if state.grouped != grouped:
            how = "with" if state.grouped else "without"
            raise ValueError(f"shard {shard_id} is written {how} the move of the tables upper")
        return state

    def _numbered(self, appends: Sequence[Append], tables: TablesAppend | None) -> tuple[Part, ...]:
        placed = [(a.shard_id, a.lower, a.upper, new) for a in appends for new in a.parts]
        if tables is not None:
            placed += [
                (shard_id, tables.lower, tables.upper, new)
                for shard_id, news in tables.parts.items()
                for new in news
            ]
        # In the index parts come in the order of time, also within one append.
        placed.sort(key=lambda place: place[3].min_time)
        first = self._cache.next_part_id
        return tuple(
            committed_part(new, first + number, shard_id, lower, upper)
            for number, (shard_id, lower, upper, new) in enumerate(placed)
        )

    def _apply_uppers(self, uppers: Mapping[int, Timestamp]) -> None:
        for shard_id, upper in uppers.items():
            self._cache.states[shard_id] = replace(self._cache.states[shard_id], upper=upper)

    def _apply_since(self, shard_id: int, since: Timestamp) -> None:
        state = self._cache.states[shard_id]
        if since > state.since:
            self._cache.states[shard_id] = replace(state, since=since)

    def _correct_stamps(self, unnamed: Sequence[garbage.GarbageFile]) -> None:
        """Readers may have got the old parts until now, which may be long after the stamp."""
        now_ms = self._clock()
        late = [f.uri for f in unnamed if now_ms - f.replaced_ms > garbage.STAMP_MARGIN_MS]
        if late:
            self._transaction(self._fence, lambda conn: garbage.restamp(conn, late, now_ms))

    # The cache

    def _refresh(self) -> None:
        """Loads everything again after a commit whose outcome could not be found out."""
        if self._stale:
            loaded = self._load()
            with self._cache_lock:
                self._cache = loaded
            self._stale = False

    def _load(self) -> ShardCache:
        return transaction(
            self._engine, lambda conn: load(conn, self._epoch), patience=self._patience
        )

    def _state(self, shard_id: int) -> ShardState:
        state = self._cache.states.get(shard_id)
        if state is None:
            raise UnknownShard(shard_id)
        if not state.grouped:
            return state
        upper = self._cache.tables_upper
        return ShardState(state.shard_id, state.desc, state.since, upper, True)

    def _indexed(self, shard_id: int, look: Callable[[PartIndex], T]) -> T:
        with self._cache_lock:
            if (index := self._cache.indexes.get(shard_id)) is not None:
                return look(index)
            self._state(shard_id)
        # Nothing may be committed between the reading of the list and its place in the cache.
        with self._write_lock:
            self._refresh()
            loaded = query(
                self._engine,
                lambda conn: conn.execute(select(parts).where(parts.c.shard_id == shard_id)).all(),
                patience=self._patience,
            )
            with self._cache_lock:
                index = self._cache.indexes.setdefault(
                    shard_id, PartIndex.of(part_from_row(row) for row in loaded)
                )
                return look(index)


def _after(as_of: Timestamp) -> Timestamp | None:
    """The bound below which the updates are that make up the contents at `as_of`."""
    return None if as_of == TIMESTAMP_MAX else Timestamp(as_of + 1)
