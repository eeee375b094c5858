"""Checkpoints in a database: that of an environment, through its leader, or any other.

Source: spec checkpoint 2.1, 2.5, 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine

from slackwater.checkpoints import statements
from slackwater.checkpoints.listeners import GroupListeners
from slackwater.checkpoints.store import GroupState, GroupSubscription
from slackwater.checkpoints.tables import create_tables
from slackwater.persist.metastore import RETRY_POLICY, RetryPolicy, connect, query, transaction
from slackwater.persist.transactions import Step, Transactor
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.hlc import Range, Time

T = TypeVar("T")


class EngineTransactions:
    """Transactions of an engine that `metastore.connect` made, without a leader.

    Raises SLACKWATER_METASTORE_UNAVAILABLE when the database was away as long as `retry_policy`
    says.
    """

    def __init__(self, engine: Engine, retry_policy: RetryPolicy = RETRY_POLICY) -> None:
        self._engine = engine
        self._retry_policy = retry_policy

    def transact(self, step: Callable[[Connection], T], *more: Step) -> T:
        """Runs the steps in one transaction; returns what the first one does."""

        def body(conn: Connection) -> T:
            returned = step(conn)
            for each in more:
                each(conn)
            return returned

        return transaction(self._engine, body, retry_policy=self._retry_policy)

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body`, which only reads, in a transaction that sees one state."""
        return query(self._engine, body, retry_policy=self._retry_policy)


class Notifications(Protocol):
    """The seam to notifications: it tells other processes of changes, and hears of theirs."""

    @property
    def listeners(self) -> GroupListeners:
        """The listeners that it wakes when it hears of a change."""

    def told(self, group: str) -> Step:
        """The step of a transaction that tells others, when it commits, that `group` changed."""

    def listen(self, group: str, wake: Callable[[], None]) -> GroupSubscription:
        """Wakes `wake` when the group changes, as `Store.listen` says."""


class DatabaseStore:
    """A `Store` in the tables that `create_tables` makes, which must exist.

    Listeners hear of what is written through this object, and, with `notifications`, of what any
    other that has them too writes to the same database.
    """

    def __init__(
        self,
        transactions: Transactor,
        *,
        notifications: Notifications | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._transactions = transactions
        self._notifications = notifications
        self._clock_ms = clock_ms
        self._listeners = notifications.listeners if notifications else GroupListeners()

    def advance(self, group: str, partition: str, time: Time) -> None:
        now_ms = self._clock_ms()
        self._change(group, lambda conn: statements.advance(conn, group, partition, time, now_ms))

    def commit(self, group: str, done: Range) -> None:
        now_ms = self._clock_ms()
        self._change(group, lambda conn: statements.commit(conn, group, done, now_ms))

    def ensure(self, group: str, partitions: Sequence[str]) -> None:
        now_ms = self._clock_ms()
        self._change(group, lambda conn: statements.ensure(conn, group, partitions, now_ms))

    def raise_committed(self, group: str, committed: Time) -> None:
        self._transactions.transact(lambda conn: statements.raise_committed(conn, group, committed))

    def state(self, group: str, lookahead: int | None) -> GroupState:
        return self._transactions.query(lambda conn: statements.state(conn, group, lookahead))

    def pending(self) -> list[str]:
        return self._transactions.query(statements.pending)

    def prune(self, group: str) -> int:
        return self._transactions.transact(lambda conn: statements.prune(conn, group))

    def listen(self, group: str, wake: Callable[[], None]) -> GroupSubscription:
        if self._notifications is not None:
            return self._notifications.listen(group, wake)
        return self._listeners.add(group, wake)

    def _change(self, group: str, step: Step) -> None:
        told = [] if self._notifications is None else [self._notifications.told(group)]
        self._transactions.transact(step, *told)
        self._listeners.tell(group)


@contextmanager
def open_store(url: str, *, retry_policy: RetryPolicy = RETRY_POLICY) -> Iterator[DatabaseStore]:
    """A store in a database that belongs to nobody else, for any number of processes.

    `url` is ``sqlite:///path`` or ``postgresql+psycopg://...``; tables that are missing are made.
    On PostgreSQL processes wake each other with LISTEN and NOTIFY. Raises
    SLACKWATER_INVALID_OPTION, SLACKWATER_STORAGE_UNAVAILABLE and SLACKWATER_METASTORE_UNAVAILABLE.
    """
    engine = connect(url)
    try:
        create_tables(engine, retry_policy=retry_policy)
        with ExitStack() as ending:
            notifications = None
            if engine.dialect.name == "postgresql":
                # The driver of PostgreSQL is an extra.
                from slackwater.checkpoints.notifications import PostgresNotifications

                notifications = ending.enter_context(closing(PostgresNotifications(engine)))
            transactions = EngineTransactions(engine, retry_policy)
            yield DatabaseStore(transactions, notifications=notifications)
    finally:
        engine.dispose()
