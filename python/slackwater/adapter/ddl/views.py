"""Views: stored queries, and those that are maintained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import ViewDetails
from slackwater.adapter.catalog.model import (
    CatalogItem,
    ItemKind,
)
from slackwater.adapter.catalog.ops import (
    CatalogOp,
    CreateItem,
    DropItem,
)
from slackwater.adapter.catalog.settings import (
    QUERY_COLUMNS,
    SCHEMA_MODE,
    USUAL_MODE,
    as_properties,
    context_of,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.planned_views import PlannedView, Views
from slackwater.adapter.protocol import CreateView
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.watch import Cancellation
from slackwater.compute.engine import Engine
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.relation import RelationDesc

ATTEMPTS = 3
"""The most analyses of a view's query, of which the last one is made with the catalog locked."""


class ViewDefinitions:
    """Definitions of views and materialized views."""

    def __init__(self, changes: Changes, views: Views, engine: Engine) -> None:
        self._changes = changes
        self._views = views
        self._engine = engine

    def create_view(
        self, context: Context, asked: CreateView, cancellation: Cancellation
    ) -> CatalogItem:
        """Creates a stored query. Its names mean for ever what they mean in `context`.

        Its properties, which have Spark's settings at creation, are kept and given back with it.
        """
        schema_name, name, query = asked.schema_name, asked.name, asked.query
        engine = self._engine.under(context.settings)
        analysis = engine.analyze(query, context.catalog, context.namespace)
        self._views.refuse_foreign(asked.full_name, analysis)
        item = replace(
            self._changes.new_item(ItemKind.VIEW, schema_name, name, context),
            create_sql=to_sql(
                st.CreateView(
                    QualifiedName(("slackwater", schema_name, name)),
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
        with self._changes.defining(cancellation):
            ops: list[CatalogOp] = []
            if asked.replace and self._changes.state.find(schema_name, name) is not None:
                replaced = self._changes.state.get(schema_name, name, ItemKind.VIEW)
                ops.append(DropItem(replaced.id, replaces=True))
            self._changes.commit([*ops, CreateItem(item)], context.user)
        return self._changes.state.item(item.id)

    def create_view_statement(
        self,
        session: Session,
        context: Context,
        statement: st.CreateView,
        cancellation: Cancellation,
    ) -> None:
        named = self._changes.new_name(
            session, context, statement.name, if_not_exists=statement.if_not_exists
        )
        if named is None:
            return
        analysis = self._engine.under(context.settings).analyze(
            statement.query.text, context.catalog, context.namespace
        )
        desc = self._views.renamed(analysis.desc, statement.columns, str(statement.name))
        asked = _asked(named, desc, statement, as_properties(context.settings))
        self.create_view(context, asked, cancellation)

    def create_view_under(
        self,
        session: Session,
        context: Context,
        statement: st.CreateViewUnder,
        cancellation: Cancellation,
    ) -> None:
        """Creates a stored query whose statement states its namespace and settings."""
        named = self._changes.new_name(
            session, context, statement.name, if_not_exists=statement.if_not_exists
        )
        if named is None:
            return
        context, query = context_of(context, statement.under), statement.query.text
        engine = self._engine.under(context.settings)
        found = engine.analyze(query, context.catalog, context.namespace).desc
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
        self.create_view(context, asked, cancellation)

    def create_materialized_view(
        self,
        session: Session,
        context: Context,
        statement: st.CreateMaterializedView,
        cancellation: Cancellation,
    ) -> None:
        """Creates a maintained view. Spark analyses the query while other definitions go on.

        If an object below the query has changed meanwhile, it is analysed again. The last time the
        catalog is locked, so that this ends.
        """
        named = self._changes.new_name(
            session, context, statement.name, if_not_exists=statement.if_not_exists
        )
        if named is None:
            return
        schema, name = named
        context = context_of(context, statement.under)
        blank = self._changes.new_item(ItemKind.MATERIALIZED_VIEW, schema, name, context)
        for attempt in range(1, ATTEMPTS + 1):
            with self._changes.defining(cancellation) if attempt == ATTEMPTS else nullcontext():
                planned = self._views.plan_new(blank, context, statement)
                try:
                    cancellation.check_deadline("the view was defined")
                    if self._created(
                        planned, context, cancellation, replace_existing=statement.or_replace
                    ):
                        break
                finally:
                    self._views.release(planned)
        for message in planned.notices:
            session.notify(message)

    def _created(
        self,
        planned: PlannedView,
        context: Context,
        cancellation: Cancellation,
        *,
        replace_existing: bool,
    ) -> bool:
        """Creates the view; False: an object below it has changed since the analysis."""
        schema, name = planned.item.schema_name, planned.item.name

        def make(conn: Connection) -> Sequence[CatalogOp]:
            ops: list[CatalogOp] = []
            existing = self._changes.state.find(schema, name)
            if replace_existing and existing is not None:
                self._changes.state.get(schema, name, ItemKind.MATERIALIZED_VIEW)
                ops.append(DropItem(existing.id, replaces=True))
            return [*ops, CreateItem(self._views.with_shards(conn, planned))]

        with self._changes.defining(cancellation):
            if not planned.describes(self._changes.state):
                return False
            self._changes.commit(make, context.user)
            return True


def _asked(
    named: tuple[str, str],
    desc: RelationDesc,
    statement: st.CreateView | st.CreateViewUnder,
    properties: Mapping[str, str],
) -> CreateView:
    """The view of a statement, with its schema, its name and its columns."""
    schema, name = named
    return CreateView(
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
