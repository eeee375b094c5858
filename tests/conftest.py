"""Fixtures that several test modules share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings
from tests.support.applications.application import Application
from tests.support.applications.class_archive import options
from tests.support.applications.fixtures import (
    cluster,
    shared_application,
    workplace,
    workplace_of_file,
)
from tests.support.applications.fork_server import ForkServer
from tests.support.applications.gate import gate
from tests.support.checkpoints.checkpoints import checkpoint_store
from tests.support.iceberg.java import iceberg_java
from tests.support.kafka.broker import kafka
from tests.support.kafka.registry import registry
from tests.support.persist.persistence import (
    env,
    new_database,
    new_env,
    postgres_template,
    sqlite_template,
)
from tests.support.persist.postgres import postgres
from tests.support.persist.s3 import s3
from tests.support.server.ingress import port
from tests.support.storage.upstreams import upstream, upstream_server

pytest_plugins = ["tests.support.nightly", "tests.support.order", "tests.support.reruns"]

__all__ = [
    "checkpoint_store",
    "cluster",
    "env",
    "gate",
    "iceberg_java",
    "kafka",
    "new_database",
    "new_env",
    "port",
    "postgres",
    "postgres_template",
    "registry",
    "s3",
    "shared_application",
    "sqlite_template",
    "upstream",
    "upstream_server",
    "workplace",
    "workplace_of_file",
]


# Until all is collected, which a fifth of the time would go into else.
gc.disable()

# A run of all tests says the same each time; EXAMPLES asks for a search for something new.
# What an example takes on a busy machine says nothing.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("search" if "EXAMPLES" in os.environ else "repeatable")

for variable in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, options())

# By Rich, which is installed, tracebacks in a log take a fourteenth of the tests without Spark.
plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])

# A tenth of what an application takes to start would be to compile Python where nothing is kept of
# it: its processes are new ones for each test.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-plans", action="store_true", help="write the files in tests/engine/plans anew"
    )


def pytest_sessionstart() -> None:
    """Tests with two applications find two processes, of half a gigabyte each."""
    Application.idle.limit = 2
    Application.forks = ForkServer()


def pytest_sessionfinish() -> None:
    Application.idle.close()
    if Application.forks is not None:
        Application.forks.close()


def pytest_collection_finish() -> None:
    """Thousands of tests, and what they import, stay: no garbage is looked for among them."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    """A plain Spark session. The JVM below stays, so that the next module starts in a second."""
    from tests.support.applications.plain_session import new_session

    session = new_session()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """Names for the collections of tests that maintain views below the coordinator."""
    from tests.support.compute.declared import Declared

    made = Declared(tmp_path_factory.mktemp("environment"))
    yield made
    made.close()
