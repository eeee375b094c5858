"""The keys of SSH tunnels: the private ones, and those that servers have shown first.

They are kept where values of secrets are, and nothing shows the private ones.

Source: docs/decisions 0082.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.external.trials.ssh import new_pair
from slackwater.adapter.sources.secrets import Secrets
from slackwater.persist.tables import secrets
from slackwater.persist.transactions import Transactor
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId

COMMENT = "slackwater"


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and its public key, both in the form of OpenSSH."""

    private: str = field(repr=False)
    public: str

    @staticmethod
    def new() -> KeyPair:
        """Raises SLACKWATER_CONNECTOR_MISSING."""
        return KeyPair(*new_pair(COMMENT))


@dataclass(frozen=True, slots=True)
class TunnelKeys:
    """The keys of the tunnels of an environment. Thread-safe.

    Each method raises SLACKWATER_METASTORE_UNAVAILABLE.
    """

    metastore: Transactor

    def private(self, connection: GlobalId, name: str) -> tuple[str, ...]:
        """The private keys. Raises SLACKWATER_DEPENDENCY_DROPPED when the connection is gone."""
        found = self.metastore.query(lambda conn: _read(conn, connection))
        if found is None:
            raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=name)
        return tuple(json.loads(found))

    @staticmethod
    def put(conn: Connection, connection: GlobalId, private: tuple[str, ...]) -> None:
        """Writes the keys in the transaction that makes the connection, or rotates its keys."""
        Secrets.put(conn, connection, json.dumps(private).encode())

    def seen(self, connection: GlobalId, address: str) -> str | None:
        """The key that the server at that address has shown first; None: it has shown none."""
        return self.metastore.query(lambda conn: _seen(conn, connection, address))

    def keep(self, connection: GlobalId, address: str, shown: str) -> str:
        """Keeps the key that the server at that address shows, unless one is kept; answers that."""

        def step(conn: Connection) -> str:
            kept = _seen(conn, connection, address)
            if kept is None and _read(conn, connection) is not None:
                body = json.dumps({"address": address, "key": shown})
                Secrets.put(conn, _host(connection), body.encode())
            return kept or shown

        return self.metastore.transact(step)

    @staticmethod
    def forget_seen(conn: Connection, connection: GlobalId) -> None:
        """Lets the next key that a server shows be its first one."""
        conn.execute(sa.delete(secrets).where(secrets.c.secret_id == _host(connection)))

    @staticmethod
    def forget(conn: Connection, connection: GlobalId) -> None:
        """Removes all keys in the transaction that drops the connection."""
        ids = (connection, _host(connection))
        conn.execute(sa.delete(secrets).where(secrets.c.secret_id.in_(ids)))


def _host(connection: GlobalId) -> GlobalId:
    """The id under which the key of the server is kept; no object has it."""
    return GlobalId(f"{connection} host key")


def _read(conn: Connection, secret: GlobalId) -> bytes | None:
    found = conn.scalar(sa.select(secrets.c.value).where(secrets.c.secret_id == secret))
    return None if found is None else bytes(found)


def _seen(conn: Connection, connection: GlobalId, address: str) -> str | None:
    found = _read(conn, _host(connection))
    kept = {} if found is None else json.loads(found)
    return str(kept["key"]) if kept.get("address") == address else None
