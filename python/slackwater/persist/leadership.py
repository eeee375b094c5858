"""Leadership of an environment: the epoch that fences, the lease, and the leader's address.

The epoch is a positive number that grows with each takeover; 0 means that nobody has led yet. Every
write of a leader checks its epoch in the same transaction, so a former leader that still runs
changes nothing. Source: spec controllers 2.1 and invariant I19.

The lease says whether a leader lives. It is a number that its owner makes greater, again and again.
Who waits for it watches the number by a clock of its own: clocks of two hosts are never compared
(decision 0014).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert, inspect, select, update

from slackwater.persist.metastore import (
    RETRY_POLICY,
    OutcomeUnknown,
    RetryPolicy,
    query,
    transaction,
    upgrade,
)
from slackwater.persist.migrations import HISTORY, History
from slackwater.persist.tables import environment, leaders, leases

LEASE_MS = 10_000
"""The default time that a leader, or an application that it waits for, may be silent."""


class Fenced(Exception):
    """Another application leads now; nothing was written."""

    def __init__(self, epoch: int, current: int) -> None:
        super().__init__(f"epoch {epoch} is fenced by epoch {current}")
        self.epoch = epoch
        self.current = current


class LostElection(Exception):
    """Another candidate took over first, or the leader has renewed its lease.

    `current` is the epoch on record.
    """

    def __init__(self, expected: int | None, current: int) -> None:
        super().__init__(f"expected epoch {expected}, found {current}")
        self.expected = expected
        self.current = current


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that leads.

    `boot` names a run of a machine, `pid_namespace` a table of processes on it, `started` the start
    of a process: a number that is used again has another one. Empty where the system does not say.
    """

    host: str
    boot: str
    pid_namespace: str
    user: str
    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The lead of an owner. It runs out when `renewals` has stayed the same for `lease_ms`."""

    owner: Owner
    lease_ms: int
    renewals: int = 0


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """The application that leads. `token_file` is the path of the secret, never the secret.

    `lease` is None when the leader has given it up, or led before there were leases; only then
    `is_leased` is false.
    """

    epoch: int
    address: str
    token_file: str
    application: str
    log: str
    lease: Lease | None
    is_leased: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """The application that takes the lead, which is reached at `address` by then.

    Without a `lease` it can be replaced at any time.
    """

    address: str
    token_file: str
    application: str
    log: str
    lease: Lease | None = None


def current_leader(
    engine: Engine, *, retry_policy: RetryPolicy = RETRY_POLICY
) -> LeaderRecord | None:
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

    def look(conn: Connection) -> LeaderRecord | None:
        row = conn.execute(statement).one_or_none()
        if row is None:
            return None
        is_leased = inspect(conn).has_table(leases.name)
        return LeaderRecord(*row, _lease_of(conn, row.epoch) if is_leased else None, is_leased)

    return query(engine, look, retry_policy=retry_policy)


def _lease_of(conn: Connection, epoch: int) -> Lease | None:
    row = conn.execute(select(leases).where(leases.c.epoch == epoch)).one_or_none()
    if row is None:
        return None
    owner = Owner(row.host, row.boot, row.pid_namespace, row.owner_user, row.pid, row.started)
    return Lease(owner, row.lease_ms, row.renewals)


def acquire(
    engine: Engine,
    candidate: Candidate,
    after: LeaderRecord | None,
    *,
    history: History = HISTORY,
    retry_policy: RetryPolicy = RETRY_POLICY,
) -> int:
    """Takes the lead and returns the new epoch; upgrades a metastore of an older version.

    Succeeds only if the leader on record still is `after` (None: nobody has led yet), and its lease
    is not there or was not renewed since; so of several candidates one wins, and a leader that goes
    on stays one. The others get `LostElection`. Raises SLACKWATER_METASTORE_UNAVAILABLE and
    SLACKWATER_ENVIRONMENT_VERSION.
    """
    expected_epoch = None if after is None else after.epoch
    epoch = (expected_epoch or 0) + 1

    def take_over(conn: Connection) -> None:
        row = conn.execute(
            select(environment.c.epoch, environment.c.commit_token).with_for_update()
        ).one()
        if row.epoch != epoch - 1:
            raise LostElection(expected_epoch, row.epoch)
        upgrade(conn, history)
        _take_lease(conn, epoch, None if after is None else after.lease, candidate.lease)
        conn.execute(update(environment).values(epoch=epoch))
        conn.execute(
            insert(leaders).values(
                epoch=epoch,
                address=candidate.address,
                token_file=candidate.token_file,
                application=candidate.application,
                log=candidate.log,
                previous_token=row.commit_token,
            )
        )

    def committed(conn: Connection) -> bool:
        found = conn.execute(
            select(leaders.c.address, leaders.c.application, leaders.c.token_file)
            .join(environment, environment.c.epoch >= leaders.c.epoch)
            .where(leaders.c.epoch == epoch)
        ).one_or_none()
        ours = (candidate.address, candidate.application, candidate.token_file)
        return found is not None and tuple(found) == ours

    try:
        transaction(engine, take_over, committed=committed, retry_policy=retry_policy)
    except OutcomeUnknown as unknown:
        raise unknown.error from None
    return epoch


def _take_lease(conn: Connection, epoch: int, expected: Lease | None, lease: Lease | None) -> None:
    # The row's lock waits for a renewal that is being committed, and then sees it.
    renewals = conn.scalar(
        select(leases.c.renewals).where(leases.c.epoch == epoch - 1).with_for_update()
    )
    if renewals is not None and (expected is None or renewals != expected.renewals):
        raise LostElection(epoch - 1, epoch - 1)
    conn.execute(delete(leases))
    if lease is not None:
        conn.execute(
            insert(leases).values(
                epoch=epoch,
                host=lease.owner.host,
                boot=lease.owner.boot,
                pid_namespace=lease.owner.pid_namespace,
                owner_user=lease.owner.user,
                pid=lease.owner.pid,
                started=lease.owner.started,
                lease_ms=lease.lease_ms,
                renewals=lease.renewals,
            )
        )


def renew(engine: Engine, epoch: int, *, retry_policy: RetryPolicy = RETRY_POLICY) -> None:
    """Renews the lease of `epoch`, without waiting for the transactions that write.

    Raises `Fenced` when it was taken, and SLACKWATER_METASTORE_UNAVAILABLE.
    """
    # It touches no other row than the lease's, whose removal is the sign of a takeover.
    statement = update(leases).where(leases.c.epoch == epoch).values(renewals=leases.c.renewals + 1)

    def body(conn: Connection) -> None:
        if conn.execute(statement).rowcount != 1:
            raise Fenced(epoch, conn.execute(select(environment.c.epoch)).scalar_one())

    transaction(engine, body, retry_policy=retry_policy)


def give_up(engine: Engine, epoch: int, *, retry_policy: RetryPolicy = RETRY_POLICY) -> None:
    """Ends the lease of `epoch`: the next candidate need not wait for it.

    Raises SLACKWATER_METASTORE_UNAVAILABLE.
    """
    transaction(
        engine,
        lambda conn: conn.execute(delete(leases).where(leases.c.epoch == epoch)),
        retry_policy=retry_policy,
    )


def was_last_commit(conn: Connection, epoch: int, token: str) -> bool:
    """Whether the last transaction that `epoch` committed is the one with `token`."""
    row = conn.execute(
        select(environment.c.epoch, environment.c.commit_token).with_for_update()
    ).one()
    if row.epoch == epoch:
        return bool(row.commit_token == token)
    successor = select(leaders.c.previous_token).where(leaders.c.epoch == epoch + 1)
    return conn.scalar(successor) == token
