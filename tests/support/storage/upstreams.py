"""Databases of a real PostgreSQL that sources follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.persist.postgres import PostgresServer, running_server
from tests.support.server.ingress import held_port

LOGICAL = (
    "wal_level=logical",
    "listen_addresses=127.0.0.1",
    "max_replication_slots=50",
    "max_wal_senders=50",
)


class Upstream:
    """A database of its own, with what the tests say to it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.database = make_url(server.new_database()).database
        self.connection = self.connected()

    def connected(self):
        """Another connection to the database."""
        where = f"host={self.server.directory} port={self.server.port} user=postgres"
        return psycopg.connect(f"{where} dbname={self.database}", autocommit=True)

    def run(self, *statements):
        """All of it in one transaction."""
        with self.connection.transaction():
            for each in statements:
                self.connection.execute(each)

    def rows(self, query):
        return self.connection.execute(query).fetchall()

    @property
    def options(self) -> str:
        """The options of a connection to it."""
        return (
            f"HOST '127.0.0.1', PORT {self.server.port}, DATABASE '{self.database}', "
            "USER 'postgres', SSL MODE disable"
        )


@contextmanager
def running_upstream_server(*, fsync: bool = False) -> Iterator[PostgresServer]:
    """A server whose log can be followed, for as long as the block runs."""
    with held_port() as port, running_server(fsync=fsync, port=port, settings=LOGICAL) as running:
        yield running


@pytest.fixture(scope="session")
def upstream_server() -> Iterator[PostgresServer]:
    """One server for all tests that do not break it; each has databases of its own."""
    with running_upstream_server() as running:
        yield running


@pytest.fixture
def upstream(upstream_server: PostgresServer) -> Iterator[Upstream]:
    made = Upstream(upstream_server)
    yield made
    made.connection.close()
