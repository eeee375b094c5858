"""The state of a session's transaction, as a pure state machine.

A transaction either reads (all its reads share one time) or writes (its writes are buffered and
commit at one time); whichever comes first decides. Whatever else a block contains is refused, and
a statement that fails inside a block makes the whole block fail.

The machine decides and remembers; the caller runs. `W` is whatever the caller buffers for a write.

Source: spec coordinator 1.9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp

W = TypeVar("W")

BLOCK_LIMIT_BYTES = 256 * 1024 * 1024
"""The most that the rows of one block may take in memory until COMMIT."""


@dataclass(frozen=True, slots=True)
class Idle:
    """No block is open: each statement is a transaction of its own."""


@dataclass(frozen=True, slots=True)
class Buffered(Generic[W]):
    """A write of a block, the writes before it, and the memory that they take together."""

    write: W
    before: Buffered[W] | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Open(Generic[W]):
    """A block.

    `read_timestamp` is set by its first read that chose a time; `last` is its last write. Never
    both. `isolation` is the level that BEGIN named, in its canonical form.
    """

    read_only: bool = False
    isolation: str | None = None
    read_timestamp: Timestamp | None = None
    last: Buffered[W] | None = None

    @property
    def writes(self) -> tuple[W, ...]:
        """The writes in the order of their statements."""
        found = []
        each = self.last
        while each is not None:
            found.append(each.write)
            each = each.before
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class Failed:
    """A statement of the block failed; everything but its end is refused."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The coordinator that knew the block is gone, and its writes with it.

    The session learns it from its next statement, and only ROLLBACK, which would have dropped the
    writes anyway, passes in silence.
    """


Transaction = Idle | Open[W] | Failed | Lost


def in_block(transaction: Transaction[W]) -> bool:
    return not isinstance(transaction, Idle)


def read_time(transaction: Transaction[W]) -> Timestamp | None:
    """The time of the block's reads, if one has chosen it."""
    return transaction.read_timestamp if isinstance(transaction, Open) else None


def isolation(transaction: Transaction[W]) -> str | None:
    """The isolation level of the block, if it has one of its own."""
    return transaction.isolation if isinstance(transaction, Open) else None


def begin(
    transaction: Transaction[W], *, read_only: bool = False, isolation: str | None = None
) -> Open[W]:
    """BEGIN; inside a block it changes nothing.

    Raises SLACKWATER_FAILED_TRANSACTION or SLACKWATER_TRANSACTION_LOST.
    """
    refuse_if_failed(transaction)
    if isinstance(transaction, Open):
        return transaction
    return Open(read_only=read_only, isolation=isolation)


def commit(transaction: Transaction[W]) -> tuple[W, ...]:
    """COMMIT: the writes that are to be committed together at one time.

    Afterwards the session is Idle, also if this or committing the writes then fails.

    The COMMIT of a failed block is a ROLLBACK, and outside a block it has no effect. Raises
    SLACKWATER_TRANSACTION_LOST.
    """
    match transaction:
        case Open():
            return transaction.writes
        case Lost():
            raise user_error("SLACKWATER_TRANSACTION_LOST")
        case _:
            return ()


def statement_failed(transaction: Transaction[W]) -> Transaction[W]:
    """The state after a statement raised an error."""
    return transaction if isinstance(transaction, Idle) else Failed()


def refuse_if_failed(transaction: Transaction[W]) -> None:
    """Raises SLACKWATER_FAILED_TRANSACTION or SLACKWATER_TRANSACTION_LOST."""
    if isinstance(transaction, Failed):
        raise user_error("SLACKWATER_FAILED_TRANSACTION")
    if isinstance(transaction, Lost):
        raise user_error("SLACKWATER_TRANSACTION_LOST")


def check_read(transaction: Transaction[W], relation: str) -> Timestamp | None:
    """The time of the block, for a read that follows it.

    None: the block has no time yet (or there is no block), so the caller chooses one and reports
    it to `record_read`. Raises SLACKWATER_FAILED_TRANSACTION, SLACKWATER_TRANSACTION_LOST, and
    SLACKWATER_WRITE_ONLY_TRANSACTION naming `relation` after a write: buffered rows would be
    missing from the answer. Constant queries and reads AS OF a time do not come here; for them
    `refuse_if_failed` is enough.
    """
    refuse_if_failed(transaction)
    if not isinstance(transaction, Open):
        return None
    if transaction.last is not None:
        raise user_error("SLACKWATER_WRITE_ONLY_TRANSACTION", objectName=relation)
    return transaction.read_timestamp


def record_read(transaction: Transaction[W], timestamp: Timestamp) -> Transaction[W]:
    """The state after a read at `timestamp`, the time of all later reads of the block."""
    if not isinstance(transaction, Open) or transaction.read_timestamp is not None:
        return transaction
    return replace(transaction, read_timestamp=timestamp)


def add_write(transaction: Transaction[W], write: W, size_bytes: int = 0) -> Open[W]:
    """The block with `write` buffered, which takes `size_bytes` of memory.

    Raises SLACKWATER_FAILED_TRANSACTION; SLACKWATER_TRANSACTION_LOST; SLACKWATER_TOO_LARGE beyond
    `BLOCK_LIMIT_BYTES`; SLACKWATER_READ_ONLY_TRANSACTION after a read or in a READ ONLY block. Not
    to be called outside a block, where a write commits by itself.
    """
    refuse_if_failed(transaction)
    if not isinstance(transaction, Open):
        raise AssertionError("only a block buffers its writes")
    if transaction.read_only or transaction.read_timestamp is not None:
        raise _read_only(transaction)
    total = size_bytes + (0 if transaction.last is None else transaction.last.size_bytes)
    if total > BLOCK_LIMIT_BYTES:
        raise user_error(
            "SLACKWATER_TOO_LARGE",
            what="What this transaction has written",
            limit=str(BLOCK_LIMIT_BYTES),
            advice="ROLLBACK, and write less in one transaction, or by one INSERT ... SELECT.",
        )
    return replace(transaction, last=Buffered(write, transaction.last, total))


def check_write_outside_block(transaction: Transaction[W], statement: str) -> None:
    """Refuses a write that no block takes: UPDATE, DELETE, MERGE, INSERT ... SELECT or OVERWRITE.

    Raises SLACKWATER_READ_ONLY_TRANSACTION in a READ ONLY block, else what `check_outside_block`
    does.
    """
    if isinstance(transaction, Open) and transaction.read_only:
        raise _read_only(transaction)
    check_outside_block(transaction, statement)


def _read_only(transaction: Open[W]) -> SlackwaterError:
    reason = "it began as READ ONLY" if transaction.read_only else "it has read"
    return user_error("SLACKWATER_READ_ONLY_TRANSACTION", reason=reason)


def check_outside_block(transaction: Transaction[W], statement: str) -> None:
    """Refuses a statement that no block takes, like DDL and SUBSCRIBE, inside a block.

    `statement` names the kind, for the message. Raises SLACKWATER_FAILED_TRANSACTION,
    SLACKWATER_TRANSACTION_LOST or SLACKWATER_TRANSACTION_STATEMENT.
    """
    refuse_if_failed(transaction)
    if isinstance(transaction, Open):
        raise user_error("SLACKWATER_TRANSACTION_STATEMENT", statement=statement)
