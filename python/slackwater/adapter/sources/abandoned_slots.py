"""The durable list of replication slots that sources have left on their servers.

A slot is on it from the transaction that drops its source until the server does not have it any
more, whoever leads meanwhile.

Source: docs/decisions 0078.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.catalog.details import ConnectionDetails, from_json, to_json
from slackwater.persist.tables import abandoned_slots
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class LeftSlot:
    """The slot of a source that was dropped. `name` is the source's.

    `connection` may be dropped as well: `details` are what it was then.
    """

    source: GlobalId
    name: str
    publication: str
    slot: str
    timeline: int
    connection: GlobalId
    details: ConnectionDetails


def keep(conn: Connection, left: LeftSlot) -> None:
    """Adds a slot, in the transaction that drops its source."""
    body = {
        "name": left.name,
        "publication": left.publication,
        "slot": left.slot,
        "timeline": left.timeline,
        "connection": left.connection,
        "details": to_json(left.details),
    }
    forget(conn, left.source)
    conn.execute(sa.insert(abandoned_slots).values(source_id=left.source, body=json.dumps(body)))


def forget(conn: Connection, source: GlobalId) -> None:
    """Removes the slot of a source from the list: its server does not have it."""
    conn.execute(sa.delete(abandoned_slots).where(abandoned_slots.c.source_id == source))


def left_slots(conn: Connection) -> tuple[LeftSlot, ...]:
    """All slots of the list."""
    return tuple(_read(row.source_id, row.body) for row in conn.execute(sa.select(abandoned_slots)))


def _read(source: str, body: str) -> LeftSlot:
    found = json.loads(body)
    details = from_json("connection", found["details"])
    if not isinstance(details, ConnectionDetails):
        raise FatalError(f"the slot of {source} has no connection")
    connection = GlobalId(found["connection"])
    named = (found["name"], found["publication"], found["slot"], found["timeline"])
    return LeftSlot(GlobalId(source), *named, connection, details)
