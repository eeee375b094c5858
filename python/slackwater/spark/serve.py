"""A Spark application that leads an environment, for as long as it runs.

While another application leads, this one stands by: it looks each second, and takes over when that
one has gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from slackwater.spark.session import configure

LOOK_S = 1.0
FAILED_LOOK_S = 5.0
_LOOK = "SHOW slackwater.mz_version"


def serve(location: str | None, metastore: str | None, conf: Mapping[str, str]) -> int:
    """Runs until SIGTERM or SIGINT; gives the exit status, 1 when Spark has ended by itself."""
    ending = threading.Event()
    _end_on_signals(ending)
    spark = _session(location, metastore, conf)
    # Spark's session has put its own in their place.
    _end_on_signals(ending)
    said = ""
    while not ending.is_set():
        state, pause_s = _look(spark)
        if ending.is_set():
            break
        if spark.sparkContext._jsc is None or _is_stopped(spark):
            _say("Spark has ended")
            return 1
        if state != said:
            _say(state)
            said = state
        ending.wait(pause_s)
    spark.stop()
    return 0


def _end_on_signals(ending: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())


def _session(location: str | None, metastore: str | None, conf: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": os.environ.get("MASTER", "local[*]"),
        "spark.app.name": "slackwater serve",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        **conf,
    }
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return configure(builder, location=location, metastore=metastore).getOrCreate()


def _look(spark: Any) -> tuple[str, float]:
    """The state of the environment in words, and the seconds until the next look."""
    try:
        spark.sql(_LOOK).collect()
        return ("leading" if _leads(spark) else "standing by: another application leads"), LOOK_S
    except Exception as error:
        # Whatever it is, it may pass; if Spark itself has gone, the caller sees that.
        return f"cannot lead: {str(error).splitlines()[0]}", FAILED_LOOK_S


def _leads(spark: Any) -> bool:
    process = spark._jvm.org.apache.spark.sql.slackwater.process
    return bool(process.CoordinatorHandle.of(spark.sparkContext._jsc.sc()).leads())


def _is_stopped(spark: Any) -> bool:
    """Whether Spark has stopped. A JVM that does not answer any more counts as stopped."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:
        return True


def _say(text: str) -> None:
    print(f"slackwater serve: {text}", file=sys.stderr, flush=True)
