"""The shim's jar, and how a Spark session gets it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from slackwater.spark.notices import lacks_jar, warn_of_notices

SCALA_VERSION = "2.13"
SCHEDULER_MODE = "spark.scheduler.mode"
ALLOCATIONS = "spark.scheduler.allocation.file"
OF_PATTERNS = frozenset("?[]{},")


def spark_version() -> str:
    """The installed pyspark's version, such as ``4.2.0``."""
    return metadata.version("pyspark")


def spark_minor() -> str:
    """The installed pyspark's minor version, such as ``4.2``."""
    return ".".join(spark_version().split(".")[:2])


def jar_path() -> Path:
    """The shim jar for the installed Spark.

    Raises FileNotFoundError, naming what to do, when this installation has none for it, or is in a
    folder from which Spark cannot load it.
    """
    folder = Path(str(resources.files("slackwater").joinpath("jars")))
    found = sorted(folder.glob(f"slackwater-spark_{spark_minor()}_{SCALA_VERSION}-*.jar"))
    if not found:
        raise FileNotFoundError(
            f"this installation of slackwater has no jar for Spark {spark_minor()}; "
            "install the pyspark version that slackwater requires, or run `make jar` in a checkout"
        )
    jar = found[-1]
    if OF_PATTERNS & set(str(jar)):
        raise FileNotFoundError(
            f"Spark takes the path {jar} for a pattern or a list; "
            "install slackwater in a folder without ? [ ] { } and commas in its path"
        )
    return jar


def settings(
    location: str | None = None, metastore: str | None = None, **options: str
) -> dict[str, str]:
    """The Spark settings of a session with Slackwater.

    `options` are further settings below ``spark.slackwater.``; values of None are left out. A
    password in the URL of the metastore goes into a variable of this process instead, which the
    programs that it starts inherit.
    """
    entries = {"spark.slackwater.python": sys.executable}
    if metastore is not None:
        # What reads URLs takes longer to load than the rest of a session without a metastore.
        from slackwater.persist.locations import PASSWORD, without_password

        metastore, password = without_password(metastore)
        if password is not None:
            # Settings are arguments of processes, and Spark shows them; variables are neither.
            os.environ[PASSWORD] = password
    if location is not None:
        entries["spark.slackwater.location"] = location
    if metastore is not None:
        entries["spark.slackwater.metastore"] = metastore
    entries.update({f"spark.slackwater.{key}": str(value) for key, value in options.items()})
    return entries


def fair_scheduling(given: Mapping[str, str]) -> dict[str, str]:
    """The settings with which maintained views and queries of users share the executors.

    Empty where `given` has a scheduling mode. In Spark's default, jobs run in the order in which
    they come: a query would wait for each view that is being hydrated.
    """
    if SCHEDULER_MODE in given or ALLOCATIONS in given:
        return {}
    pools = Path(str(resources.files("slackwater") / "spark" / "pools.xml"))
    # Not a URI: Spark takes percent signs for themselves.
    return {SCHEDULER_MODE: "FAIR", ALLOCATIONS: f"file://{pools.absolute()}"}


def configure(
    builder: Any, *, location: str | None = None, metastore: str | None = None, **options: str
) -> Any:
    """Adds Slackwater to a `SparkSession.builder` and returns the builder.

    Keeps the builder's jars and its scheduling mode. `location` is that of the environment
    (default: the folder ``slackwater-environment`` below the working directory), `metastore` is an
    SQLAlchemy URL. Notices of statements become Python warnings (`warn_of_notices`) from
    `getOrCreate` on. That raises RuntimeError when Spark runs already, without Slackwater's jar.
    Raises FileNotFoundError when there is no jar for the installed Spark.
    """
    present = getattr(builder, "_options", {}).get("spark.jars", "")
    jars = [jar for jar in present.split(",") if jar]
    if str(jar_path()) not in jars:
        jars.append(str(jar_path()))
    builder = builder.config("spark.jars", ",".join(jars))
    given = getattr(builder, "_options", {})
    # The bars of the jobs that maintain views would be drawn over the user's terminal.
    if "spark.ui.showConsoleProgress" not in given:
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    entries = fair_scheduling(given) | settings(location, metastore, **options)
    for key, value in entries.items():
        builder = builder.config(key, value)
    # A builder has no place for what is to happen when its session is there.
    builder.getOrCreate = partial(_listening, builder)
    return builder


def _listening(builder: Any) -> Any:
    """The session of a builder, whose notices are warnings of this program."""
    session = type(builder).getOrCreate(builder)
    if lacks_jar(session):
        raise RuntimeError(
            "Spark runs here without the jar of Slackwater: it was started before the builder of "
            "slackwater.configure, or PYSPARK_SUBMIT_ARGS names other jars. Use that builder in a "
            f"new process, or add {jar_path()} to the jars that are named."
        )
    warn_of_notices(session)
    return session
