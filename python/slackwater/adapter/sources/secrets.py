"""The values of secrets. The catalog has their names; nothing else ever shows a value.

Source: spec coordinator 4.2, docs/decisions 0023.
"""

from __future__ import annotations

import threading
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import SecretDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.persist.tables import secrets
from slackwater.persist.transactions import Transactor
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId

T = TypeVar("T")


class Secrets:
    """The secrets of the environment. Thread-safe."""

    def __init__(self, metastore: Transactor) -> None:
        self._metastore = metastore
        self._lock = threading.Lock()
        self._known: dict[GlobalId, tuple[int, bytes]] = {}

    def value(self, item: CatalogItem) -> bytes:
        """The value that the secret has now.

        Raises SLACKWATER_DEPENDENCY_DROPPED, SLACKWATER_METASTORE_UNAVAILABLE.
        """
        version = version_of(item)
        with self._lock:
            known = self._known.get(item.id)
        if known is not None and known[0] == version:
            return known[1]
        statement = sa.select(secrets.c.value).where(secrets.c.secret_id == item.id)
        found = self._metastore.query(lambda conn: conn.scalar(statement))
        if found is None:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=item.full_name)
        value = bytes(found)
        with self._lock:
            # One that is newer than `version` counts as that: it will be read once more.
            self._known[item.id] = (version, value)
        return value

    @staticmethod
    def put(conn: Connection, secret_id: GlobalId, value: bytes) -> None:
        """Writes a value in the transaction that creates or alters the secret."""
        conn.execute(sa.delete(secrets).where(secrets.c.secret_id == secret_id))
        conn.execute(sa.insert(secrets).values(secret_id=secret_id, value=value))

    def forget(self, conn: Connection, secret_id: GlobalId) -> None:
        """Removes the value in the transaction that drops the secret."""
        conn.execute(sa.delete(secrets).where(secrets.c.secret_id == secret_id))
        with self._lock:
            self._known.pop(secret_id, None)


def version_of(item: CatalogItem) -> int:
    """The number of times that the secret was altered."""
    return item.of(SecretDetails).version
