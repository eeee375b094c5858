"""CREATE SINK and ALTER SINK."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SinkDetails
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.naming import find_item
from slackwater.adapter.catalog.ops import CatalogOp, CreateItem
from slackwater.adapter.controllers.collections import Collections
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.sinks import PROGRESS, SinkRunner
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class SinkDefinitions:
    """Definitions of sinks. `awaited` has the times that statements wait for sinks to write."""

    changes: Changes
    planner: ConnectorPlanner
    collections: Collections
    relations: Relations
    timeline: Timeline
    awaited: MutableMapping[GlobalId, Timestamp]
    runner: SinkRunner

    def name_of(self, statement: st.CreateSink, context: Context) -> QualifiedName:
        """The name of the new sink: without one, that of the relation with ``_sink``."""
        written = find_item(self.changes.state, statement.from_name, context)
        return statement.name or QualifiedName((f"{written.name}_sink",))

    def create_sink(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateSink
    ) -> None:
        written = find_item(self.changes.state, statement.from_name, execution.context)
        cluster = self.changes.cluster_for(execution, statement.cluster)
        made = self.changes.new_item(ItemKind.SINK, *named, execution.user)
        blank = replace(made, cluster=cluster.id)
        with self.changes.defining(execution.cancellation):
            if written.shard_id is not None:
                self.collections.prepare_export(blank.id, written.id)
            try:
                item, notices = self.planner.plan_sink(blank, execution.context, statement, written)

                def make(conn: Connection) -> Sequence[CatalogOp]:
                    details = item.of(SinkDetails)
                    as_of = details.as_of
                    shard_id = self.collections.persist.definitions.create_shard(
                        conn, PROGRESS, since=as_of, upper=as_of
                    )
                    made = replace(item, details=replace(details, progress_shard=shard_id))
                    return [CreateItem(made)]

                self.changes.commit(make, execution.user)
            finally:
                self.collections.cancel_export(blank.id)
        for notice in notices:
            execution.session.notify(notice)
        self.changes.tell_if_idle(execution, blank)

    def redirect_sink(self, execution: Execution, statement: st.AlterSinkFrom) -> None:
        """ALTER SINK ... SET FROM: the files stay, and the other relation's changes follow them.

        First the sink writes all that the old relation held at the time of the statement. The
        running sink ends after the catalog has changed; the next one continues where the files end,
        so there is no time at which both relations are written, or none.
        """
        named = self.changes.existing_name(
            execution, ItemKind.SINK, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        sink = self.changes.state.get(*named, ItemKind.SINK)
        written = find_item(self.changes.state, statement.from_name, execution.context)
        self.planner.redirect_sink(sink, written)
        time = self.timeline.read_ts()
        # Held before the sink gets there, so that it can be read where the sink is then.
        hold = self.relations.hold([written], Holder(HoldKind.DEFINITION, sink.id))
        try:
            self._check_readable(sink, written, hold, time)
            self._wait_until_out(sink, time, execution.cancellation)
            with (
                self._between_ranges(sink, time, execution.cancellation),
                self.changes.defining(execution.cancellation),
            ):
                sink = self.changes.state.item(sink.id)
                change = self.planner.redirect_sink(sink, self.changes.state.item(written.id))
                if change.depends_on != sink.depends_on:
                    self.changes.commit([change], execution.user)
        finally:
            self.collections.storage.release(hold)

    def _wait_until_out(
        self, sink: CatalogItem, time: Timestamp, cancellation: Cancellation
    ) -> None:
        """Returns when it is on record that the sink has written everything up to `time`."""

        shard_id = sink.progress_shard
        if shard_id is None:
            raise FatalError(f"the sink {sink.full_name} has no progress shard")

        def out() -> Frontier:
            return Frontier(self.collections.persist.reads.upper(shard_id))

        self.awaited[sink.id] = time
        try:
            is_out = self.timeline.watch.wait_until(
                lambda: out().value > time, cancellation.left_s(), cancellation
            )
        finally:
            self.awaited.pop(sink.id, None)
        if not is_out:
            raise _timed_out(sink, time, out(), cancellation)

    @contextmanager
    def _between_ranges(
        self, sink: CatalogItem, time: Timestamp, cancellation: Cancellation
    ) -> Iterator[None]:
        """The sink begins no range meanwhile: one of which a part is out has to be finished with
        the relation with which it was begun."""
        with self.runner.at_end_of_range(sink.id, cancellation) as is_out:
            if not is_out:
                raise _timed_out(sink, time, self.runner.frontier(sink.id), cancellation)
            yield

    def _check_readable(
        self, sink: CatalogItem, written: CatalogItem, hold: ReadHold, time: Timestamp
    ) -> None:
        if hold.since > time:
            raise user_error(
                "SLACKWATER_NO_VALID_TIMESTAMP",
                details=f"the sink {sink.full_name} goes on from {time}, "
                f"and {written.full_name} can be read from {hold.since} on",
            )


def _timed_out(
    sink: CatalogItem, time: Timestamp, reached: Frontier, cancellation: Cancellation
) -> SlackwaterError:
    return user_error(
        "SLACKWATER_WAIT_TIMEOUT",
        objectName=sink.full_name,
        timestamp=str(time),
        seconds=f"{cancellation.timeout_ms / 1000:g}",
        complete=str(reached.last_complete()),
        reason="",
    )
