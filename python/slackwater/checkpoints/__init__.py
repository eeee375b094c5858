"""Checkpoint groups: resolved timestamps of many partitions become one consistent frontier.

A feed of changes says now and then up to which time it has delivered everything. `Checkpoints`
starts a `Group` for tables that several such feeds, its partitions, write to. The group keeps what
each has said, and shows as `Bounds` what all of them have delivered and what of it is done. It
needs neither Spark nor an environment; `docs/internals/checkpoints.md` explains it by an example.

Source: spec checkpoint 1, 2, 5.
"""

from slackwater.checkpoints.database import DatabaseStore, EngineTransactions, open_store
from slackwater.checkpoints.group import Bounds, Checkpoints, Group
from slackwater.checkpoints.memory import MemoryStore
from slackwater.checkpoints.names import Schema, TableGroup
from slackwater.checkpoints.options import (
    Option,
    disable_stream,
    limit_lookahead,
    poll_every,
    prune_every,
)
from slackwater.checkpoints.store import GoingBackwards, Store
from slackwater.checkpoints.variable import Variable
from slackwater.repr.hlc import ZERO, Range, Time

__all__ = [
    "ZERO",
    "Bounds",
    "Checkpoints",
    "DatabaseStore",
    "EngineTransactions",
    "GoingBackwards",
    "Group",
    "MemoryStore",
    "Option",
    "Range",
    "Schema",
    "Store",
    "TableGroup",
    "Time",
    "Variable",
    "disable_stream",
    "limit_lookahead",
    "open_store",
    "poll_every",
    "prune_every",
]
