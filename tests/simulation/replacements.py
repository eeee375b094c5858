"""A table that is replaced as a whole, again and again, sometimes by one with other columns."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from tests.simulation.ledger import REPLACED, replacement
from tests.simulation.workload import DEFINITE, GONE, PAST, UNKNOWN, Clients
from tests.simulation.world import Lost
from tests.support.adapter.coordination import Place

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc

OTHERS = "SLACKWATER_CONCURRENT_CHANGE"


@dataclass(slots=True)
class Replacements:
    """Who replaces the table, and who reads it."""

    clients: Clients

    def replace(self) -> None:
        """CREATE OR REPLACE TABLE AS, asked for again when no answer came."""
        self.clients.now_and_then(1.0, self.replace_once)

    def read(self) -> None:
        """Whatever there is has to be one replacement, and all of it."""
        self.clients.now_and_then(0.7, self._read)

    def replace_once(self, attempts: int = 4) -> None:
        """The next contents; they are there for sure when that was answered."""
        world = self.clients.world
        world.ledger.asked += 1
        number, request = world.ledger.asked, dict[str, Any]()
        for _ in range(attempts):
            try:
                world.call("replace", lambda place: self._send(place, number, request))
            except Lost:
                world.scheduler.note(f"replace {number}: no answer")
                if not request:
                    return
            except SlackwaterError as error:
                self.clients.refused(f"replace {number}", error, OTHERS, *GONE)
                unwritten = error.condition in DEFINITE and UNKNOWN not in str(error)
                if not request or (error.condition in (OTHERS, *GONE) and not unwritten):
                    return
            else:
                world.scheduler.note(f"replaced {number}")
                world.ledger.replaced = number
                return
            world.scheduler.sleep(world.scheduler.rng.uniform(0, 1))

    def _send(self, place: Place, number: int, request: dict[str, Any]) -> None:
        calls = place.coordinator.calls()
        if not request:
            rows = replacement(number)
            desc = RelationDesc.of(**{name: _TYPES[name] for name in rows[0]})
            session = f"replacer/{number}"
            stated = {
                "namespace": ["default"],
                "name": REPLACED,
                "mode": "create_or_replace",
                "schema": desc.to_json(),
                "properties": {},
                "comment": None,
            }
            user = {"session": session, "context": {"user": "me"}}
            target = calls["/v1/catalog/stage_table"]({**user, **stated})
            request |= {
                **user,
                "write_id": f"r{number}",
                "mode": "append",
                "table": target["replaces"],
                "shard": target["shard"],
                "inline": [_encoded(rows, desc)],
                "definition": {**stated, "target": target, "as_select": True},
            }
        calls["/v1/write"](request)

    def _read(self) -> None:
        world = self.clients.world
        back_ms = world.scheduler.rng.choice((None, None, world.scheduler.rng.randrange(3000)))
        least = 0 if back_ms is not None else world.ledger.replaced

        def read(place: Place) -> None:
            item = place.item(REPLACED)
            body: dict[str, Any] = {"session": "reader/3", "relations": [{"id": item.id}]}
            if back_ms is not None:
                body["as_of"] = {"at": place.env.oracle.read_ts() - back_ms}
            bound = place.coordinator.calls()["/v1/bind"](body)
            try:
                at = Timestamp(bound["timestamp"])
                rows = place.env.persist.reads.snapshot(item.shard_id, at).to_pylist()
                world.ledger.check_replaced(f"a read at {at}", rows, least=least)
            finally:
                place.coordinator.calls()["/v1/release"]({"holds": [bound["hold"]]})

        past = () if back_ms is None else PAST
        self.clients.ask("read the replaced", read, *GONE, *past)


_TYPES = {"k": "long", "v": "string", "w": "integer"}


def _encoded(rows: list[dict], desc: RelationDesc) -> str:
    table = pa.Table.from_pylist(rows, schema=desc.arrow_schema())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()
