"""What the parts of the coordinator share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogState, ItemKind
from slackwater.adapter.controllers.collections import Collections
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.metrics import Metrics
from slackwater.adapter.sources.replica_inbox import ReplicaInbox
from slackwater.adapter.sources.secrets import Secrets
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.watch import Cancellation, FrontierWatch
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.checkpoints import Store
from slackwater.compute.engine import Engine
from slackwater.compute.worker import Worker
from slackwater.persist.client import PersistClient
from slackwater.persist.holds import SteadyClock
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.shell import Storage
from slackwater.storage.ingestion import IngestionRunner

READABLE = frozenset(
    {ItemKind.TABLE, ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW, ItemKind.SYSTEM_TABLE}
)

LOOK_S = 0.1
"""How often who waits for the ddl lock looks whether the statement still wants it."""


@dataclass(slots=True)
class Environment:
    """The coordinator's parts. Built once by `Coordinator.open`; every part is thread-safe.

    `ddl` serialises changes of the catalog. Lock order: ddl, then the committer's, then
    persist's; `watch` is taken with none of them held. The storage controller's lock is the
    innermost: nothing is waited for under it. `clock` gives wall clock milliseconds;
    `steady_ms` as well, but never goes back. `monotonic` gives seconds, by which statements wait.
    """

    location: str
    log: str
    persist: PersistClient
    catalog: DurableCatalog
    oracle: TimestampOracle
    committer: GroupCommitter
    worker: Worker
    source_states: SourceStates
    ingestion: IngestionRunner
    secrets: Secrets
    webhooks: Webhooks
    changefeeds: Changefeeds
    checkpoints: Store
    metrics: Metrics
    replica_inbox: ReplicaInbox
    engine: Engine
    watch: FrontierWatch
    sessions: Sessions
    storage: Storage
    relations: Relations
    collections: Collections
    clock: Callable[[], int]
    steady_ms: SteadyClock
    monotonic: Callable[[], float]
    ddl: threading.RLock = field(default_factory=threading.RLock)
    awaited_sinks: dict[GlobalId, Timestamp] = field(default_factory=dict)
    """The times that somebody waits for to be out; else a sink is in no hurry to say so."""

    @property
    def state(self) -> CatalogState:
        """The catalog as of now: an immutable snapshot."""
        return self.catalog.state

    @contextmanager
    def defining(self, cancellation: Cancellation) -> Iterator[None]:
        """The ddl lock for a statement.

        Raises SLACKWATER_CANCELED and SLACKWATER_STATEMENT_TIMEOUT.
        """
        while not self.ddl.acquire(timeout=LOOK_S):
            cancellation.check_deadline("another change of the catalog had ended")
        try:
            yield
        finally:
            self.ddl.release()

    def now(self) -> Timestamp:
        return Timestamp(self.clock())
