"""Definitions: the statements of our own grammar that change the catalog, to whom they concern."""

from __future__ import annotations

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.model import (
    CatalogItem,
    ItemKind,
)
from slackwater.adapter.ddl.changefeeds import ChangefeedDefinitions
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.external import ExternalDefinitions
from slackwater.adapter.ddl.implications import Implications
from slackwater.adapter.ddl.objects import Objects
from slackwater.adapter.ddl.planned_views import Views
from slackwater.adapter.ddl.tables import Tables
from slackwater.adapter.ddl.views import ViewDefinitions
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.sources import Sources
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve


class Definitions:
    """Changes the catalog. Thread-safe: changes are serialised by the environment's ddl lock.

    `tables`, `views` and `objects` also take what Spark's grammar asks of a catalog.
    """

    def __init__(
        self,
        env: Environment,
        views: Views,
        sources: Sources,
        implications: Implications,
    ) -> None:
        self._env = env
        self.changes = changes = Changes(env, sources, implications)
        self.tables = Tables(env, changes)
        self.views = ViewDefinitions(env, changes, views)
        self.objects = Objects(env, changes)
        self._external = ExternalDefinitions(env, changes, sources)
        self._changefeeds = ChangefeedDefinitions(env, changes)

    def execute(
        self,
        session: Session,
        context: Context,
        statement: st.Statement,
        cancellation: Cancellation,
    ) -> None:
        """Runs a definition statement. Raises the catalogue's errors; all or nothing."""
        match statement:
            case st.CreateTable():
                self.tables.create_table_with_options(session, context, statement)
            case st.CreateView():
                self.views.create_view_statement(session, context, statement, cancellation)
            case st.CreateViewUnder():
                self.views.create_view_under(session, context, statement, cancellation)
            case st.CreateMaterializedView():
                self.views.create_materialized_view(session, context, statement, cancellation)
            case st.CreateSource():
                self._external.create_source(session, context, statement, cancellation)
            case st.CreateSink():
                self._external.create_sink(session, context, statement, cancellation)
            case st.CreateSecret():
                self._external.create_secret(session, context, statement, cancellation)
            case st.AlterSecret():
                self._external.alter_secret(session, context, statement, cancellation)
            case st.DropObjects():
                self.objects.drop_objects(session, context, statement, cancellation)
            case st.AlterRename():
                self.objects.rename_statement(context, statement, cancellation)
            case st.AlterSetRetainHistory():
                self.objects.set_retain_history(session, context, statement, cancellation)
            case st.AlterSinkFrom():
                self._external.redirect_sink(session, context, statement, cancellation)
            case st.AlterSourceAddTable():
                self._changefeeds.add_table(session, context, statement, cancellation)
            case st.ReplayDeadLetters():
                self._changefeeds.replay(session, context, statement, cancellation)
            case st.CommentOn():
                self.objects.comment(context, statement, cancellation)
            case _:
                raise AssertionError(f"{type(statement).__name__} is not a definition")

    def find(self, name: QualifiedName, context: Context, kind: ItemKind) -> CatalogItem:
        """The item of that name and kind."""
        schema, own = resolve(name, context.catalog, context.namespace)
        return self._env.state.get(schema, own, kind)
