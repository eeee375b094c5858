"""ALTER SOURCE ... ADD TABLE and ALTER SOURCE ... REPLAY DEAD LETTERS."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.catalog.lock import LOOK_S
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, ItemKind
from slackwater.adapter.catalog.render import name_of
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.source_tables import SourceTableDefinitions
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.source_tables import CreateTableFromSource
from slackwater.repr.errors import user_error
from slackwater.storage.ingestion import IngestionRunner


@dataclass(frozen=True, slots=True)
class ChangefeedDefinitions:
    """Changes of the sources that changefeeds fill."""

    changes: Changes
    tables: SourceTableDefinitions
    changefeeds: Changefeeds
    ingestion: IngestionRunner

    def add_table(self, execution: Execution, statement: st.AlterSourceAddTable) -> None:
        """Adds a table of that name beside the source, as CREATE TABLE ... FROM SOURCE does."""
        named = self.changes.existing_name(
            execution, ItemKind.SOURCE, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        source, table = self._source(named), statement.table
        made = CreateTableFromSource(
            QualifiedName((CATALOG_NAME, source.schema_name, table.name)),
            name_of(source),
            QualifiedName((table.name,)),
            table.columns.text,
            retain_history_ms=source.retain_history_ms,
            key=table.key,
            extras=table.extras,
        )
        self.tables.create_table(execution, (source.schema_name, table.name), made)

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
