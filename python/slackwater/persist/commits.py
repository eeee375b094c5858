"""Compare-and-append: rows for any number of shards, all or nothing.

Source: spec controllers 2.10, 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from sqlalchemy import Connection, delete, select, update
from sqlalchemy.exc import IntegrityError

from slackwater.persist import garbage, statements
from slackwater.persist.appends import (
    Append,
    DuplicateWrite,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
    check_bounds,
)
from slackwater.persist.parts import NewPart, Part
from slackwater.persist.rows import ShardState, WriteResult, committed_part, part_to_row
from slackwater.persist.shard_reads import ShardReads
from slackwater.persist.tables import environment, writes
from slackwater.persist.transactions import Step, Transactions
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Timestamp

WRITE_IDS_KEPT_MS = 24 * 3600 * 1000
_PRUNE_EVERY_MS = 3600 * 1000


class Commits:
    """Moves uppers, with and without parts, and remembers the writes. Thread-safe."""

    def __init__(
        self,
        transactions: Transactions,
        reads: ShardReads,
        clock: Callable[[], int],
        adding_errors: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._transactions = transactions
        self._reads = reads
        self._clock = clock
        self._adding_errors = adding_errors
        self._pruned_ms = 0
        self._changed: set[int] = set()

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
        with self._transactions.write_lock:
            self._transactions.refresh()
            try:
                self._check_uppers(appends, tables)
            except (UpperMismatch, UnknownShard):
                # A repetition is told apart before the uppers, which have moved since (spec 3.3).
                if write_ids and self._is_repeated(write_ids):
                    return False
                raise
            added = self._numbered(appends, tables)
            next_part = self._transactions.cache.next_part_id + len(added)

            def write(conn: Connection) -> None:
                self._transactions.fence(conn, tables=tables, next_part=next_part)
                self._move_uppers(conn, [(a.shard_id, a.lower, a.upper) for a in appends])
                insert_parts(conn, added)

            def remember(conn: Connection) -> None:
                if write_ids:
                    self._remember(conn, write_ids)

            def apply() -> None:
                self._transactions.cache.next_part_id = next_part
                if tables is not None:
                    self._transactions.cache.tables_upper = tables.upper
                self._apply_uppers({a.shard_id: a.upper for a in appends})
                self._changed.update(part.shard_id for part in added)
                for part in added:
                    if (index := self._transactions.cache.indexes.get(part.shard_id)) is not None:
                        index.add(part)

            concerned = {part.shard_id for part in added}
            has_errors = any(self._reads.state(each).desc == ERRORS for each in concerned)
            try:
                with self._adding_errors() if has_errors else nullcontext():
                    self._transactions.run(write, *steps, remember, effect=apply)
            except DuplicateWrite:
                if self._is_repeated(write_ids):
                    return False
                raise
            return True

    def advance(self, uppers: Mapping[int, Timestamp]) -> None:
        """Moves the uppers of shards that have their own, without data, in one transaction.

        An upper that has been reached already stays. Raises `UnknownShard`.
        """
        with self._transactions.write_lock:
            self._transactions.refresh()
            moves = []
            for shard_id, upper in uppers.items():
                state = self._writable(shard_id, shares_tables_upper=False)
                if upper > state.upper:
                    moves.append((shard_id, state.upper, upper))
            if moves:
                self._transactions.run(
                    self._transactions.fence,
                    lambda conn: self._move_uppers(conn, moves),
                    effect=lambda: self._apply_uppers({move[0]: move[2] for move in moves}),
                )

    def written(self, write_id: str) -> WriteResult | None:
        """The result of the write with this id, if it was committed in the last day.

        Definite also after a commit whose outcome was unknown: one that may still be under way is
        waited for.
        """
        if self._transactions.stale:
            with self._transactions.write_lock:
                self._transactions.refresh()
        statement = select(writes.c.time, writes.c.inserted, writes.c.deleted).where(
            writes.c.write_id == write_id
        )
        row = self._transactions.query(lambda conn: conn.execute(statement).one_or_none())
        return None if row is None else WriteResult(*row)

    def add_first_parts(
        self,
        conn: Connection,
        shard_id: int,
        news: Sequence[NewPart],
        lower: Timestamp,
        upper: Timestamp,
    ) -> None:
        """Gives a shard that this transaction has made its first parts, of ``[lower, upper)``."""
        current = self._transactions.current(conn)
        first = current.next_part_id
        added = tuple(
            committed_part(new, first + number, shard_id, lower, upper)
            for number, new in enumerate(sorted(news, key=lambda new: new.min_time))
        )
        if not added:
            return
        current.next_part_id = first + len(added)
        conn.execute(update(environment).values(next_part_id=current.next_part_id))
        insert_parts(conn, added)

        def apply() -> None:
            cache = self._transactions.cache
            cache.next_part_id = max(cache.next_part_id, first + len(added))
            self._changed.add(shard_id)
            for part in added:
                cache.indexes[shard_id].add(part)

        current.effects.append(apply)

    def take_changed(self) -> frozenset[int]:
        """The shards that commits added parts to since the last call."""
        with self._transactions.cache_lock:
            changed, self._changed = frozenset(self._changed), set()
            return changed

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

    def _check_uppers(self, appends: Sequence[Append], tables: TablesAppend | None) -> None:
        if len({append.shard_id for append in appends}) != len(appends):
            raise ValueError("a commit has at most one append for each shard")
        for append in appends:
            state = self._writable(append.shard_id, shares_tables_upper=False)
            if state.upper != append.lower:
                raise UpperMismatch(append.shard_id, append.lower, state.upper)
        if tables is None:
            return
        for shard_id in tables.parts:
            self._writable(shard_id, shares_tables_upper=True)
        if tables.lower != self._transactions.cache.tables_upper:
            raise UpperMismatch(None, tables.lower, self._transactions.cache.tables_upper)

    def _writable(self, shard_id: int, *, shares_tables_upper: bool) -> ShardState:
        state = self._reads.state(shard_id)
        if shard_id in self._transactions.cache.dropped:
            raise UnknownShard(shard_id)
        if state.shares_tables_upper != shares_tables_upper:
            how = "with" if state.shares_tables_upper else "without"
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
        first = self._transactions.cache.next_part_id
        return tuple(
            committed_part(new, first + number, shard_id, lower, upper)
            for number, (shard_id, lower, upper, new) in enumerate(placed)
        )

    def _apply_uppers(self, uppers: Mapping[int, Timestamp]) -> None:
        for shard_id, upper in uppers.items():
            self._transactions.cache.states[shard_id] = replace(
                self._transactions.cache.states[shard_id], upper=upper
            )


def insert_parts(conn: Connection, added: Sequence[Part]) -> None:
    """Puts parts on record. Their files are no garbage; see `garbage.reclaim`."""
    if added:
        garbage.reclaim(conn, added)
        conn.execute(statements.INSERT_PARTS, [part_to_row(part) for part in added])
