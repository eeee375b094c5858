"""Definitions: passes each statement that changes the catalog to the part that performs it."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.adapter.ddl.changefeeds import ChangefeedDefinitions
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.clusters import ClusterDefinitions
from slackwater.adapter.ddl.connections import ConnectionDefinitions
from slackwater.adapter.ddl.indexes import IndexDefinitions
from slackwater.adapter.ddl.objects import Objects
from slackwater.adapter.ddl.parameters import ParameterDefinitions
from slackwater.adapter.ddl.replacements import Replacements
from slackwater.adapter.ddl.schema_names import SchemaNames
from slackwater.adapter.ddl.secrets import SecretDefinitions
from slackwater.adapter.ddl.sinks import SinkDefinitions
from slackwater.adapter.ddl.source_tables import SourceTableDefinitions
from slackwater.adapter.ddl.sources import SourceDefinitions
from slackwater.adapter.ddl.tables import Tables
from slackwater.adapter.ddl.topics import TopicDefinitions
from slackwater.adapter.ddl.views import ViewDefinitions
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import cluster_statements as cs
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.connection_statements import (
    AlterConnection,
    CreateConnection,
    RotateKeys,
    ValidateConnection,
)
from slackwater.planner.parser.kafka_source import RefreshSchema, ResnapshotSource, SkipLost
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.source_tables import CreateTableFromSource, RefreshReferences

Create = (
    st.CreateView
    | st.CreateViewUnder
    | st.CreateMaterializedView
    | st.CreateSource
    | CreateTableFromSource
    | st.CreateSink
    | st.CreateSecret
    | CreateConnection
)


@dataclass(frozen=True, slots=True)
class Definitions:
    """Changes the catalog. Thread-safe: changes are serialised by the catalog's lock.

    `tables`, `views` and `objects` also take the definitions of Spark's own grammar.
    """

    changes: Changes
    tables: Tables
    views: ViewDefinitions
    objects: Objects
    schema_names: SchemaNames
    indexes: IndexDefinitions
    sources: SourceDefinitions
    sinks: SinkDefinitions
    secrets: SecretDefinitions
    connections: ConnectionDefinitions
    changefeeds: ChangefeedDefinitions
    source_tables: SourceTableDefinitions
    topics: TopicDefinitions
    parameters: ParameterDefinitions
    clusters: ClusterDefinitions
    replacements: Replacements

    def execute(self, execution: Execution, statement: st.Statement) -> None:
        """Runs a definition statement. Raises the catalogue's errors; all or nothing."""
        match statement:
            case st.CreateTable():
                self.tables.create_table_with_options(execution.context, statement)
            case st.CreateIndex():
                self.indexes.create_index(execution, statement)
            case st.CreateSink():
                self._create(execution, statement, self.sinks.name_of(statement, execution.context))
            case (
                st.CreateView()
                | st.CreateViewUnder()
                | st.CreateMaterializedView()
                | st.CreateSource()
                | CreateTableFromSource()
                | st.CreateSecret()
                | CreateConnection()
            ):
                self._create(execution, statement, statement.name)
            case st.AlterSystem():
                self.parameters.alter_system(execution, statement)
            case st.AlterSecret():
                self.secrets.alter_secret(execution, statement)
            case AlterConnection():
                self.connections.alter_connection(execution, statement)
            case RotateKeys():
                self.connections.rotate_keys(execution, statement)
            case ValidateConnection():
                self.connections.validate_connection(execution, statement)
            case st.DropObjects():
                self.objects.drop_objects(execution, statement)
            case st.SwapSchemas():
                self.schema_names.swap(execution, statement)
            case st.AlterRename(kind=st.ObjectKind.SCHEMA):
                self.schema_names.rename(execution, statement)
            case st.AlterRename():
                self.objects.rename(execution, statement)
            case st.AlterSetCluster():
                self.objects.set_cluster(execution, statement)
            case (
                cs.CreateCluster()
                | cs.CreateClusterReplica()
                | cs.AlterCluster()
                | cs.RenameCluster()
                | cs.RenameClusterReplica()
                | cs.SwapClusters()
                | cs.DropClusters()
                | cs.DropClusterReplicas()
                | cs.CommentOnCluster()
            ):
                self.clusters.execute(execution, statement)
            case st.AlterSetRetainHistory():
                self.objects.set_retain_history(execution, statement)
            case st.AlterSinkFrom():
                self.sinks.redirect_sink(execution, statement)
            case st.AlterApplyReplacement():
                self.replacements.apply(execution, statement)
            case st.AlterSourceAddTable():
                self.changefeeds.add_table(execution, statement)
            case st.ReplayDeadLetters():
                self.changefeeds.replay(execution, statement)
            case SkipLost():
                self.topics.skip_lost(execution, statement)
            case RefreshReferences():
                self.source_tables.refresh_references(execution, statement)
            case ResnapshotSource():
                self.topics.resnapshot(execution, statement)
            case RefreshSchema():
                self.topics.refresh_schema(execution, statement)
            case st.CommentOn():
                self.objects.comment(execution, statement)
            case _:
                raise AssertionError(f"{type(statement).__name__} is not a definition")

    def _create(self, execution: Execution, statement: Create, name: QualifiedName) -> None:
        """Makes a new object, unless there is one of the name and the statement takes that."""
        named = self.changes.new_name(execution, name, if_not_exists=statement.if_not_exists)
        if named is None:
            return
        match statement:
            case st.CreateView():
                self.views.create_view_statement(execution, named, statement)
            case st.CreateViewUnder():
                self.views.create_view_under(execution, named, statement)
            case st.CreateMaterializedView():
                self.views.create_materialized_view(execution, named, statement)
            case st.CreateSource():
                self.sources.create_source(execution, named, statement)
            case CreateTableFromSource():
                self.source_tables.create_table(execution, named, statement)
            case st.CreateSink():
                self.sinks.create_sink(execution, named, statement)
            case st.CreateSecret():
                self.secrets.create_secret(execution, named, statement)
            case CreateConnection():
                self.connections.create_connection(execution, named, statement)
