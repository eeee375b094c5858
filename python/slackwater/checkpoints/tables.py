"""Times in the tables of checkpoints, and those tables in a database of their own.

A time is kept as text of a fixed width, which orders as times do in every database and is exact.
Source: spec checkpoint 2.1, 5.2.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, func, select

from slackwater.persist.metastore import RETRY_POLICY, RetryPolicy, transaction
from slackwater.persist.tables import HLC_LENGTH, checkpoint_groups, checkpoints, metadata
from slackwater.repr.hlc import ZERO, Time

_DIGITS = HLC_LENGTH // 2
_CREATION_LOCK = 7_163_412


def key(time: Time) -> str:
    """The text that a time is kept as. What is before `ZERO` is kept as `ZERO`."""
    kept = max(time, ZERO)
    return f"{kept.nanos:0{_DIGITS}}.{kept.logical:0{_DIGITS}}"


def time_of(text: str) -> Time:
    """The time that `key` was given."""
    nanos, _, logical = text.partition(".")
    return Time(int(nanos), int(logical))


def create_tables(engine: Engine, *, retry_policy: RetryPolicy = RETRY_POLICY) -> None:
    """Makes the tables where they are missing. Several processes may do this at the same time.

    Not for a metastore of Slackwater, whose migrations make them. Raises
    SLACKWATER_METASTORE_UNAVAILABLE.
    """

    def create(conn: Connection) -> None:
        if conn.dialect.name == "postgresql":
            conn.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
        metadata.create_all(conn, tables=[checkpoint_groups, checkpoints])

    transaction(engine, create, retry_policy=retry_policy)
