"""Iceberg's own reader and catalog server, in one JVM of the jars of `make iceberg`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from tests.support.applications.class_archive import options
from tests.support.server.ingress import held_port

from slackwater.adapter.external.iceberg import IcebergTable, TableNames
from slackwater.storage.access import AwsAccess, IcebergAccess

JARS = Path(__file__).parents[3] / ".iceberg"


@dataclass
class Java:
    """A JVM with Iceberg. A catalog server listens at `url`, once it is asked for."""

    gateway: JavaGateway
    folder: Path
    _url: str | None = field(default=None, init=False)
    _server: Any = field(default=None, init=False)

    def rows(self, metadata_location: str) -> list[list[object]]:
        """The rows of the table with that metadata, sorted by their text. Values that Python does
        not have come as Java writes them."""
        jvm = self.gateway.jvm
        table = self._table(metadata_location)
        found = []
        with_deletes = jvm.org.apache.iceberg.data.IcebergGenerics.read(table).build()
        rows = with_deletes.iterator()
        while rows.hasNext():
            row = rows.next()
            found.append([_value(row.get(position)) for position in range(row.size())])
        with_deletes.close()
        return sorted(found, key=repr)

    @property
    def url(self) -> str:
        """The address of a catalog server, whose tables are below `folder`."""
        if self._url is None:
            with held_port() as port:
                settings = self.gateway.jvm.java.util.HashMap()
                settings.put("rest.port", str(port))
                settings.put("uri", f"jdbc:sqlite:{self.folder}/catalog.db")
                settings.put("warehouse", self.warehouse)
                self._server = self._made("org.apache.iceberg.rest.RESTCatalogServer", settings)
                self._server.start(False)
            self._url = f"http://127.0.0.1:{port}"
        return self._url

    @property
    def warehouse(self) -> str:
        return self.folder.as_uri()

    def access(self) -> IcebergAccess:
        """The way into the catalog server."""
        return IcebergAccess("rest", self.url, self.warehouse)

    def close(self) -> None:
        if self._server is not None:
            self._server.stop()
        self.gateway.shutdown()

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


def a_table(
    access: IcebergAccess, columns: Any, *, sink: str = "sink-1", aws: AwsAccess | None = None
) -> IcebergTable:
    """A table in a namespace of its own, which is not made yet."""
    named = ("n", f"t{uuid.uuid4().hex}")
    return the_table(access, columns, named, sink=sink, aws=aws)


def the_table(
    access: IcebergAccess,
    columns: Any,
    named: tuple[str, ...],
    *,
    sink: str = "sink-1",
    aws: AwsAccess | None = None,
) -> IcebergTable:
    """The table of that name for a sink."""
    return IcebergTable(access, aws, named, TableNames("the sink", "the table t", sink), columns)


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
