"""A plain PySpark session."""

from __future__ import annotations

import contextlib

from pyspark.sql import SparkSession

from slackwater.spark.session import jar_path


def new_session() -> SparkSession:
    """A session for many small queries: compiling them would take longer than running them.

    It has the shim's jar, if there is one, for the sessions that later share its JVM.
    """
    builder = SparkSession.builder.master("local[1]")
    with contextlib.suppress(FileNotFoundError):
        builder = builder.config("spark.jars", str(jar_path()))
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.autoBroadcastJoinThreshold", "-1")
        .config("spark.sql.join.preferSortMergeJoin", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
