"""A metastore that is only read: nothing is made, upgraded or locked, whoever leads meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError

from slackwater.persist.metastore import (
    RETRY_POLICY,
    RetryPolicy,
    connect_read_only,
    is_open,
    query,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadOnlyMetastore:
    """The metastore at a URL. `file` is that of SQLite, None for a server.

    SQLite in WAL mode makes two files beside its own as soon as somebody reads, and who reads last
    may not be allowed to remove them. So a file that nobody has open is read as one that does not
    change; if somebody opened it meanwhile, what was read is thrown away and read again.
    """

    engine: Engine
    file: Path | None
    retry_policy: RetryPolicy = RETRY_POLICY

    @staticmethod
    def at(url: str | URL) -> ReadOnlyMetastore | None:
        """The metastore at `url`; None: there is no such file. No connection is opened yet.

        Raises SLACKWATER_INVALID_OPTION and SLACKWATER_CONNECTOR_MISSING, as `connect` does.
        """
        engine = connect_read_only(url)
        is_file = engine.url.get_backend_name() == "sqlite"
        file = Path(str(engine.url.database)).absolute() if is_file else None
        if file is not None and not file.exists():
            return None
        return ReadOnlyMetastore(engine, file)

    def query(self, body: Callable[[Connection], T]) -> T:
        """Runs `body` in a transaction that sees one state. It may be run more than once.

        Raises SLACKWATER_METASTORE_UNAVAILABLE, and `DatabaseError` for a damaged file.
        """
        while True:
            before = self._unchanging()
            try:
                result = query(self.engine, body, retry_policy=self.retry_policy)
            except DatabaseError:
                if before == self._unchanging():
                    raise
                continue
            if before is None or before == self._unchanging():
                return result

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    def _unchanging(self) -> tuple[int, int] | None:
        """When the file was written, and its size; None: others may be writing it."""
        if self.file is None or is_open(self.file):
            return None
        status = self.file.stat()
        return status.st_mtime_ns, status.st_size
