"""Definitions: passes each statement that changes the catalog to the part that performs it."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.ddl.changefeeds import ChangefeedDefinitions
from slackwater.adapter.ddl.indexes import IndexDefinitions
from slackwater.adapter.ddl.objects import Objects
from slackwater.adapter.ddl.secrets import SecretDefinitions
from slackwater.adapter.ddl.sinks import SinkDefinitions
from slackwater.adapter.ddl.sources import SourceDefinitions
from slackwater.adapter.ddl.tables import Tables
from slackwater.adapter.ddl.views import ViewDefinitions
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st


@dataclass(frozen=True, slots=True)
class Definitions:
    """Changes the catalog. Thread-safe: changes are serialised by the catalog's lock.

    `tables`, `views` and `objects` also take the definitions of Spark's own grammar.
    """

    tables: Tables
    views: ViewDefinitions
    objects: Objects
    indexes: IndexDefinitions
    sources: SourceDefinitions
    sinks: SinkDefinitions
    secrets: SecretDefinitions
    changefeeds: ChangefeedDefinitions

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
            case st.CreateIndex():
                self.indexes.create_index(session, context, statement, cancellation)
            case st.CreateSource():
                self.sources.create_source(session, context, statement, cancellation)
            case st.CreateSink():
                self.sinks.create_sink(session, context, statement, cancellation)
            case st.CreateSecret():
                self.secrets.create_secret(session, context, statement, cancellation)
            case st.AlterSecret():
                self.secrets.alter_secret(session, context, statement, cancellation)
            case st.DropObjects():
                self.objects.drop_objects(session, context, statement, cancellation)
            case st.AlterRename():
                self.objects.rename_statement(context, statement, cancellation)
            case st.AlterSetRetainHistory():
                self.objects.set_retain_history(session, context, statement, cancellation)
            case st.AlterSinkFrom():
                self.sinks.redirect_sink(session, context, statement, cancellation)
            case st.AlterSourceAddTable():
                self.changefeeds.add_table(session, context, statement, cancellation)
            case st.ReplayDeadLetters():
                self.changefeeds.replay(session, context, statement, cancellation)
            case st.CommentOn():
                self.objects.comment(context, statement, cancellation)
            case _:
                raise AssertionError(f"{type(statement).__name__} is not a definition")
