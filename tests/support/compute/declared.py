"""A catalog of tables that gives names in queries their meaning, and nothing more.

The collections of a test are shards of its own, whose histories and tick boundaries it chooses.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import py4j.java_gateway
import py4j.protocol
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.support.applications.class_archive import SHORT_LIVED
from tests.support.compute import arrangement_memory
from tests.support.compute.arrangement_memory import ArrangementMemory

from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.driver import Driver
from slackwater.spark.session import configure

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    # What is compiled well does not run long enough to be worth it.
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.sql.shuffle.partitions": "1",
    "spark.pyspark.python": sys.executable,
    **arrangement_memory.SETTINGS,
}


class _Remembered:
    """A package of the JVM, of which each member is looked for once: in all jars, if it is one."""

    def __init__(self, package: Any) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._package, name)
        if isinstance(found, py4j.java_gateway.JavaPackage):
            found = _Remembered(found)
        setattr(self, name, found)
        return found


class Declared:
    """Tables of the schema ``default``, declared as tests need them."""

    def __init__(self, location: Path) -> None:
        builder = SparkSession.builder.master("local[1]")
        warehouse = {"spark.sql.warehouse.dir": str(location.parent / "warehouse")}
        for name, value in {**SETTINGS, **warehouse}.items():
            builder = builder.config(name, value)
        self.session = configure(builder, location=str(location)).getOrCreate()
        self._converting = py4j.java_gateway.get_return_value
        self._leave_exceptions()
        gateway = self.session.sparkContext._gateway.gateway_parameters
        os.environ["PYSPARK_GATEWAY_PORT"] = str(gateway.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = gateway.auth_token
        self._declaring = self.new_session()
        # Tables may have structs as views have them, with names that differ in case.
        self._declaring.conf.set("spark.sql.caseSensitive", "true")
        # A frame has columns of CHAR only where Spark keeps their type.
        self._declaring.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
        self._known: dict[str, tuple[RelationDesc, GlobalId]] = {}
        self._jvm = _Remembered(self.session._jvm)
        self.memory = ArrangementMemory(self._jvm)

    def _leave_exceptions(self) -> None:
        """Where there is a session, PySpark converts Java's exceptions. A coordinator has none."""
        py4j.java_gateway.get_return_value = py4j.protocol.get_return_value

    def new_session(self) -> SparkSession:
        made = self.session.newSession()
        self._leave_exceptions()
        return made

    def engine(self, origin: str) -> SparkBridge:
        """The driver keeps rows by the ids of parts, which begin anew in each environment."""
        return SparkBridge(Driver(origin, self._jvm)).under({})

    def id_of(self, name: str, desc: RelationDesc) -> GlobalId:
        """By which id plans name the collection."""
        known = self._known.get(name)
        if known is None or known[0] != desc:
            table = f"slackwater.default.{name}"
            self.session.sql(f"DROP TABLE IF EXISTS {table}")
            schema = StructType.fromJson(_nullable(json.loads(desc.to_json())))
            # By a frame it would be a CREATE TABLE AS SELECT, which runs a job.
            self._declaring.sql(f"CREATE TABLE {table} ({schema.toDDL()})")
            found = self.engine("").analyze(f"SELECT * FROM {name}", "slackwater", ("default",))
            known = self._known[name] = (desc, GlobalId(found.relations[0]))
        return known[1]

    def close(self) -> None:
        py4j.java_gateway.get_return_value = self._converting
        # Also where the JVM has ended: what starts next in this process would look for it.
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            os.environ.pop(name, None)
        self.session.stop()


def _nullable(described: Any) -> Any:
    """The type in JSON with NULL at each place: what a column holds is up to a test's shard."""
    if isinstance(described, list):
        return [_nullable(each) for each in described]
    if not isinstance(described, dict):
        return described
    may_be_null = ("nullable", "containsNull", "valueContainsNull")
    return {
        key: True if key in may_be_null else each if key == "metadata" else _nullable(each)
        for key, each in described.items()
    }
