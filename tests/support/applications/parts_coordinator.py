"""A coordinator below the shim's protocol: tables are lists of parts, kept in memory.

It serves HTTP inside the test's process, so a test puts parts there, reads the calls that the shim
has sent, and sees what it wrote. Nothing here decides what is right: reads answer with the parts
as they are, writes add parts.
"""

from __future__ import annotations

import base64
import json
import secrets
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.waiting import PATIENCE

TIME, DIFF = "__time", "__diff"
Json = dict[str, Any]


def schema(**columns: Any) -> Json:
    """A StructType; a type in a one-element list is NOT NULL."""
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": kind[0] if isinstance(kind, list) else kind,
                "nullable": not isinstance(kind, list),
                "metadata": {},
            }
            for name, kind in columns.items()
        ],
    }


def to_ipc(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def from_ipc(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


@dataclass
class Table:
    id: str
    name: str
    schema: Json
    kind: str = "table"
    view: Json | None = None
    files: list[Json] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    retractions: bool = False
    time_filter: bool = False

    def describe(self) -> Json:
        return {
            "id": self.id,
            "kind": self.kind,
            "schema_name": "default",
            "name": self.name,
            "schema": self.schema,
            "writable": self.kind == "table",
            "properties": {},
            "comment": None,
            "view": self.view,
        }

    def put_file(self, path: Path, rows: pa.Table, time: int | None, diff: int | None) -> None:
        """A file with one time and one diff, or, without them, with both as columns."""
        pq.write_table(rows, path)
        self.register(path, rows.num_rows, time, diff)

    def register(self, path: Path, rows: int, time: int | None, diff: int | None) -> None:
        status = path.stat()
        self.files.append(
            {
                "uri": path.as_uri(),
                "size_bytes": status.st_size,
                "modified_ms": int(status.st_mtime * 1000),
                "rows": rows,
                "time": time,
                "diff": diff,
            }
        )

    def put_inline(self, rows: pa.Table, time: int, diff: int = 1) -> None:
        count = rows.num_rows
        updates = rows.append_column(TIME, pa.array([time] * count, pa.int64())).append_column(
            DIFF, pa.array([diff] * count, pa.int64())
        )
        self.inline.append(to_ipc(updates))
        self.retractions |= diff < 0


class PartsCoordinator:
    """The state, and the calls in the order in which they came."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.tables: dict[str, Table] = {}
        self.calls: list[tuple[str, Json]] = []
        self.now = 1_000
        self.token = secrets.token_hex(16)
        self._lock = threading.Condition(threading.RLock())
        self._holds = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        location.mkdir(parents=True, exist_ok=True)
        (location / "token").write_text(self.token)

    def announcement(self) -> str:
        host, port = self._server.server_address[:2]
        return json.dumps(
            {
                "role": "joined",
                "address": f"http://{host}:{port}",
                "token_file": str(self.location / "token"),
                "epoch": 1,
                "log": "",
            }
        )

    def reset(self) -> None:
        with self._lock:
            self.tables.clear()
            self.calls.clear()

    @property
    def last_hold(self) -> str:
        return f"hold-{self._holds}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def create(self, name: str, columns: Json, kind: str = "table") -> Table:
        with self._lock:
            table = Table(f"u{len(self.tables) + 1}", name, columns, kind)
            self.tables[name] = table
            return table

    def seen(self, path: str) -> list[Json]:
        with self._lock:
            return [body for called, body in self.calls if called == path]

    def forget(self) -> None:
        with self._lock:
            self.calls.clear()

    def wait_for(self, path: str, count: int) -> list[Json]:
        """The calls of `path`, once there are `count` of them."""
        with self._lock:
            self._lock.wait_for(lambda: sum(p == path for p, _ in self.calls) >= count, PATIENCE)
        return self.seen(path)

    def is_released(self, hold: str) -> bool:
        """Whether the hold has ended by now."""
        with self._lock:
            return self._released(hold)

    def released(self, hold: str) -> bool:
        """Whether the hold ends while a test has patience."""
        with self._lock:
            return self._lock.wait_for(lambda: self._released(hold), PATIENCE)

    def _released(self, hold: str) -> bool:
        ended = {"/v1/release": "holds", "/v1/bind": "released"}
        return any(hold in body.get(ended.get(path, ""), ()) for path, body in self.calls)

    def answer(self, path: str, body: Json) -> Json | None:
        with self._lock:
            self.calls.append((path, body))
            self._lock.notify_all()
            match path:
                case "/v1/catalog/load":
                    found = self.tables.get(body["name"].lower())
                    return found.describe() if found else None
                case "/v1/catalog/create_table":
                    return self._created(body)
                case "/v1/catalog/stage_table":
                    return self._staged(body)
                case "/v1/catalog/namespaces":
                    return {"namespaces": [{"name": "default", "comment": None}]}
                case "/v1/catalog/list":
                    return {
                        "objects": [{"name": t.name, "kind": t.kind} for t in self.tables.values()]
                    }
                case "/v1/bind":
                    return self._bind(body)
                case "/v1/prepare_write":
                    place = body["table"] if body.get("shard") is None else body["shard"]
                    directory = self.location / f"writes-{place}"
                    directory.mkdir(exist_ok=True)
                    return {"directory": directory.as_uri()}
                case "/v1/write":
                    return self._write(body)
                case "/v1/plan":
                    return {"kind": "spark"}
                case _:
                    return {}

    def _created(self, body: Json) -> Json:
        return self.create(body["name"], body["schema"]).describe()

    def _staged(self, body: Json) -> Json:
        existing = self.tables.get(body["name"])
        kept = existing is not None and existing.schema == body["schema"]
        return {
            "id": existing.id if kept else f"u{len(self.tables) + 1}",
            "replaces": None if existing is None else existing.id,
            "shard": None if kept else 1000 + len(self.calls),
            "schema": body["schema"],
        }

    def _defined(self, definition: Json) -> Table:
        if definition["target"]["shard"] is None:
            return self._by_id(definition["target"]["id"])
        return self.create(definition["name"], definition["schema"])

    def _by_id(self, table_id: str) -> Table:
        return next(t for t in self.tables.values() if t.id == table_id)

    def _bind(self, body: Json) -> Json:
        self._holds += 1
        self.now += 1
        return {
            "timestamp": self._time(body["as_of"]),
            "hold": f"hold-{self._holds}",
            "result_bytes": 1 << 30,
            "relations": [
                self._relation(self._by_id(r["id"]), self._time(r["as_of"] or body["as_of"]))
                for r in body["relations"]
            ],
        }

    def _time(self, as_of: Json | None) -> int:
        if as_of is None:
            return self.now
        return as_of["at"] if "at" in as_of else max(as_of["at_least"], self.now)

    def _relation(self, table: Table, as_of: int) -> Json:
        return {
            "id": table.id,
            "as_of": as_of,
            "files": table.files,
            "inline": table.inline,
            "retractions": table.retractions,
            "time_filter": table.time_filter or as_of < self.now,
        }

    def _write(self, body: Json) -> Json:
        definition = body.get("definition")
        table = self._by_id(body["table"]) if definition is None else self._defined(definition)
        self.now += 1
        if body["mode"] == "overwrite":
            table.files, table.inline, table.retractions = [], [], False
        rows = 0
        for stream in body["inline"]:
            update = from_ipc(stream)
            rows += update.num_rows
            times = pa.array([self.now] * update.num_rows, pa.int64())
            if body["mode"] == "diff":
                at = update.schema.get_field_index(DIFF)
                update = update.add_column(at, pa.field(TIME, pa.int64(), False), times)
                table.retractions = True
            else:
                update = update.append_column(TIME, times).append_column(
                    DIFF, pa.array([1] * update.num_rows, pa.int64())
                )
            table.inline.append(to_ipc(update))
        for file in body["files"]:
            rows += file["rows"]
            if body["mode"] == "diff":
                self._timed(table, file)
            else:
                table.files.append({**file, "time": self.now, "diff": 1})
        return {"timestamp": self.now, "inserted": rows, "deleted": 0}

    def _timed(self, table: Table, file: Json) -> None:
        path = Path(file["uri"].removeprefix("file://"))
        rows = pq.read_table(path)
        at = rows.schema.get_field_index(DIFF)
        times = pa.array([self.now] * rows.num_rows, pa.int64())
        target = path.with_name(f"timed-{path.name}")
        table.put_file(target, rows.add_column(at, TIME, times), None, None)
        table.retractions = True


def _handler(coordinator: PartsCoordinator) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.headers["Authorization"] != f"Bearer {coordinator.token}":
                self._reply(401, {})
                return
            answer = coordinator.answer(self.path, body)
            self._reply(404 if answer is None else 200, answer or {})

        def _reply(self, status: int, answer: Json) -> None:
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    return Handler
