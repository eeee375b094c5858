"""Sources, sinks and secrets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import (
    CatalogItem,
    ItemKind,
)
from slackwater.adapter.catalog.naming import find_item
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogOp,
    CreateItem,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.secrets import version_of
from slackwater.adapter.sources.sinks import PROGRESS
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.time.watch import Cancellation
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName, resolve
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Frontier, Timestamp


class ExternalDefinitions:
    """Definitions of sources, sinks and secrets."""

    def __init__(self, env: Environment, changes: Changes, sources: Sources) -> None:
        self._env = env
        self._changes = changes
        self._sources = sources
        self._planner = ConnectorPlanner(env)

    def create_source(
        self,
        session: Session,
        context: Context,
        statement: st.CreateSource,
        cancellation: Cancellation,
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if self._changes.skip(session, statement.if_not_exists, schema, name):
            return
        items = self._planner.plan_source(schema, name, context, statement)
        with self._env.defining(cancellation):
            self._changes.commit(self._changes.with_tables_shards(items), context.user)
        source = next(item for item in items if item.parent is None)
        if source.is_webhook:
            session.notify(self._env.webhooks.endpoint_notice(source))
            return
        if source.is_changefeed and source.details["config"]["path"] is None:
            session.notify(self._env.changefeeds.endpoint_notice(source))
        self._sources.wait_for_snapshot(session, source, cancellation)

    def create_secret(
        self,
        session: Session,
        context: Context,
        statement: st.CreateSecret,
        cancellation: Cancellation,
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if self._changes.skip(session, statement.if_not_exists, schema, name):
            return
        item = CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.SECRET,
            schema_name=schema,
            name=name,
            create_sql=to_sql(statement),
            owner=context.user,
            created_ms=self._env.now(),
        )

        def make(conn: Connection) -> Sequence[CatalogOp]:
            self._env.secrets.put(conn, item.id, statement.value)
            return [CreateItem(item)]

        with self._env.defining(cancellation):
            self._changes.commit(make, context.user)

    def alter_secret(
        self,
        session: Session,
        context: Context,
        statement: st.AlterSecret,
        cancellation: Cancellation,
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._env.state.find(schema, name) is None:
            session.notify(f"There is no secret {schema}.{name}.", code="42704")
            return
        with self._env.defining(cancellation):
            item = self._env.state.get(schema, name, ItemKind.SECRET)
            details = {**item.details, "version": version_of(item) + 1}

            def make(conn: Connection) -> Sequence[CatalogOp]:
                self._env.secrets.put(conn, item.id, statement.value)
                return [AlterItem(item.id, details=details)]

            self._changes.commit(make, context.user)

    def create_sink(
        self,
        session: Session,
        context: Context,
        statement: st.CreateSink,
        cancellation: Cancellation,
    ) -> None:
        written = find_item(self._env.state, statement.from_name, context)
        given = statement.name or QualifiedName((f"{written.name}_sink",))
        schema, name = resolve(given, context.catalog, context.namespace)
        if self._changes.skip(session, statement.if_not_exists, schema, name):
            return
        item_id = self._env.catalog.allocate_ids()[0]
        with self._env.defining(cancellation):
            if written.shard_id is not None:
                self._env.collections.prepare_export(item_id, written.id)
            try:
                item = self._planner.plan_sink(item_id, schema, name, context, statement, written)

                def make(conn: Connection) -> Sequence[CatalogOp]:
                    as_of = Timestamp(int(item.details["as_of"]))
                    shard_id = self._env.persist.definitions.create_shard(
                        conn, PROGRESS, since=as_of, upper=as_of
                    )
                    details = {**item.details, "progress_shard": shard_id}
                    return [CreateItem(replace(item, details=details))]

                self._changes.commit(make, context.user)
            finally:
                self._env.collections.cancel_export(item_id)

    def redirect_sink(
        self,
        session: Session,
        context: Context,
        statement: st.AlterSinkFrom,
        cancellation: Cancellation,
    ) -> None:
        """ALTER SINK ... SET FROM: what is out stays, from there on the other relation's changes.

        First all that the old relation held at the time of the statement goes out. The running sink
        ends after the catalog has changed; the next one continues where the files end, so there is
        no time at which both relations are written, or none.
        """
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._env.state.find(schema, own) is None:
            session.notify(f"There is no sink {schema}.{own}.", code="42704")
            return
        sink = self._env.state.get(schema, own, ItemKind.SINK)
        written = find_item(self._env.state, statement.from_name, context)
        self._planner.redirect_sink(sink, written)
        time = self._env.oracle.read_ts()
        # Held before the sink gets there, so that it can be read where the sink is then.
        hold = self._env.relations.hold([written], Holder(HoldKind.DEFINITION, sink.id))
        try:
            self._check_readable(sink, written, hold, time)
            self._wait_until_out(sink, time, cancellation)
            with self._env.defining(cancellation):
                sink = self._env.state.item(sink.id)
                change = self._planner.redirect_sink(sink, self._env.state.item(written.id))
                if change.depends_on != sink.depends_on:
                    self._changes.commit([change], context.user)
        finally:
            self._env.storage.release(hold)

    def _wait_until_out(
        self, sink: CatalogItem, time: Timestamp, cancellation: Cancellation
    ) -> None:
        """Returns when it is on record that the sink has written everything up to `time`."""

        def out() -> Frontier:
            return Frontier(self._env.persist.reads.upper(int(sink.details["progress_shard"])))

        self._env.awaited_sinks[sink.id] = time
        try:
            is_out = self._env.watch.wait_until(
                lambda: out().value > time, cancellation.left_s(), cancellation
            )
        finally:
            self._env.awaited_sinks.pop(sink.id, None)
        if not is_out:
            raise user_error(
                "SLACKWATER_WAIT_TIMEOUT",
                objectName=sink.full_name,
                timestamp=str(time),
                seconds=f"{cancellation.timeout_ms / 1000:g}",
                complete=str(out().last_complete()),
                reason="",
            )

    def _check_readable(
        self, sink: CatalogItem, written: CatalogItem, hold: ReadHold, time: Timestamp
    ) -> None:
        if hold.since > time:
            raise user_error(
                "SLACKWATER_NO_VALID_TIMESTAMP",
                details=f"the sink {sink.full_name} goes on from {time}, "
                f"and {written.full_name} can be read from {hold.since} on",
            )
