"""The coordinator of a leader: it starts and stops its parts, and watches meanwhile.

`slackwater.adapter.assembly` makes the parts; `calls` answers the calls of the shim.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from slackwater.adapter.calls import Calls
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.parameters import ParameterDefinitions
from slackwater.adapter.ddl.schedules import ClusterSchedules
from slackwater.adapter.external.lineage import LineageSender
from slackwater.adapter.external.tunnels import Tunnels
from slackwater.adapter.history.recorder import History
from slackwater.adapter.maintenance import Maintenance
from slackwater.adapter.reading.reads import LockLease, Reads
from slackwater.adapter.sessions.sessions import Sessions
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.postgres import PostgresSources
from slackwater.adapter.sources.sinks import SinkRunner
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.adapter.system.dataflow_history import DataflowHistory
from slackwater.adapter.system.lag_history import LagHistory
from slackwater.adapter.system.metrics import Metrics
from slackwater.adapter.system.tables import SystemTables
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.compute.controller.shell import Compute
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.version import VERSION
from slackwater.storage.ingestion import IngestionRunner

HOUSEKEEPING_INTERVAL_S = 5.0
SCHEDULES_INTERVAL_S = 1.0
LOOKS_PER_LEASE = 4
"""Within one lease of a write lock, the coordinator looks so often for leases that ran out."""
IDLE_SESSION_MS = 24 * 3600 * 1000

_log = structlog.get_logger("coordinator")


@dataclass(frozen=True, slots=True)
class Identity:
    """The environment of a coordinator, its log, and the epoch of its leadership."""

    location: str
    log: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that a coordinator starts, stops and looks after."""

    relations: Relations
    timeline: Timeline
    sessions: Sessions
    history: History
    lag_history: LagHistory
    dataflow_history: DataflowHistory
    committer: GroupCommitter
    compute: Compute
    ingestion: IngestionRunner
    postgres: PostgresSources
    tunnels: Tunnels
    webhooks: Webhooks
    changefeeds: Changefeeds
    sinks: SinkRunner
    reads: Reads
    system: SystemTables
    metrics: Metrics
    lineage: LineageSender | None
    changes: Changes
    implications: Implications
    maintenance: Maintenance
    parameters: ParameterDefinitions
    schedules: ClusterSchedules
    calls: Calls


class Coordinator:
    """One leader's coordinator. `calls` answers the shim; each call may run in any thread."""

    def __init__(
        self,
        identity: Identity,
        parts: Parts,
        started: threading.Event,
        lease: LockLease,
        on_fatal: Callable[[str], None],
    ) -> None:
        self.log = identity.log
        self.location = identity.location
        self.calls = parts.calls
        self.parts = parts
        self._epoch = identity.epoch
        self._since_ms = parts.timeline.now()
        self._started = started
        self._lease = lease
        self._on_fatal = on_fatal
        self._closing = threading.Event()

    def start(self) -> None:
        """Starts the committer, then everything that the catalog has. Returns when it runs."""
        self.parts.committer.start()
        self.parts.committer.flush()
        if self.parts.lineage is not None:
            self.parts.lineage.start()
        self.parts.webhooks.start()
        self.parts.changefeeds.start()
        self.parts.postgres.start()
        self._started.set()
        with self.parts.relations.catalog.lock:
            self.parts.implications.start_all()
        self.parts.maintenance.start()
        self.parts.history.start()
        self.parts.lag_history.start(self.parts.system.lags)
        self.parts.dataflow_history.start(self.parts.system.records)
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()
        threading.Thread(target=self._watch_locks, name="write-locks", daemon=True).start()
        threading.Thread(target=self._keep_to_schedules, name="schedules", daemon=True).start()

    def close(self) -> None:
        """Stops everything. No state is lost with a part that does not stop in time."""
        self._closing.set()
        self.parts.dataflow_history.stop()
        self.parts.webhooks.stop()
        self.parts.changefeeds.stop()
        self.parts.maintenance.stop()
        self.parts.ingestion.close()
        self.parts.postgres.close()
        self.parts.sinks.close()
        self.parts.tunnels.close()
        self.parts.compute.close()
        self.parts.committer.stop()
        self.parts.history.stop()
        self.parts.lag_history.stop()
        if self.parts.lineage is not None:
            self.parts.lineage.close()

    def metrics(self) -> bytes:
        """The metrics now, as Prometheus reads them. See `Metrics.text`."""
        return self.parts.metrics.text()

    def status(self) -> Mapping[str, Any]:
        """The epoch, location and version of the coordinator, and since when it is there, in ms.

        Waits for nothing.
        """
        return {
            "epoch": self._epoch,
            "location": self.location,
            "version": VERSION,
            "since": self._since_ms,
        }

    def application_gone(self, application_id: str) -> None:
        """Ends the sessions of an application that had joined and has gone."""
        _log.info("application gone", application=application_id)
        for session in self.parts.sessions.all():
            if session.session_id.startswith(f"{application_id}/"):
                self.calls.end_session(session.session_id)

    # Housekeeping

    def _keep_house(self) -> None:
        while not self._closing.wait(HOUSEKEEPING_INTERVAL_S):
            self._end_idle_sessions()
            self.parts.parameters.read_file()
            try:
                self.parts.relations.catalog.resolve()
            except FatalError as error:
                # A change happened whose outcome was unknown: a restart begins with the catalog.
                self._on_fatal(str(error))
                return
            except (SlackwaterError, Fenced):
                # The metastore is still away, or the committer ends the coordinator anyway.
                continue

    def _keep_to_schedules(self) -> None:
        while not self._closing.wait(SCHEDULES_INTERVAL_S):
            try:
                self.parts.schedules.look()
            except FatalError as error:
                self._on_fatal(str(error))
                return
            except (SlackwaterError, Fenced) as error:
                # The metastore is away, say, or the committer ends the coordinator anyway.
                _log.warning("cluster schedules", error=str(error))

    def _watch_locks(self) -> None:
        while not self._closing.wait(self._lease.ms / LOOKS_PER_LEASE / 1000):
            for session_id in self.parts.reads.end_expired():
                _log.warning("write lock lost", session=session_id)

    def _end_idle_sessions(self) -> None:
        oldest_ms = self.parts.timeline.now() - IDLE_SESSION_MS
        for session in self.parts.sessions.all():
            if session.used_ms < oldest_ms and not session.running:
                self.calls.end_session(session.session_id)
