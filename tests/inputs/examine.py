"""Each query of a file of Spark's becomes a view, where the file has it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.inputs.files import InputFile, common_tables, is_query
from tests.inputs.twin import Found, Twin
from tests.support.compute.declared import Declared

_TUNING = re.compile(r"\s*(re)?set\s+spark\.sql\.optimizer\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FileShare:
    """The queries of a file."""

    file: InputFile

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def has_indexes(self) -> bool:
        """Tables have indexes in every other file, as its name has it."""
        return crc32(self.name.encode()) % 2 == 0

    def examine(self, declared: Declared, folder: Path) -> Found:
        """Labels are by file."""
        file = self.file
        ansi = "false" if file.name.startswith("nonansi/") else "true"
        settings = {"spark.sql.ansi.enabled": ansi, **file.settings}
        twin = Twin(declared, folder, settings, has_indexes=self.has_indexes)
        try:
            for name, rows in common_tables().items():
                if file.names(name):
                    twin.session.createDataFrame(rows).createOrReplaceTempView(name)
            for before, queries in _segments(file.statements):
                for statement in before:
                    _run(twin.session, statement)
                if queries:
                    twin.read_tables()
                    twin.examine(queries)
        finally:
            twin.close()
            _forget_tables(twin.session)
        return twin.found.by(lambda _: file.name)


def _segments(statements: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Statements that change something, and the queries that follow them."""
    before: list[str] = []
    queries: list[str] = []
    for statement in statements:
        if is_query(statement):
            queries.append(statement)
            continue
        if queries:
            yield before, queries
            before, queries = [], []
        before.append(statement)
    yield before, queries


def _run(session: SparkSession, statement: str) -> None:
    """What tunes plans stays as it is: a definition does not keep it."""
    if _TUNING.match(statement):
        return
    try:
        session.sql(statement)
    except (PySparkException, Py4JError):
        # Many statements of the files are there for their errors.
        return


def _forget_tables(session: SparkSession) -> None:
    # Where words are reserved, SHOW USER FUNCTIONS is none.
    session.conf.set("spark.sql.ansi.enforceReservedKeywords", "false")
    _run(session, "USE spark_catalog.default")
    for row in session.sql("SHOW USER FUNCTIONS").collect():
        if "." in row[0]:
            _run(session, f"DROP FUNCTION IF EXISTS {row[0]}")
    for row in session.sql("SHOW TABLES").collect():
        if not row.isTemporary:
            for kind in ("TABLE", "VIEW"):
                _run(session, f"DROP {kind} IF EXISTS `{row.tableName}`")
