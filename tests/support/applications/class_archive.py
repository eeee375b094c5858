"""Spark's classes in the form in which a JVM has them, so that applications start in half the time.

The archive is one of class data sharing, for the JVM and the class path that made it; any other JVM
starts without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(__file__).resolve().parents[3] / ".build" / "classes.jsa"

# Most of what an application takes that lives for seconds is compilation by the JVM: without the
# second compiler half of it. But without that one a JVM has 48 MB for compiled code. What Spark
# makes for the queries of a long run fills them; then nothing more is compiled, and classes cannot
# be initialized. So the size is what it is with both.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
_SILENT = "-Xlog:disable"
_STATEMENTS = (
    "USE slackwater.default",
    "CREATE TABLE t (k INT, v STRING)",
    "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v",
    "INSERT INTO t VALUES (1, 'a')",
    "SELECT * FROM m",
    "DELETE FROM t WHERE k = 1",
    "SELECT id % 3, count(*) FROM range(10) GROUP BY ALL",
)


def options() -> str:
    """What JVMs of tests are started with: drivers, executors and Spark's daemons.

    Drivers take it from ``SPARK_SUBMIT_OPTS``, daemons from ``SPARK_DAEMON_JAVA_OPTS``.
    """
    if not ARCHIVE.exists() or " " in str(ARCHIVE):
        return SHORT_LIVED
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={ARCHIVE} -Xshare:auto {_SILENT}"


def write(archive: Path) -> None:
    """Runs an application whose JVM writes the archive when it ends."""
    from pyspark.sql import SparkSession

    import slackwater

    os.environ["SPARK_SUBMIT_OPTS"] = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={archive} {_SILENT}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        spark = slackwater.configure(builder, location=f"{folder}/environment").getOrCreate()
        for statement in _STATEMENTS:
            spark.sql(statement).collect()
        process = spark.sparkContext._gateway.proc
        spark.stop()
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
