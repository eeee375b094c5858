"""Iceberg's own reader and catalog server, in one JVM of the jars of `make iceberg`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from tests.support.applications.class_archive import options
from tests.support.server.ingress import held_port

from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.schema import SinkColumns
from slackwater.storage.lake.config import DeletesBy

_ATTEMPTS = 10
JARS = Path(__file__).parents[3] / ".iceberg"


@dataclass
class Java:
    """A JVM with Iceberg. A catalog server listens at `url`, once it is asked for."""

    gateway: JavaGateway
    folder: Path
    _url: str | None = field(default=None, init=False)
    _server: Any = field(default=None, init=False)
    _metastore: str | None = field(default=None, init=False)

    def rows(self, metadata_location: str) -> list[list[object]]:
        """The rows of the table with that metadata, sorted by their text. Values that Python does
        not have come as Java writes them."""
        return self._read(metadata_location, None)

    def where(self, metadata_location: str, column: str, value: object) -> list[list[object]]:
        """Those that have the value in a column; files are left out by partitions and bounds."""
        jvm = self.gateway.jvm
        expressions = jvm.org.apache.iceberg.expressions.Expressions
        if value is None:
            return self._read(metadata_location, expressions.isNull(column))
        if isinstance(value, bytes):
            value = jvm.java.nio.ByteBuffer.wrap(value)
        elif isinstance(value, date):
            value = value.isoformat()
        elif isinstance(value, int):
            value = jvm.java.lang.Long.valueOf(str(value))
        return self._read(metadata_location, expressions.equal(column, value))

    def _read(self, metadata_location: str, chosen: Any) -> list[list[object]]:
        jvm = self.gateway.jvm
        table = self._table(metadata_location)
        found = []
        # Behind the columns, the reader may give positions.
        columns = range(table.schema().columns().size())
        reading = jvm.org.apache.iceberg.data.IcebergGenerics.read(table)
        with_deletes = (reading if chosen is None else reading.where(chosen)).build()
        rows = with_deletes.iterator()
        while rows.hasNext():
            row = rows.next()
            found.append([_value(row.get(position)) for position in columns])
        with_deletes.close()
        return sorted(found, key=repr)

    @property
    def url(self) -> str:
        """The address of a catalog server, whose tables are below `folder`."""
        if self._url is None:
            for attempt in range(_ATTEMPTS):
                with held_port() as port:
                    self._server = self._catalog_server(port)
                    try:
                        self._server.start(False)
                    except Py4JJavaError:
                        # It listens at all addresses, and the port is free at one of them.
                        if attempt + 1 == _ATTEMPTS:
                            raise
                        continue
                self._url = f"http://127.0.0.1:{port}"
                break
        return self._url

    @property
    def metastore(self) -> str:
        """The address of a metastore of Hive with a database in memory, made once it is asked for.
        It is one of Spark's jars."""
        if self._metastore is None:
            hive = self.gateway.jvm.org.apache.hadoop.hive
            settings = hive.conf.HiveConf()
            for name, value in {
                "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true",
                "datanucleus.schema.autoCreateAll": "true",
                "datanucleus.connectionPoolingType": "HikariCP",
                "hive.metastore.schema.verification": "false",
                "hive.metastore.warehouse.dir": str(self.folder / "hive"),
            }.items():
                settings.set(name, value)
            hive.metastore.txn.TxnDbUtil.prepDb(settings)
            bridge = hive.shims.ShimLoader.getHadoopThriftAuthBridge()
            with held_port() as port:
                hive.metastore.MetaStoreUtils.startMetaStore(port, bridge, settings)
            self._metastore = f"thrift://127.0.0.1:{port}"
        return self._metastore

    @property
    def warehouse(self) -> str:
        return self.folder.as_uri()

    def access(self) -> IcebergAccess:
        """The way into the catalog server."""
        return IcebergAccess("rest", self.url, self.warehouse)

    @contextmanager
    def table_of_database(self, database: str, warehouse: str, table: Any) -> Iterator[Any]:
        """A table as Java's own catalog over a database of SQLite has it."""
        jvm = self.gateway.jvm
        settings = jvm.java.util.HashMap()
        settings.put("uri", f"jdbc:sqlite:{database}?busy_timeout=60000")
        settings.put("clients", "1")
        settings.put("warehouse", warehouse)
        settings.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
        catalog.initialize("default", settings)
        identifier = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(
            ".".join(table.identifier)
        )
        # While it is open, it may have the database locked.
        try:
            yield catalog.loadTable(identifier)
        finally:
            catalog.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        self.gateway.shutdown()

    def _catalog_server(self, port: int) -> Any:
        settings = self.gateway.jvm.java.util.HashMap()
        settings.put("rest.port", str(port))
        settings.put("uri", f"jdbc:sqlite:{self.folder}/catalog.db?busy_timeout=60000")
        settings.put("clients", "1")
        settings.put("warehouse", self.warehouse)
        return self._made("org.apache.iceberg.rest.RESTCatalogServer", settings)

    def _made(self, name: str, settings: Any) -> Any:
        """An object of a class whose constructor is not public."""
        new, lang = self.gateway.new_array, self.gateway.jvm.java.lang
        kinds, values = new(lang.Class, 1), new(lang.Object, 1)
        kinds[0], values[0] = lang.Class.forName("java.util.Map"), settings
        constructor = lang.Class.forName(name).getDeclaredConstructor(kinds)
        constructor.setAccessible(True)
        return constructor.newInstance(values)

    def _table(self, metadata_location: str) -> Any:
        jvm = self.gateway.jvm
        files = jvm.org.apache.iceberg.hadoop.HadoopFileIO(
            jvm.org.apache.hadoop.conf.Configuration()
        )
        operations = jvm.org.apache.iceberg.StaticTableOperations(metadata_location, files)
        return jvm.org.apache.iceberg.BaseTable(operations, "t")


def _value(found: Any) -> object:
    if found is None or isinstance(found, bool | int | float | str | Decimal | bytes):
        return found
    return found.toString()


@dataclass
class Tables:
    """A catalog in SQLite with a warehouse, for one test."""

    folder: Path

    def access(self) -> IcebergAccess:
        return IcebergAccess("sql", f"sqlite:///{self.folder}/catalog.db", self.folder.as_uri())


def a_target(
    access: IcebergAccess,
    columns: Any,
    named: tuple[str, ...] | None = None,
    *,
    key: Sequence[str] = (),
    sink: str = "sink-1",
    aws: AwsAccess | None = None,
    deletes: DeletesBy = "equality",
) -> IcebergTarget:
    """The table of a sink, of that name or a new one."""
    identifier = named or ("n", f"t{uuid.uuid4().hex}")
    rows = SinkColumns(identifier, "the table t", columns, tuple(key), deletes)
    return IcebergTarget(access, aws, sink, "the sink", rows)


@pytest.fixture(scope="session")
def iceberg_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    spark = Path(find_spec("pyspark").origin).parent / "jars"
    (bridge,) = spark.glob("py4j-*.jar")
    gateway = JavaGateway.launch_gateway(
        jarpath=str(bridge),
        classpath=f"{JARS}/*:{spark}/*",
        javaopts=[*options().split(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
    )
    java = Java(gateway, tmp_path_factory.mktemp("iceberg"))
    yield java
    java.close()
