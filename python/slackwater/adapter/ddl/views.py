"""Views: stored queries, and those that are maintained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.details import ViewDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.ops import CatalogOp, CreateItem, DropItem
from slackwater.adapter.catalog.settings import (
    QUERY_COLUMNS,
    SCHEMA_MODE,
    USUAL_MODE,
    as_properties,
    context_of,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_views import PlannedView, Views
from slackwater.adapter.ddl.replacement_rules import refuse_second
from slackwater.adapter.protocol import NewView, schema_of
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import user_error
from slackwater.repr.relation import RelationDesc

ATTEMPTS = 3
"""The most analyses of a view's query, of which the last one is made with the catalog locked."""


class ViewDefinitions:
    """Definitions of views and materialized views."""

    def __init__(self, changes: Changes, views: Views) -> None:
        self._changes = changes
        self._views = views

    def create_view(self, execution: Execution, asked: NewView) -> CatalogItem:
        """Creates a stored query. Its names mean for ever what they mean in `context`.

        Its properties, which have Spark's settings at creation, are kept and given back with it.
        Raises SLACKWATER_CONCURRENT_CHANGE when a schema got another name meanwhile.
        """
        schema, name, query = schema_of(asked.namespace), asked.name, asked.query
        context, before = execution.context, self._changes.state
        analysis = self._views.analyze(context, query)
        blank = self._changes.new_item(ItemKind.VIEW, schema, name, context.user)
        self._views.refuse_foreign(blank.full_name, analysis)
        item = replace(
            blank,
            create_sql=to_sql(
                st.CreateView(
                    QualifiedName((CATALOG_NAME, schema, name)),
                    st.TextSlice(query),
                    columns=asked.schema.names,
                )
            ),
            desc=asked.schema,
            depends_on=self._views.dependencies(analysis),
            comment=asked.comment,
            details=ViewDetails(
                query,
                context.catalog,
                context.namespace,
                self._views.named(analysis),
                asked.properties,
            ),
        )
        with self._changes.defining(execution.cancellation):
            _refuse_renamed(before, self._changes.state)
            ops: list[CatalogOp] = []
            indexes: list[str] = []
            if asked.replace and self._changes.state.find(schema, name) is not None:
                replaced = self._changes.state.get(schema, name, ItemKind.VIEW)
                ops.append(DropItem(replaced.id, replaces=True))
                indexes += [i.full_name for i in self._changes.state.dependents(replaced.id)]
            self._changes.commit([*ops, CreateItem(item)], context.user)
        if indexes:
            gone = ", ".join(indexes)
            execution.session.notify(f"Dropped with the view that was replaced: {gone}.")
        return self._changes.state.item(item.id)

    def create_view_statement(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateView
    ) -> None:
        analysis = self._views.analyze(execution.context, statement.query.text)
        desc = self._views.renamed(analysis.desc, statement.columns, str(statement.name))
        asked = _asked(named, desc, statement, as_properties(execution.context.settings))
        self.create_view(execution, asked)

    def create_view_under(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateViewUnder
    ) -> None:
        """Creates a stored query whose statement states its namespace and settings."""
        context = context_of(execution.context, statement.under)
        found = self._views.analyze(context, statement.query.text).desc
        described = statement.columns
        names = None if described is None else tuple(each for each, _ in described)
        desc = self._views.renamed(found, names, str(statement.name))
        texts = [text for _, text in described or ()]
        properties = {
            **dict(statement.properties),
            **as_properties(context.settings),
            SCHEMA_MODE: statement.binding or USUAL_MODE,
            QUERY_COLUMNS: json.dumps(list(found.names)),
        }
        asked = _asked(named, _commented(desc, texts), statement, properties)
        self.create_view(replace(execution, context=context), asked)

    def create_materialized_view(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateMaterializedView
    ) -> None:
        """Creates a maintained view. Spark analyses the query while other definitions go on.

        If an object below the query has changed meanwhile, it is analysed again. The last time the
        catalog is locked, so that this ends.
        """
        context, cancellation = (
            context_of(execution.context, statement.under),
            execution.cancellation,
        )
        cluster = self._changes.cluster_for(execution, statement.cluster)
        made = self._changes.new_item(ItemKind.MATERIALIZED_VIEW, *named, context.user)
        blank = replace(made, cluster=cluster.id)
        replaces = None if statement.replaces is None else context.resolve(statement.replaces)
        for attempt in range(1, ATTEMPTS + 1):
            with self._changes.defining(cancellation) if attempt == ATTEMPTS else nullcontext():
                planned = self._views.plan_new(blank, context, statement, replaces)
                try:
                    cancellation.check_deadline("the view was defined")
                    if self._created(planned, execution, replace_existing=statement.or_replace):
                        break
                finally:
                    self._views.release(planned)
        for message in planned.notices:
            execution.session.notify(message)
        self._changes.tell_if_idle(execution, blank)

    def _created(
        self, planned: PlannedView, execution: Execution, *, replace_existing: bool
    ) -> bool:
        """Creates the view; False: an object below it has changed since the analysis."""
        schema, name = planned.item.schema_name, planned.item.name

        def make(conn: Connection) -> Sequence[CatalogOp]:
            ops: list[CatalogOp] = []
            if planned.item.replaces is not None:
                state = self._changes.state
                refuse_second(state, state.item(planned.item.replaces))
            existing = self._changes.state.find(schema, name)
            if replace_existing and existing is not None:
                self._changes.state.get(schema, name, ItemKind.MATERIALIZED_VIEW)
                ops.append(DropItem(existing.id, replaces=True))
            return [*ops, CreateItem(self._views.with_shards(conn, planned))]

        with self._changes.defining(execution.cancellation):
            if not planned.describes(self._changes.state):
                return False
            self._changes.commit(make, execution.user)
            return True


def _refuse_renamed(before: CatalogState, now: CatalogState) -> None:
    """Raises SLACKWATER_CONCURRENT_CHANGE for a schema that has another name than before."""
    names = {schema.id: schema.name for schema in now.schemas.values()}
    for schema in before.schemas.values():
        if names.get(schema.id, schema.name) != schema.name:
            shown = f"The schema {schema.name}"
            raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName=shown)


def _asked(
    named: tuple[str, str],
    desc: RelationDesc,
    statement: st.CreateView | st.CreateViewUnder,
    properties: Mapping[str, str],
) -> NewView:
    """The view of a statement, with its schema, its name and its columns."""
    schema, name = named
    return NewView(
        namespace=(schema,),
        name=name,
        schema=desc,
        query=statement.query.text,
        properties=properties,
        replace=statement.or_replace,
        comment=statement.comment,
    )


def _commented(desc: RelationDesc, texts: Sequence[str | None]) -> RelationDesc:
    """The columns with `texts` in place of the query's comments; unchanged without texts."""
    if not texts:
        return desc
    columns = []
    for column, text in zip(desc.columns, texts, strict=True):
        metadata = json.loads(column.metadata_json)
        metadata.pop("comment", None)
        metadata |= {} if text is None else {"comment": text}
        columns.append(replace(column, metadata_json=json.dumps(metadata)))
    return RelationDesc(tuple(columns))
