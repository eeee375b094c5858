"""The SHOW family: listings of the catalog, stored SQL, session variables."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from slackwater.adapter.catalog.clusters import ClusterEntry
from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import (
    ConnectionDetails,
    IndexDetails,
    MaterializedViewDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.naming import expect_kind, find_item, kind_of
from slackwater.adapter.catalog.render import cluster_sql, current_sql
from slackwater.adapter.controllers.parameters import SystemParameters
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.reading.health import Health
from slackwater.adapter.sessions.results import Result, rows, strings
from slackwater.adapter.sessions.sessions import Execution, Session
from slackwater.adapter.system.objects import connection_type, sink_type, source_type
from slackwater.compute.controller.protocol import Problem
from slackwater.planner.parser import cluster_statements as cs
from slackwater.planner.parser import statements as st
from slackwater.planner.parser import variables
from slackwater.planner.parser.names import resolve_schema
from slackwater.planner.parser.parameters import PARAMETERS, is_of_session
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.repr.version import MZ_VERSION

_LISTED: dict[st.ShowKind, ItemKind | None] = {
    st.ShowKind.OBJECTS: None,
    st.ShowKind.SOURCES: ItemKind.SOURCE,
    st.ShowKind.SINKS: ItemKind.SINK,
    st.ShowKind.INDEXES: ItemKind.INDEX,
    st.ShowKind.MATERIALIZED_VIEWS: ItemKind.MATERIALIZED_VIEW,
    st.ShowKind.VIEWS: ItemKind.VIEW,
    st.ShowKind.SECRETS: ItemKind.SECRET,
    st.ShowKind.CONNECTIONS: ItemKind.CONNECTION,
}

_COLUMNS: dict[st.ShowKind, RelationDesc] = {
    st.ShowKind.OBJECTS: strings("name", "type", "comment"),
    st.ShowKind.SOURCES: strings("name", "type", "cluster", "status", "error", "comment"),
    st.ShowKind.SINKS: strings("name", "type", "cluster", "comment"),
    st.ShowKind.INDEXES: strings("name", "on", "cluster", "key", "comment"),
    st.ShowKind.MATERIALIZED_VIEWS: strings(
        "name", "cluster", "state", "progress", "maintenance", "error", "comment"
    ),
    st.ShowKind.VIEWS: strings("name", "comment"),
    st.ShowKind.SECRETS: strings("name", "comment"),
    st.ShowKind.CONNECTIONS: strings("name", "type", "comment"),
    st.ShowKind.CLUSTERS: strings("name", "replicas", "comment"),
    st.ShowKind.CLUSTER_REPLICAS: strings("cluster", "replica", "size", "comment"),
    st.ShowKind.NOTICES: strings("name", "code", "message", "hint"),
}

HYDRATING = "hydrating"

ShowStatement = st.Show | st.ShowCreate | cs.ShowCreateCluster | st.ShowVariable | st.ShowAll


class Shows:
    """Answers SHOW statements from the catalog's snapshot."""

    def __init__(self, relations: Relations, health: Health, parameters: SystemParameters) -> None:
        self._relations = relations
        self._health = health
        self._parameters = parameters

    def columns(self, statement: ShowStatement) -> RelationDesc:
        match statement:
            case st.Show(kind=kind):
                return _COLUMNS[kind]
            case st.ShowCreate(kind=st.ObjectKind.TABLE):
                return strings("createtab_stmt")
            case st.ShowCreate() | cs.ShowCreateCluster():
                return strings("name", "create_sql")
            case st.ShowVariable(name=name):
                of_system = PARAMETERS.get(name)
                return strings((of_system or variables.variable(name)).name)
            case st.ShowAll():
                return strings("name", "setting", "description")

    def show(self, execution: Execution, statement: ShowStatement) -> Result:
        """The rows, ordered by name.

        Raises for unknown schemas, objects and variables, and `Fenced` when another application
        leads, which may know more of the catalog.
        """
        columns, session = self.columns(statement), execution.session
        if not isinstance(statement, st.ShowVariable) or not is_of_session(statement.name):
            self._relations.persist.transactions.confirm_leadership()
        match statement:
            case st.Show():
                return rows(columns, self._listing(execution, statement))
            case st.ShowCreate(kind=kind, name=name):
                item = find_item(self._relations.state, name, execution.context)
                if kind is st.ObjectKind.TABLE:
                    # Spark's statement is for relations of every kind.
                    return rows(columns, [(current_sql(self._relations.state, item),)])
                expect_kind(item, kind_of(kind))
                return rows(columns, [(item.full_name, current_sql(self._relations.state, item))])
            case cs.ShowCreateCluster(name=cluster_name):
                cluster = self._relations.state.cluster(cluster_name)
                return rows(columns, [(cluster.name, cluster_sql(cluster))])
            case st.ShowVariable(name=name):
                return rows(columns, [(self._value(session, name),)])
            case st.ShowAll():
                # A variable of sessions has the same description as the parameter of its name.
                shown = {each.name: each.description for each in PARAMETERS.values()}
                shown |= {each.name: each.description for each in variables.VARIABLES.values()}
                return rows(
                    columns,
                    [
                        (name, self._value(session, name), description)
                        for name, description in sorted(shown.items())
                    ],
                )

    def _value(self, session: Session, name: str) -> str:
        if name == "mz_version":
            return MZ_VERSION
        if is_of_session(name):
            return session.variable(variables.variable(name).name)
        return self._parameters.value(name)

    def _listing(self, execution: Execution, statement: st.Show) -> list[Sequence[object]]:
        match statement.kind:
            case st.ShowKind.CLUSTERS:
                found: list[Sequence[object]] = [
                    (
                        cluster.name,
                        ", ".join(f"{each.name} ({each.size})" for each in cluster.replicas),
                        cluster.comment or "",
                    )
                    for cluster in self._clusters()
                ]
            case st.ShowKind.CLUSTER_REPLICAS:
                found = [
                    (cluster.name, each.name, each.size, each.comment or "")
                    for cluster in self._clusters()
                    for each in cluster.replicas
                ]
            case st.ShowKind.NOTICES:
                return [
                    (n.severity, n.code, n.message, n.advice.hint)
                    for n in execution.session.history
                ]
            case _:
                items = self._items(execution.context, statement)
                found = [self._row(statement.kind, item) for item in items]
        return [row for row in found if _like(str(row[0]), statement.like)]

    def _clusters(self) -> list[ClusterEntry]:
        clusters = self._relations.state.clusters.values()
        return sorted(clusters, key=lambda each: each.name.casefold())

    def _cluster_name(self, item: CatalogItem) -> str | None:
        cluster = self._relations.state.cluster_running(item)
        return None if cluster is None else cluster.name

    def _items(self, context: Context, statement: st.Show) -> list[CatalogItem]:
        state = self._relations.state
        on = None if statement.on is None else find_item(state, statement.on, context)
        if statement.from_schema is not None:
            schema = resolve_schema(statement.from_schema, context.catalog)
        elif on is not None:
            schema = on.schema_name
        else:
            schema = context.namespace[0] if context.namespace else "default"
        wanted = _LISTED[statement.kind]
        cluster = None if statement.cluster is None else state.cluster(statement.cluster).id
        chosen = [
            item
            for item in state.items_in(state.schema(schema).name)
            if (wanted is None or item.kind is wanted)
            and (cluster is None or item.cluster == cluster)
            and (on is None or on.id in item.depends_on)
        ]
        return sorted(chosen, key=lambda item: item.name)

    def _row(self, kind: st.ShowKind, item: CatalogItem) -> Sequence[object]:
        comment, cluster = item.comment or "", self._cluster_name(item)
        match kind:
            case st.ShowKind.OBJECTS:
                return (item.name, item.kind.value, comment)
            case st.ShowKind.SOURCES:
                change = self._health.source_status(item)
                status = "" if change is None else change.status.status
                error = None if change is None else change.status.error
                return (item.name, source_type(item), cluster, status, error, comment)
            case st.ShowKind.SINKS:
                return (item.name, sink_type(item), cluster, comment)
            case st.ShowKind.CONNECTIONS:
                return (item.name, connection_type(item.of(ConnectionDetails)), comment)
            case st.ShowKind.INDEXES:
                on = self._relations.item(item.depends_on[0])
                keys = ", ".join(item.of(IndexDetails).keys)
                return (item.name, on.name, cluster, keys, comment)
            case st.ShowKind.MATERIALIZED_VIEWS:
                fault = self._fault(item)
                error = None if fault is None else str(fault)
                state = "stalled" if error is not None else self._state(item)
                progress = self._progress(item) if state == HYDRATING else None
                maintenance = item.of(MaterializedViewDetails).maintenance or ""
                return (item.name, cluster, state, progress, maintenance, error, comment)
            case _:
                return (item.name, comment)

    def _fault(self, item: CatalogItem) -> SlackwaterError | Problem | None:
        """The error for which the view does not go on, or has no rows at its last complete time."""
        last = self._relations.upper(item).last_complete()
        try:
            self._relations.refuse_errors(item, last, Timestamp(last + 1))
        except SlackwaterError as error:
            return error
        return self._health.failure(item)

    def _state(self, item: CatalogItem) -> str:
        floor = (
            self._relations.persist.reads.state(item.shard_id).since
            if item.shard_id is not None
            else 0
        )
        return "hydrated" if self._relations.upper(item).value > floor else HYDRATING

    def _progress(self, item: CatalogItem) -> str | None:
        """The progress of the view; None: no replica reads whole inputs for it now."""
        found = self._health.hydrations().get(item.id)
        return None if found is None else str(found)


def _like(name: str, pattern: str | None) -> bool:
    """SHOW ... LIKE: Spark's pattern (`*` for any text, `|` between alternatives) or `%`."""
    if pattern is None:
        return True
    return any(
        fnmatch.fnmatchcase(name.lower(), alternative.strip().lower().replace("%", "*"))
        for alternative in pattern.split("|")
    )
