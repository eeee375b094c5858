"""The leader's cache of the metastore, and the transactions that change both.

Each transaction first updates the environment's row under the condition that the epoch still
leads. So what is cached is what is stored. Source: spec controllers 2.1, 3.9.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, select

from slackwater.persist import statements
from slackwater.persist.appends import TablesAppend
from slackwater.persist.cache import ShardCache, load
from slackwater.persist.leadership import Fenced, was_last_commit
from slackwater.persist.metastore import OutcomeUnknown, RetryPolicy, query, transaction
from slackwater.persist.tables import environment
from slackwater.repr.errors import FatalError

T = TypeVar("T")
Step = Callable[[Connection], None]
Effect = Callable[[], None]

_EPOCH = f"SELECT {environment.c.epoch.name} FROM {environment.name}"


class Transactor(Protocol):
    """Runs steps in one transaction, and queries beside it.

    Steps and bodies may be run again after a failure, and take effect once at most.
    """

    def transact(self, step: Callable[[Connection], T], *more: Step) -> T:
        """Runs the steps in one transaction; returns what the first one does."""
        ...

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body`, which only reads, in a transaction that sees one state."""
        ...


@dataclass(slots=True)
class OpenTransaction:
    """The transaction that is being run. Its effects on the cache wait for the commit."""

    conn: Connection
    token: str
    next_shard_id: int
    next_part_id: int
    effects: list[Effect] = field(default_factory=list)


class Transactions:
    """The cache of the leader of `epoch`, and its fenced transactions, one at a time.

    Who runs one holds `write_lock`, and has called `refresh` before it decided what to write. The
    cache changes under `cache_lock` only, which is taken last; it may be another one after
    `refresh`, so nobody keeps it.

    It does not guarantee that this leader still leads when a query is answered: ask
    `confirm_leadership`. Nor does it guarantee an outcome when the metastore goes away during a
    commit: then the error says that it is unknown, and the cache is loaded again.
    """

    def __init__(self, engine: Engine, epoch: int, retry_policy: RetryPolicy) -> None:
        self.write_lock = RLock()
        self.cache_lock = Lock()
        self.stale = False
        """A commit's outcome could not be found out, so that the cache may be behind."""
        self._engine = engine
        self._epoch = epoch
        self._retry_policy = retry_policy
        self._open: OpenTransaction | None = None
        self.cache = self._load()

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body`, which only reads, beside the writers and without asking who leads."""
        return query(self._engine, body, retry_policy=self._retry_policy)

    @property
    def epoch(self) -> int:
        """The epoch of the leader."""
        return self._epoch

    def confirm_leadership(self) -> None:
        """Raises `Fenced` when another application leads.

        When it returns, no write of a later leader was acknowledged before the call. To be asked
        by reads that must see all of them.
        """
        epoch = self.query(_epoch_of)
        if epoch != self._epoch:
            raise Fenced(self._epoch, epoch)

    def transact(self, step: Callable[[Connection], T], *more: Step) -> T:
        """Runs the steps in one fenced transaction; returns what the first one does."""
        returned: list[T] = []

        def first(conn: Connection) -> None:
            returned[:] = [step(conn)]

        with self.write_lock:
            self.run(self.fence, first, *more)
        return returned[0]

    def run(self, *steps: Step, effect: Effect | None = None) -> None:
        """Runs the steps, of which the first is to call `fence`, in one transaction.

        After its commit `effect` and those of the steps change the cache.
        """
        if self._open is not None:
            raise ValueError("a step cannot begin another transaction")
        self.refresh()
        token = uuid.uuid4().hex

        def body(conn: Connection) -> list[Effect]:
            self._open = OpenTransaction(
                conn, token, self.cache.next_shard_id, self.cache.next_part_id
            )
            for step in steps:
                step(conn)
            return self._open.effects

        try:
            effects = transaction(
                self._engine,
                body,
                committed=lambda conn: was_last_commit(conn, self._epoch, token),
                retry_policy=self._retry_policy,
            )
        except OutcomeUnknown as unknown:
            self.stale = True
            raise unknown.error from None
        finally:
            self._open = None
        with self.cache_lock:
            for apply in [*([effect] if effect else []), *effects]:
                apply()

    def fence(
        self,
        conn: Connection,
        *,
        tables: TablesAppend | None = None,
        next_part: int | None = None,
    ) -> None:
        """The one statement that proves the epoch, marks the commit and moves the tables upper."""
        current = self.current(conn)
        if next_part is not None:
            current.next_part_id = next_part
        values: dict[str, Any] = {
            "leading": self._epoch,
            "token": current.token,
            "next_part": current.next_part_id,
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

    def current(self, conn: Connection) -> OpenTransaction:
        """The transaction that the step belongs to. Raises ValueError when it belongs to none."""
        if self._open is None or self._open.conn is not conn:
            raise ValueError("this is a step of a transaction of this client")
        return self._open

    def refresh(self) -> None:
        """Loads everything again after a commit whose outcome could not be found out."""
        if self.stale:
            loaded = self._load()
            with self.cache_lock:
                self.cache = loaded
            self.stale = False

    def validate(self) -> None:
        """Raises FatalError unless the cache is consistent."""
        with self.cache_lock:
            self.cache.validate()

    def _load(self) -> ShardCache:
        return transaction(
            self._engine, lambda conn: load(conn, self._epoch), retry_policy=self._retry_policy
        )


def _epoch_of(conn: Connection) -> int:
    """The epoch of the leader. Each read asks for it: the text spares it the compiler."""
    return int(conn.exec_driver_sql(_EPOCH).scalar_one())
