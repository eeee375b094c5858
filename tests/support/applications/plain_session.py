"""A plain PySpark session."""

from __future__ import annotations

import contextlib

from pyspark.sql import SparkSession

from slackwater.spark.session import jar_path

_OF_SMALL_QUERIES = {
    "spark.sql.adaptive.enabled": ("false", "true"),
    "spark.sql.autoBroadcastJoinThreshold": ("-1", "10MB"),
    "spark.sql.join.preferSortMergeJoin": ("false", "true"),
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
}
"""Settings with their values for small queries, and with those that Spark has by itself."""


def as_usual(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Lets a session have what Spark has by itself, whichever session was the first of its process.

    The settings of that one are the JVM's, and so the defaults of all that come later.
    """
    for name, (_, usual) in _OF_SMALL_QUERIES.items():
        builder = builder.config(name, usual)
    return builder


def new_session() -> SparkSession:
    """A session for many small queries: compiling them would take longer than running them.

    It has the shim's jar, if there is one, for the sessions that later share its JVM.
    """
    builder = SparkSession.builder.master("local[1]")
    with contextlib.suppress(FileNotFoundError):
        builder = builder.config("spark.jars", str(jar_path()))
    for name, (small, _) in _OF_SMALL_QUERIES.items():
        builder = builder.config(name, small)
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
