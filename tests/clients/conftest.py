"""A Spark session above a coordinator of plain parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.applications.parts_coordinator import (
    PartsCoordinator,
    Table,
)
from tests.support.applications.parts_values import KV, kv
from tests.support.applications.plain_session import as_usual

JARS = sorted(
    (Path(__file__).parents[2] / "python/slackwater/jars").glob("slackwater-spark_4.2_*.jar")
)


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartsCoordinator]:
    served = PartsCoordinator(tmp_path_factory.mktemp("environment"))
    yield served
    served.close()


@pytest.fixture(scope="module")
def base(
    coordinator: PartsCoordinator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    assert JARS, "make jar builds it"
    folder = tmp_path_factory.mktemp("spark")
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{coordinator.announcement()}\nEND\n")
    script.chmod(0o755)
    session = (
        as_usual(SparkSession.builder)
        .master("local[2]")
        .config("spark.jars", str(JARS[0]))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.slackwater.python", str(script))
        .config("spark.slackwater.location", str(coordinator.location))
        .getOrCreate()
    )
    session.sql("USE slackwater")
    yield session
    session.stop()


@pytest.fixture
def env(coordinator: PartsCoordinator) -> PartsCoordinator:
    coordinator.reset()
    return coordinator


@pytest.fixture
def spark(base: SparkSession, env: PartsCoordinator) -> SparkSession:
    return base


@pytest.fixture
def t(env: PartsCoordinator, tmp_path: Path) -> Table:
    """Three rows in a file at 10, one inline at 20."""
    table = env.create("t", KV)
    table.put_file(tmp_path / "t.parquet", kv((1, "a"), (2, "b"), (None, None)), 10, 1)
    table.put_inline(kv((5, "e")), 20)
    return table
