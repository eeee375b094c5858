"""CREATE SOURCE."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slackwater.adapter.catalog.details import ChangefeedDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_sources import ConnectorPlanner
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.changefeeds import Changefeeds
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.sources.webhooks import Webhooks
from slackwater.planner.parser import statements as st


@dataclass(frozen=True, slots=True)
class SourceDefinitions:
    """Definitions of sources."""

    changes: Changes
    planner: ConnectorPlanner
    sources: Sources
    webhooks: Webhooks
    changefeeds: Changefeeds

    def create_source(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateSource
    ) -> None:
        session, cancellation = execution.session, execution.cancellation
        cluster = self.changes.cluster_for(execution, statement.cluster)
        made = self.changes.new_item(ItemKind.SOURCE, *named, execution.user)
        blank = replace(made, cluster=cluster.id)
        items, notices = self.planner.plan_source(blank, execution.context, statement)
        with self.changes.defining(cancellation):
            self.changes.commit(self.changes.with_tables_shards(items), execution.user)
        for notice in notices:
            session.notify(notice)
        source = next(item for item in items if item.parent is None)
        if source.is_webhook:
            session.notify(self.webhooks.endpoint_notice(source))
            return
        details = source.details
        if isinstance(details, ChangefeedDetails) and details.config.path is None:
            session.notify(self.changefeeds.endpoint_notice(source))
        if not self.changes.tell_if_idle(execution, source):
            self.sources.wait_for_snapshot(session, source, cancellation)
