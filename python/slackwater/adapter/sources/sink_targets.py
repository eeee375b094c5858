"""The targets of sinks: folders, tables, and topics over connections as they are now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from slackwater.adapter.catalog.details import ConnectionDetails, SinkDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.external.aws import RoleRefused
from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.adapter.external.kafka_producer import (
    KafkaCluster,
    KafkaProducer,
    ProgressTopic,
    SinkNames,
)
from slackwater.adapter.external.registry import RegisteredSchema, SchemaRegistry
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.sinks import Opening, OpenSink
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.ids import GlobalId, user_id
from slackwater.repr.relation import RelationDesc
from slackwater.storage.iceberg.schema import sink_columns
from slackwater.storage.kafka.sink import KafkaSink, SinkTopic
from slackwater.storage.kafka.sink_avro import SchemaIds, SinkSchema
from slackwater.storage.kafka.sink_messages import (
    Encoder,
    KafkaSinkConfig,
    MessageForm,
    message_forms,
)
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.lake.table import LakeTarget
from slackwater.storage.sink_errors import unreachable
from slackwater.storage.sink_files import FilesSink, SinkConfig


@dataclass(slots=True)
class Targets:
    """Folders, topics and tables, as `SinkTargets` promises. `environment` is its name."""

    relations: Relations
    connections: Connections
    environment: str
    clock_ms: Callable[[], int]
    _clusters: dict[GlobalId, KafkaCluster] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def open(self, item: CatalogItem, opening: Opening) -> OpenSink:
        details = item.of(SinkDetails)
        match details.config:
            case SinkConfig() as config:
                return FilesSink(config, opening.desc, opening.claim, clock=self.clock_ms)
            case LakeSinkConfig() as config:
                return self._table(item, config, opening)
            case config:
                return self._topic(item, config, opening)

    def place(self, item: CatalogItem) -> str:
        match item.of(SinkDetails).config:
            case SinkConfig(path=path):
                return path
            case LakeSinkConfig(place=place):
                return f"{place.shown} {item.id}"
            case KafkaSinkConfig():
                return f"kafka {item.id}"

    def version(self, item: CatalogItem) -> str:
        return " ".join(map(self.connections.version, item.of(SinkDetails).connections))

    def registered(self, config: KafkaSinkConfig, desc: RelationDesc) -> SchemaIds:
        """Lets registries have the schemas of a sink over a relation with these columns. One that
        they have keeps its id.

        Raises SLACKWATER_REGISTRY_UNREACHABLE, SLACKWATER_SCHEMA_REFUSED, and what the connections
        raise.
        """
        forms = message_forms(config, desc)
        return SchemaIds(
            self._registered(
                f"{config.topic}-key", config.key_schema, forms.key, config.key_format
            ),
            self._registered(
                f"{config.topic}-value", config.value_schema, forms.value, config.value_format
            ),
        )

    def _registered(
        self, subject: str, schema: SinkSchema | None, form: MessageForm | None, kind: str
    ) -> int | None:
        if schema is None or form is None:
            return None
        connection = schema.registry
        name = self.relations.item(connection).full_name
        registry = SchemaRegistry(name, lambda: self.connections.registry(connection))
        given = RegisteredSchema(kind, form.schema)
        return registry.registered(subject, given, schema.compatibility)

    def ensure_topics(
        self, item: CatalogItem, config: KafkaSinkConfig, connection: GlobalId
    ) -> list[str]:
        """Makes the topics of a new sink that are not there; what is to be told of those that are.

        Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SINK_UNREACHABLE,
        SLACKWATER_SINK_PROGRESS_LOST, and what the connection raises.
        """
        names = self._names(item, config, connection)
        return self._cluster(connection).ensure_topics(config, names)

    def ensure_table(
        self,
        item: CatalogItem,
        config: LakeSinkConfig,
        desc: RelationDesc,
        connection: GlobalId | None,
    ) -> None:
        """Makes the table of a sink over a relation with these columns, or finds that it fits.

        Raises SLACKWATER_CONNECTOR_MISSING, SLACKWATER_SINK_UNREACHABLE,
        SLACKWATER_COLUMN_MISMATCH, SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_SINK_LOCATION_IN_USE,
        and what the connections raise.
        """
        self._lake_target(item, config, desc, connection).ensure()

    def close(self) -> None:
        """Ends the clients that sinks share. To be called when none runs."""
        with self._lock:
            for each in self._clusters.values():
                each.close()
            self._clusters.clear()

    def _topic(self, item: CatalogItem, config: KafkaSinkConfig, opening: Opening) -> KafkaSink:
        details = item.of(SinkDetails)
        if details.connection is None:
            raise FatalError(f"the sink {item.full_name} has no connection")
        ids = self.registered(config, opening.desc)
        encoder = Encoder(config, opening.desc, item.full_name, ids)
        cluster = self._cluster(details.connection)
        names = self._names(item, config, details.connection)
        producer = KafkaProducer(cluster, config, names, opening.is_stopped)
        try:
            return KafkaSink(
                encoder,
                SinkTopic(config.topic, cluster.progress.name, details.version),
                opening.claim,
                producer,
                snapshot=config.snapshot,
                clock=self.clock_ms,
                is_stopped=opening.is_stopped,
            )
        except BaseException:
            producer.close()
            raise

    def _table(self, item: CatalogItem, config: LakeSinkConfig, opening: Opening) -> LakeSink:
        named = SinkTable(config.place.shown, item.of(SinkDetails).version)
        connection = item.of(SinkDetails).connection
        table = self._lake_target(item, config, opening.desc, connection).opened()
        try:
            return LakeSink(
                LakeRows(config, opening.desc, item.full_name),
                named,
                opening.claim,
                table,
                clock=self.clock_ms,
                is_stopped=opening.is_stopped,
            )
        except BaseException:
            table.close()
            raise

    def _lake_target(
        self,
        item: CatalogItem,
        config: LakeSinkConfig,
        desc: RelationDesc,
        connection: GlobalId | None,
    ) -> LakeTarget:
        writer = f"slackwater-{self.environment}-{item.id}"
        match config.place:
            case DeltaPlace(uri=uri, aws=aws):
                access = None if aws is None else self.connections.aws(aws)
                try:
                    folder = DeltaFolder.at(uri, access)
                except RoleRefused as refused:
                    raise unreachable(item.full_name, config.place.shown, str(refused)) from None
                return DeltaTarget(folder, item.full_name, writer, config, desc)
            case IcebergPlace(aws=aws):
                if connection is None:
                    raise FatalError(f"the sink {item.full_name} has no connection")
                return IcebergTarget(
                    self.connections.iceberg(connection),
                    None if aws is None else self.connections.aws(aws),
                    writer,
                    item.full_name,
                    sink_columns(config, desc),
                    was_dropped=lambda owner: self._was_dropped(owner, item.id),
                )

    def _was_dropped(self, owner: str, sink: GlobalId) -> bool:
        """Whether a name of a writer is that of a sink that was here before `sink`, and is gone.

        A later sink may be one that this leader, which was replaced, does not know.
        """
        before = owner.removeprefix(f"slackwater-{self.environment}-u")
        if before == owner or not before.isdecimal() or int(before) >= int(sink[1:]):
            return False
        return user_id(int(before)) not in self.relations.state.items

    def _names(self, item: CatalogItem, config: KafkaSinkConfig, connection: GlobalId) -> SinkNames:
        made = self.relations.item(connection)
        # Sinks of several environments may share a topic that the connection names.
        is_own = _progress_topic(made) is None
        return SinkNames(
            item.full_name,
            made.full_name,
            (item.id if is_own else f"{self.environment}-{item.id}").encode(),
            f"{config.transactional_id_prefix}slackwater-{self.environment}-{item.id}",
        )

    def _cluster(self, connection: GlobalId) -> KafkaCluster:
        """The brokers over the connection as it is now; connections that are gone are forgotten."""
        version = self.connections.version(connection)
        with self._lock:
            known = self._clusters.get(connection)
            if known is not None and known.access.version == version:
                return known
            for each in list(self._clusters):
                if each == connection or not self._is_there(each):
                    # Sinks that have not noticed yet fail, and are opened again.
                    self._clusters.pop(each).close()
            item = self.relations.item(connection)
            details = item.of(ConnectionDetails)
            own = f"_slackwater-progress-{self.environment}-{connection}"
            name = _progress_topic(item) or own
            copies = details.texts("PROGRESS TOPIC REPLICATION FACTOR")
            made = KafkaCluster(
                self.connections.kafka(connection),
                ProgressTopic(name, int(copies[0]) if copies else None),
                f"slackwater-{self.environment}-progress",
            )
            self._clusters[connection] = made
            return made

    def _is_there(self, connection: GlobalId) -> bool:
        with suppress(SlackwaterError):
            self.connections.version(connection)
            return True
        return False


def _progress_topic(connection: CatalogItem) -> str | None:
    """The progress topic that the connection names; None: it names none."""
    return next(iter(connection.of(ConnectionDetails).texts("PROGRESS TOPIC")), None)
