"""ALTER SOURCE ... ADD TABLE and ALTER SOURCE ... REPLAY DEAD LETTERS."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import CatalogOp, CreateItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve
from slackwater.repr.errors import user_error
from slackwater.storage.ingestion import IngestionRunner


class ChangefeedDefinitions:
    """Changes of the sources that changefeeds fill."""

    def __init__(
        self,
        changes: Changes,
        planner: ConnectorPlanner,
        changefeeds: Changefeeds,
        ingestion: IngestionRunner,
        timeline: Timeline,
    ) -> None:
        self._changes = changes
        self._planner = planner
        self._changefeeds = changefeeds
        self._ingestion = ingestion
        self._timeline = timeline

    def add_table(
        self,
        session: Session,
        context: Context,
        statement: st.AlterSourceAddTable,
        cancellation: Cancellation,
    ) -> None:
        """Adds a table, which is filled from the next binding on.

        Its changes that were bound before are dead letters.
        """
        if self._is_missing(session, context, statement.name, statement.if_exists):
            return
        with self._changes.defining(cancellation):
            source = self._source(context, statement.name)
            table, altered = self._planner.plan_feed_table(source, statement.table, context)

            def make(conn: Connection) -> Sequence[CatalogOp]:
                since = self._timeline.read_ts()
                stored = self._changes.with_tables_shard(conn, table, since)
                return [CreateItem(stored), altered]

            self._changes.commit(make, context.user)
            self._changefeeds.inbox(source.id).invalidate()
        self._ingestion.wake(source.id)

    def replay(
        self,
        session: Session,
        context: Context,
        statement: st.ReplayDeadLetters,
        cancellation: Cancellation,
    ) -> None:
        """Tries the dead letters again; returns when that is done, with a notice."""
        if self._is_missing(session, context, statement.name, statement.if_exists):
            return
        source = self._source(context, statement.name)
        replay = self._changefeeds.inbox(source.id).replay()
        self._ingestion.wake(source.id)
        while not replay.done.wait(LOOK_S):
            cancellation.check_deadline("the dead letters had been tried again")
        session.notify(f"{replay.tried} dead letters were tried again, {replay.left} are left.")

    def _is_missing(
        self, session: Session, context: Context, name: QualifiedName, if_exists: bool
    ) -> bool:
        schema, own = resolve(name, context.catalog, context.namespace)
        if not if_exists or self._changes.state.find(schema, own) is not None:
            return False
        session.notify(f"There is no source {schema}.{own}.", code="42704")
        return True

    def _source(self, context: Context, name: QualifiedName) -> CatalogItem:
        schema, own = resolve(name, context.catalog, context.namespace)
        source = self._changes.state.get(schema, own, ItemKind.SOURCE)
        if not source.is_changefeed:
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=source.full_name,
                actualKind="source of another kind",
                expectedKind="source FROM CHANGEFEED",
            )
        return source
