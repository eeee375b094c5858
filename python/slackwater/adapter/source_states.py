"""What an ingestion has to remember: the durable state from which it goes on.

A step is derived from a state. Its transaction first checks that this state still is the stored
one, by the number of steps that were committed: every step adds one, and only a leader, whose
epoch the same transaction checks, commits steps. So of two steps that were derived from one state
one commits, whatever became of the answers; the other is superseded, and its ingestion is built
again from what is stored.

Source: spec controllers 5.2, traps 12 and 13.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.group_commit import GroupCommitter, Write
from slackwater.persist.metastore import metadata
from slackwater.repr.ids import GlobalId
from slackwater.storage.ingestion import StepSuperseded

T = TypeVar("T")

source_states = sa.Table(
    "source_states",
    metadata,
    sa.Column("source_id", sa.Text, primary_key=True),
    sa.Column("step", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
)


class Queries(Protocol):
    """Runs queries on the metastore (`PersistClient`)."""

    def query(self, body: Callable[[Connection], T]) -> T: ...


@dataclass(frozen=True, slots=True)
class StoredState:
    """`state` holds after `steps` committed steps."""

    steps: int
    state: str


class SourceStates:
    """The durable states of all sources. Thread-safe."""

    def __init__(self, queries: Queries, committer: GroupCommitter) -> None:
        self._queries = queries
        self._committer = committer

    def stored(self, source_id: GlobalId) -> StoredState | None:
        """None: no step has been committed. Raises SLACKWATER_METASTORE_UNAVAILABLE."""
        return self._queries.query(lambda conn: _read(conn, source_id))

    def commit(
        self, source_id: GlobalId, steps: int, appends: Mapping[int, pa.Table], state: str
    ) -> None:
        """Commits rows with ``__diff`` by shard and the state that they lead to, at one time.

        Raises `StepSuperseded` unless exactly `steps` steps were committed before, and what
        `GroupCommitter.submit` does.
        """

        def advance(conn: Connection) -> None:
            found = _read(conn, source_id)
            stored = 0 if found is None else found.steps
            if stored != steps:
                raise StepSuperseded(source_id, steps, stored)
            _write(conn, source_id, StoredState(steps + 1, state))

        # Each attempt has an id of its own: another attempt's rows are not these rows.
        write = Write(
            write_id=f"{source_id}-{uuid.uuid4().hex}",
            appends=appends,
            inserted=sum(rows.num_rows for rows in appends.values()),
            steps=(advance,),
        )
        self._committer.submit(write).result()

    def forget(self, conn: Connection, source_id: GlobalId) -> None:
        """Removes the state of a dropped source, in the transaction that drops it."""
        conn.execute(sa.delete(source_states).where(source_states.c.source_id == source_id))


def _read(conn: Connection, source_id: GlobalId) -> StoredState | None:
    row = conn.execute(
        sa.select(source_states.c.step, source_states.c.state).where(
            source_states.c.source_id == source_id
        )
    ).one_or_none()
    return None if row is None else StoredState(row.step, row.state)


def _write(conn: Connection, source_id: GlobalId, new: StoredState) -> None:
    conn.execute(sa.delete(source_states).where(source_states.c.source_id == source_id))
    conn.execute(
        sa.insert(source_states).values(source_id=source_id, step=new.steps, state=new.state)
    )
