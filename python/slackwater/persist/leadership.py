"""Who leads an environment: the epoch that fences, and where the leader can be reached.

The epoch is a positive number that grows with each takeover; 0 means that nobody has led yet. Every
write of a leader checks its epoch in the same transaction, so a former leader that still runs
changes nothing. Source: spec controllers 2.1 and invariant I19.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, Engine, String, Table, insert, select, update

from slackwater.persist.metastore import (
    PATIENCE,
    OutcomeUnknown,
    Patience,
    environment,
    metadata,
    query,
    transaction,
    upgrade,
)
from slackwater.persist.migrations import HISTORY, History

leaders = Table(
    "leaders",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("address", String, nullable=False),
    Column("token_file", String, nullable=False),
    Column("application", String, nullable=False),
    Column("log", String, nullable=False),
    # The last commit of the epoch before: so a fenced leader can learn what became of its own.
    Column("previous_token", String(64), nullable=False),
)


class Fenced(Exception):
    """Another application leads now; nothing was written."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(f"epoch {epoch} is fenced by epoch {current}")
        self.epoch = epoch
        self.current = current


class LostElection(Exception):
    """Another candidate took over first; `current` is its epoch."""

    def __init__(self, expected: int | None, current: int) -> None:
        super().__init__(f"expected epoch {expected}, found {current}")
        self.expected = expected
        self.current = current


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """The application that leads. `token_file` is the path of the secret, never the secret."""

    epoch: int
    address: str
    token_file: str
    application: str
    log: str


def current_leader(engine: Engine, *, patience: Patience = PATIENCE) -> LeaderRecord | None:
    """The leader that is on record, alive or not; None if there was never one.

    Raises SLACKWATER_METASTORE_UNAVAILABLE.
    """
    statement = select(
        leaders.c.epoch,
        leaders.c.address,
        leaders.c.token_file,
        leaders.c.application,
        leaders.c.log,
    ).join(environment, environment.c.epoch == leaders.c.epoch)
    row = query(engine, lambda conn: conn.execute(statement).one_or_none(), patience=patience)
    return None if row is None else LeaderRecord(*row)


def acquire(
    engine: Engine,
    address: str,
    token_file: str,
    application: str,
    log: str,
    *,
    expected_epoch: int | None,
    history: History = HISTORY,
    patience: Patience = PATIENCE,
) -> int:
    """Takes the lead and returns the new epoch; upgrades a metastore of an older version.

    Succeeds only if the epoch on record still is `expected_epoch` (None: nobody has led yet), so
    of several candidates one wins; the others get `LostElection`. The winner should open its
    address before. Raises SLACKWATER_METASTORE_UNAVAILABLE and SLACKWATER_ENVIRONMENT_VERSION.
    """
    epoch = (expected_epoch or 0) + 1
    record = LeaderRecord(epoch, address, token_file, application, log)

    def take_over(conn: Connection) -> None:
        row = conn.execute(
            select(environment.c.epoch, environment.c.commit_token).with_for_update()
        ).one()
        if row.epoch != epoch - 1:
            raise LostElection(expected_epoch, row.epoch)
        upgrade(conn, history)
        conn.execute(update(environment).values(epoch=epoch))
        conn.execute(
            insert(leaders).values(
                epoch=record.epoch,
                address=record.address,
                token_file=record.token_file,
                application=record.application,
                log=record.log,
                previous_token=row.commit_token,
            )
        )

    def committed(conn: Connection) -> bool:
        found = conn.execute(
            select(leaders.c.address, leaders.c.application, leaders.c.token_file)
            .join(environment, environment.c.epoch >= leaders.c.epoch)
            .where(leaders.c.epoch == epoch)
        ).one_or_none()
        return found is not None and tuple(found) == (address, application, token_file)

    try:
        transaction(engine, take_over, committed=committed, patience=patience)
    except OutcomeUnknown as unknown:
        raise unknown.error from None
    return epoch


def was_last_commit(conn: Connection, epoch: int, token: str) -> bool:
    """Whether the last transaction that `epoch` committed is the one with `token`."""
    row = conn.execute(
        select(environment.c.epoch, environment.c.commit_token).with_for_update()
    ).one()
    if row.epoch == epoch:
        return bool(row.commit_token == token)
    successor = select(leaders.c.previous_token).where(leaders.c.epoch == epoch + 1)
    return conn.scalar(successor) == token
