"""ALTER SOURCE ... ADD TABLE and ALTER SOURCE ... REPLAY DEAD LETTERS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import CatalogOp, CreateItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.time.timeline import Timeline
from slackwater.planner.parser import statements as st
from slackwater.repr.errors import user_error
from slackwater.storage.ingestion import IngestionRunner


@dataclass(frozen=True, slots=True)
class ChangefeedDefinitions:
    """Changes of the sources that changefeeds fill."""

    changes: Changes
    planner: ConnectorPlanner
    changefeeds: Changefeeds
    ingestion: IngestionRunner
    timeline: Timeline

    def add_table(self, execution: Execution, statement: st.AlterSourceAddTable) -> None:
        """Adds a table, which is filled from the next binding on.

        Its changes that were bound before are dead letters.
        """
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        with self.changes.defining(execution.cancellation):
            source = self._source(named)
            table, altered = self.planner.plan_feed_table(
                source, statement.table, execution.context
            )

            def make(conn: Connection) -> Sequence[CatalogOp]:
                since = self.timeline.read_ts()
                stored = self.changes.with_tables_shard(conn, table, since)
                return [CreateItem(stored), altered]

            self.changes.commit(make, execution.user)
            self.changefeeds.inbox(source.id).invalidate()
        self.ingestion.wake(source.id)

    def replay(self, execution: Execution, statement: st.ReplayDeadLetters) -> None:
        """Tries the dead letters again; returns when that is done, with a notice."""
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        source = self._source(named)
        replay = self.changefeeds.inbox(source.id).replay()
        self.ingestion.wake(source.id)
        while not replay.done.wait(LOOK_S):
            execution.cancellation.check_deadline("the dead letters had been tried again")
        execution.session.notify(
            f"{replay.tried} dead letters were tried again, {replay.left} are left."
        )

    def _source(self, named: tuple[str, str]) -> CatalogItem:
        source = self.changes.state.get(*named, ItemKind.SOURCE)
        if not source.is_changefeed:
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=source.full_name,
                actualKind="source of another kind",
                expectedKind="source FROM CHANGEFEED",
            )
        return source
