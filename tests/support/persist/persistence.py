"""What the tests of shards share: environments on both metastores, and updates."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine, make_url
from tests.support.persist.postgres import PostgresServer

from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.client import PersistClient
from slackwater.persist.compaction import CompactionSettings, Compactor, choose
from slackwater.persist.leadership import Candidate, LeaderRecord, Lease, Owner, acquire
from slackwater.persist.metastore import connect, create_all
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(k="integer", v="string")

NOBODY = Owner("", "", "", "", 0, "")


def acquired(
    engine: Engine,
    expected_epoch: int | None,
    expected_renewals: int | None = None,
    lease: Lease | None = None,
    address: str = "http://a",
    **options,
) -> int:
    """The epoch of a new leader, who expects that this one leads, with a lease renewed so often."""
    seen = None if expected_renewals is None else Lease(NOBODY, 1, expected_renewals)
    after = None
    if expected_epoch is not None:
        after = LeaderRecord(expected_epoch, "", "", "", "", seen, True)
    return acquire(engine, Candidate(address, "/t", "app", "/l", lease), after, **options)


@dataclass(frozen=True)
class Environment:
    url: str
    engine: Engine
    location: str
    clients: list[PersistClient] = field(default_factory=list)
    """Those that have led, to be validated after the test."""

    def lead(self, expected_epoch: int | None = None, **options) -> PersistClient:
        epoch = acquired(self.engine, expected_epoch)
        blobs = LocalBlobs(Path(self.location))
        self.clients.append(PersistClient(self.engine, blobs, epoch, **options))
        return self.clients[-1]


def new_environment(url: str, location: Path) -> Environment:
    engine = connect(url)
    create_all(engine)
    return Environment(url, engine, str(location))


def in_memory() -> str:
    """The URL of a new metastore in memory, which lasts as long as an engine is connected to it."""
    return f"sqlite:///file:{uuid.uuid4().hex}?mode=memory&cache=shared&uri=true"


def copied(template: Engine, url: str, location: Path) -> Environment:
    """An environment like that of `template`, without the time that its tables take."""
    environment = Environment(url, connect(url), str(location))
    with template.connect() as source, environment.engine.connect() as target:
        source.connection.driver_connection.backup(target.connection.driver_connection)
    return environment


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_database(request, tmp_path):
    """Gives URLs of empty databases, of both kinds."""
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path}/{uuid.uuid4().hex}/metastore.db"
    return request.getfixturevalue("postgres").new_database


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory):
    """A metastore in which nothing has happened: a copy takes half of what its tables take."""
    folder = tmp_path_factory.mktemp("template")
    environment = new_environment(f"sqlite:///{folder}/metastore.db", folder)
    yield environment.engine
    environment.engine.dispose()


@pytest.fixture(scope="session")
def postgres_template(postgres, tmp_path_factory):
    """The name of such a database in the server; nobody is connected to it."""
    url = postgres.new_database()
    new_environment(url, tmp_path_factory.mktemp("template")).engine.dispose()
    return make_url(url).database


@contextmanager
def copy_in_memory(template: Engine, folder: Path) -> Iterator[Environment]:
    """An environment like that of `template`, for as long as the block runs."""
    environment = copied(template, in_memory(), folder / "environment")
    try:
        yield environment
    finally:
        environment.engine.dispose()


@contextmanager
def copy_in_file(template: Engine, folder: Path) -> Iterator[Environment]:
    """The same with a metastore in the folder."""
    url = f"sqlite:///{folder}/metastore/metastore.db"
    environment = copied(template, url, folder / "environment")
    try:
        yield environment
    finally:
        environment.engine.dispose()


@contextmanager
def copy_in_server(server: PostgresServer, template: str, folder: Path) -> Iterator[Environment]:
    """The same with a database like that of the name `template`, which is removed afterwards."""
    url = server.new_database(template=template)
    environment = Environment(url, connect(url), str(folder / "environment"))
    try:
        yield environment
    finally:
        environment.engine.dispose()
        server.drop_database(url)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_env(request):
    """Gives environments in which nothing has happened, each for a folder and a block."""
    if request.param == "sqlite":
        return partial(copy_in_file, request.getfixturevalue("sqlite_template"))
    template = request.getfixturevalue("postgres_template")
    return partial(copy_in_server, request.getfixturevalue("postgres"), template)


@pytest.fixture
def env(new_env, tmp_path):
    with new_env(tmp_path) as environment:
        yield environment
        for client in environment.clients:
            client.transactions.validate()


def updates(*rows: tuple[int | None, str | None, int, int]) -> pa.Table:
    """Updates (k, v, time, diff) of `DESC`."""
    names = DESC.update_schema().names
    return pa.Table.from_pylist(
        [dict(zip(names, row, strict=True)) for row in rows], schema=DESC.update_schema()
    )


def contents(client: PersistClient, shard: int, as_of: int) -> list[tuple]:
    rows = client.reads.snapshot(shard, Timestamp(as_of)).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def own_shard(client: PersistClient, upper: int = 0, desc: RelationDesc = DESC) -> int:
    return new_shard(client, desc, Timestamp(upper))


def table_shard(client: PersistClient, desc: RelationDesc = DESC) -> int:
    return new_shard(client, desc, None)


def new_shard(client, desc, upper) -> int:
    made: list[int] = []
    client.transactions.transact(
        lambda conn: made.append(client.definitions.create_shard(conn, desc, Timestamp(0), upper))
    )
    return made[-1]


EAGER = CompactionSettings(
    target_bytes=64 * 1024, base_bytes=512, fan_in=2, inline_fan_in=3, inline_bytes=256
)
"""Merges as soon as there are a few rows, on several levels."""


def compacted(
    client: PersistClient, shard: int, since: int, settings: CompactionSettings = EAGER
) -> int:
    """Merges until nothing is to be merged; how often it did."""
    for count in range(1000):
        merge = choose(client.reads.parts(shard), Timestamp(since), settings)
        if merge is None:
            return count
        assert Compactor(client, settings).compact(shard, merge, Timestamp(since))
    raise AssertionError("compaction does not end")


def multiset(rows: Iterable[Mapping]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for row in rows:
        key = repr(row)
        counted[key] = counted.get(key, 0) + 1
    return counted
