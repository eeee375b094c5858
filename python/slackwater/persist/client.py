"""The client of the shards: what the leader reads and writes, with all states in memory.

Only the leader writes, and each of its transactions first updates the environment's row under the
condition that its epoch still leads. So what is cached is what is stored, reads ask no database,
and a commit needs few statements. Source: spec controllers 2.1, 2.10, 3.3, 3.9.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from sqlalchemy import Engine

from slackwater.persist.appends import (
    Append,
    DuplicateWrite,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
)
from slackwater.persist.blobs import Blobs
from slackwater.persist.commits import Commits
from slackwater.persist.definitions import ShardDefinitions
from slackwater.persist.metastore import RETRY_POLICY, RetryPolicy
from slackwater.persist.rows import ShardState, WriteResult
from slackwater.persist.shard_files import ShardFiles
from slackwater.persist.shard_maintenance import ShardMaintenance
from slackwater.persist.shard_reads import ShardReads
from slackwater.persist.transactions import Transactions
from slackwater.repr.clock import wall_clock_ms

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


class PersistClient:
    """The shards of one environment, for the leader of `epoch`. Thread-safe.

    Callers use its parts directly, and take only those that they need:

    * `transactions` runs steps in fenced transactions, and queries;
    * `reads` tells states, frontiers and parts, and reads contents;
    * `commits` appends and moves uppers;
    * `definitions` makes, changes and drops shards;
    * `maintenance` moves sinces, replaces parts and finalizes dropped shards;
    * `files` says where the files of a shard are, and makes parts.

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
        clock: Callable[[], int] = wall_clock_ms,
        retry_policy: RetryPolicy = RETRY_POLICY,
        adding_errors: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`blobs` holds the files of parts; `clock` gives wall clock milliseconds.

        Commits that add errors of collections happen within `adding_errors`.
        """
        self.blobs = blobs
        self.files = ShardFiles(blobs)
        self.transactions = Transactions(engine, epoch, retry_policy)
        self.reads = ShardReads(self.transactions, self.files)
        self.definitions = ShardDefinitions(self.transactions, self.reads)
        self.commits = Commits(self.transactions, self.reads, clock, adding_errors)
        self.maintenance = ShardMaintenance(self.transactions, self.reads, clock)
