"""The tables of checkpoints, in a metastore or in a database of their own.

A time is kept as text of a fixed width, which orders as times do in every database and is exact.
Source: spec checkpoint 2.1, 5.2.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Connection, Engine, Index, String, Table, func, select

from slackwater.persist.metastore import RETRY_POLICY, RetryPolicy, metadata, transaction
from slackwater.repr.hlc import ZERO, Time

NAME_LENGTH = 255
"""The most characters of the name of a group or a partition."""
_DIGITS = 19
_CREATION_LOCK = 7_163_412


def _text(length: int) -> String:
    # The order of the bytes, whatever the language of the database.
    return String(length).with_variant(String(length, collation="C"), "postgresql")


checkpoint_groups = Table(
    "checkpoint_groups",
    metadata,
    Column("group_name", _text(NAME_LENGTH), primary_key=True),
    Column("committed", _text(2 * _DIGITS + 1), nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("group_name", _text(NAME_LENGTH), primary_key=True),
    Column("partition_name", _text(NAME_LENGTH), primary_key=True),
    Column("source_hlc", _text(2 * _DIGITS + 1), primary_key=True),
    Column("first_seen_ms", BigInteger, nullable=False),
    # NULL: not applied.
    Column("applied_ms", BigInteger),
)

# One for each question that a refresh has about a partition: it seeks, and reads no history.
_waiting = checkpoints.c.applied_ms.is_(None)
_applied = checkpoints.c.applied_ms.is_not(None)
for _name, _which in (("waiting", _waiting), ("applied", _applied)):
    Index(
        f"checkpoints_{_name}",
        checkpoints.c.group_name,
        checkpoints.c.partition_name,
        checkpoints.c.source_hlc,
        sqlite_where=_which,
        postgresql_where=_which,
    )


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

    Not for a metastore of Slackwater: there they are part of its history. Raises
    SLACKWATER_METASTORE_UNAVAILABLE.
    """

    def create(conn: Connection) -> None:
        if conn.dialect.name == "postgresql":
            conn.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
        metadata.create_all(conn, tables=[checkpoint_groups, checkpoints])

    transaction(engine, create, retry_policy=retry_policy)
