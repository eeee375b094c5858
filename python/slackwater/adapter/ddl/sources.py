"""CREATE SOURCE."""

from __future__ import annotations

from dataclasses import replace

from slackwater.adapter.catalog.details import ChangefeedDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.planner.parser import statements as st


class SourceDefinitions:
    """Definitions of sources."""

    def __init__(
        self,
        changes: Changes,
        planner: ConnectorPlanner,
        sources: Sources,
        webhooks: Webhooks,
        changefeeds: Changefeeds,
    ) -> None:
        self._changes = changes
        self._planner = planner
        self._sources = sources
        self._webhooks = webhooks
        self._changefeeds = changefeeds

    def create_source(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateSource
    ) -> None:
        session, cancellation = execution.session, execution.cancellation
        cluster = self._changes.cluster_for(execution, statement.cluster)
        made = self._changes.new_item(ItemKind.SOURCE, *named, execution.user)
        blank = replace(made, cluster=cluster.id)
        items = self._planner.plan_source(blank, execution.context, statement)
        with self._changes.defining(cancellation):
            self._changes.commit(self._changes.with_tables_shards(items), execution.user)
        source = next(item for item in items if item.parent is None)
        if source.is_webhook:
            session.notify(self._webhooks.endpoint_notice(source))
            return
        details = source.details
        if isinstance(details, ChangefeedDetails) and details.config.path is None:
            session.notify(self._changefeeds.endpoint_notice(source))
        if not self._changes.tell_if_idle(execution, source):
            self._sources.wait_for_snapshot(session, source, cancellation)
