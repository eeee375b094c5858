"""JDBC's metadata calls, by Hive's driver in the JVM of a session of Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

Row = tuple[Any, ...]


class Metadata:
    """A connection to a Thrift server, and what its DatabaseMetaData says."""

    def __init__(self, spark: SparkSession, connection: Any) -> None:
        self._gateway = spark.sparkContext._gateway
        self._connection = connection

    def catalogs(self) -> list[str]:
        return [name for (name,) in self._rows("getCatalogs")]

    def types(self) -> list[str]:
        return [name for (name,) in self._rows("getTableTypes")]

    def schemas(self, catalog: str | None = None, pattern: str | None = None) -> list[Row]:
        """Pairs of catalog and schema."""
        return [(row[1], row[0]) for row in self._rows("getSchemas", catalog, pattern)]

    def tables(
        self, schema: str | None = None, name: str | None = "%", types: Sequence[str] | None = None
    ) -> list[Row]:
        """Catalog, schema, name, type and remarks. Hive's driver does not tell the catalog."""
        wanted = None
        if types is not None:
            text = self._gateway.jvm.java.lang.String
            wanted = self._gateway.new_array(text, len(types))
            for at, each in enumerate(types):
                wanted[at] = each
        return [row[:5] for row in self._rows("getTables", None, schema, name, wanted)]

    def columns(
        self,
        catalog: str | None = None,
        schema: str | None = None,
        table: str | None = "%",
        column: str | None = None,
    ) -> list[Row]:
        return self._rows("getColumns", catalog, schema, table, column)

    def sql(self, text: str) -> None:
        with contextlib.closing(self._connection.createStatement()) as statement:
            statement.execute(text)

    def begin(self, text: str) -> Any:
        """A query whose rows nobody has fetched yet."""
        return self._connection.createStatement().executeQuery(text)

    def fetch(self, result: Any) -> list[Row]:
        """The rows of a result, which ends with that."""
        columns = range(1, result.getMetaData().getColumnCount() + 1)
        found = []
        while result.next():
            found.append(tuple(result.getObject(column) for column in columns))
        result.close()
        return found

    def _rows(self, call: str, *arguments: Any) -> list[Row]:
        return self.fetch(getattr(self._connection.getMetaData(), call)(*arguments))


@contextlib.contextmanager
def connected(spark: SparkSession, port: int) -> Iterator[Metadata]:
    """A connection that ends with the block."""
    jvm = spark.sparkContext._jvm
    url = f"jdbc:hive2://127.0.0.1:{port}"
    connection = jvm.org.apache.hive.jdbc.HiveDriver().connect(url, jvm.java.util.Properties())
    try:
        yield Metadata(spark, connection)
    finally:
        connection.close()
