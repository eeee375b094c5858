"""A coordinator that answers the shim's protocol with canned values.

It stands where the real process stands: started by the driver, one line of JSON on its standard
output, HTTP on loopback, gone when its standard input ends. Each call is written to `calls.jsonl`
below the location, each start to `starts.jsonl`, so that a test sees what the shim has sent.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from slackwater.server.mark import FileMark

LOCATION = Path(os.environ["SLACKWATER_LOCATION"])
TOKEN = secrets.token_hex(16)


def struct(**columns: str) -> dict[str, Any]:
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in columns.items()
    ]
    return {"type": "struct", "fields": fields}


class RefusedError(Exception):
    def __init__(self, status: int, condition: str, sqlstate: str, message: str, **more: Any):
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "condition": condition,
                "sqlstate": sqlstate,
                "message": message,
                "parameters": more.get("parameters", {}),
                "position": more.get("position"),
            }
        }


class Catalog:
    """Objects by (namespace, name), kept in a file: they outlive the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.objects: dict[str, dict[str, Any]] = {}
        self.namespaces = ["default", "mz_catalog"]
        if path.exists():
            stored = json.loads(path.read_text())
            self.objects, self.namespaces = stored["objects"], stored["namespaces"]

    def save(self) -> None:
        self.path.write_text(json.dumps({"objects": self.objects, "namespaces": self.namespaces}))

    def add(self, body: dict[str, Any], kind: str, view: dict[str, Any] | None) -> dict[str, Any]:
        namespace, name = body["namespace"][0], body["name"]
        key = f"{namespace}.{name}"
        if key in self.objects and not body.get("replace"):
            raise RefusedError(
                400, "SLACKWATER_TABLE_ALREADY_EXISTS", "42P07", f"The relation {key} exists."
            )
        self.objects[key] = {
            "id": f"u{len(self.objects) + 1}",
            "kind": kind,
            "schema_name": namespace,
            "name": name,
            "schema": body["schema"],
            "writable": kind == "table",
            "properties": body["properties"],
            "comment": body.get("comment"),
            "view": view,
        }
        self.save()
        return self.objects[key]


CATALOG = Catalog(LOCATION / "catalog.json")
MARK = FileMark(LOCATION / f"mark-{os.getpid()}") if (LOCATION / "marked").exists() else None
CANCELS = threading.Semaphore(0)
"""One for each cancel that has come. What is DEAF needs two: it does not know the first one."""


def plan(body: dict[str, Any]) -> dict[str, Any]:
    text = body["text"]
    words = text.upper().split()
    if "SYNTAX" in words:
        raise RefusedError(
            400,
            "SLACKWATER_SYNTAX_ERROR",
            "42601",
            "Syntax error in CREATE SOURCE at or near SYNTAX: expected a name.",
            parameters={"found": "SYNTAX"},
            position={"line": 1, "column": 14},
        )
    if "MISSING" in words:
        raise RefusedError(
            400,
            "TABLE_OR_VIEW_NOT_FOUND",
            "42P01",
            "The table or view `missing` cannot be found.",
            parameters={"relationName": "`missing`"},
        )
    if words[0] in ("DROP", "SET") and "SPARKS" in words:
        return {"kind": "spark"}
    if words[0] == "SHOW":
        return {"kind": "command", "schema": struct(name="string", size="long")}
    if words[0] == "FETCH":
        return {
            "kind": "command",
            "schema": struct(
                mz_timestamp="long", at="timestamp", price="decimal(10,2)", day="date", raw="binary"
            ),
        }
    return {"kind": "command", "schema": struct()}


def execute(body: dict[str, Any]) -> tuple[pa.Table, list[dict[str, str]]]:
    words = body["text"].upper().split()
    if "DIE" in words:
        os._exit(7)
    if words == ["COMMIT", "WORK"] and not (LOCATION / "asked").exists():
        (LOCATION / "asked").touch()
        os._exit(7)
    if "SLOW" in words:
        threading.Event().wait(600)
    if "DEAF" in words:
        for _ in range(2):
            if not CANCELS.acquire(timeout=600):
                return pa.schema([]).empty_table(), []
        raise RefusedError(400, "SLACKWATER_CANCELED", "57014", "The statement was canceled.")
    if "FAIL" in words:
        raise RefusedError(
            400,
            "SLACKWATER_DEPENDENT_OBJECTS",
            "2BP01",
            "Cannot drop x: other objects depend on it: y.",
            parameters={"objectName": "x", "dependents": "y"},
        )
    if words[0] == "SHOW":
        names = pa.array(["a", None, "ü"], pa.string())
        table = pa.table({"name": names, "size": pa.array([1, 2, None], pa.int64())})
        return table, [{"severity": "notice", "code": "N1", "message": "three ± rows"}]
    if words[0] == "FETCH":
        return (
            pa.table(
                {
                    "mz_timestamp": pa.array([5], pa.int64()),
                    "at": pa.array([1_000_000], pa.timestamp("us", tz="UTC")),
                    "price": pa.array(["1.50"]).cast(pa.decimal128(10, 2)),
                    "day": pa.array([1], pa.date32()),
                    "raw": pa.array([b"\x00\x01"], pa.binary()),
                }
            ),
            [],
        )
    return pa.schema([]).empty_table(), []


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


LOOKS = frozenset(
    {"/v1/catalog/load", "/v1/catalog/list", "/v1/catalog/namespaces"}
    | {f"/v1/catalog/find_{found}" for found in ("schemas", "relations", "columns")}
)


def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    with CATALOG.lock:
        if not path.startswith("/v1/catalog/"):
            return control(path, body)
        if path in LOOKS or MARK is None:
            return in_catalog(path, body)
        with MARK.changing():
            return in_catalog(path, body)


def marked() -> dict[str, str]:
    """What the announcement says of the mark of the catalog, if there is one."""
    if MARK is None:
        return {}
    MARK.counts_for(600_000)
    return {"mark": str(MARK.path)}


def control(path: str, body: dict[str, Any]) -> dict[str, Any]:
    match path:
        case "/v1/plan":
            return plan(body)
        case "/v1/cancel":
            CANCELS.release()
            return {}
        case "/v1/status":
            return {"epoch": 1, "location": str(LOCATION), "version": "0"}
        case "/v1/bind":
            none = {"files": [], "inline": [], "retractions": False, "time_filter": False}
            relations = [{"id": r["id"], "as_of": 5, **none} for r in body["relations"]]
            return {
                "timestamp": 5,
                "hold": None,
                "relations": relations,
                "result_bytes": 1 << 30,
            }
        case _:
            return {}


def metadata(call: str, body: dict[str, Any]) -> dict[str, Any]:
    """All that there is, whatever the patterns; a pattern FAIL is refused."""
    if body.get("schemas") == "FAIL":
        raise RefusedError(400, "SLACKWATER_STORAGE", "58030", "The metastore cannot be reached.")
    if call == "find_schemas":
        return {"schemas": [{"name": name} for name in CATALOG.namespaces]}
    relations = []
    for each in CATALOG.objects.values():
        relation = {"schema": each["schema_name"], "name": each["name"]}
        if call == "find_relations":
            relation |= {"type": each["kind"].upper(), "comment": each["comment"]}
        else:
            relation["columns"] = [
                {"position": position, "comment": None, **field}
                for position, field in enumerate(each["schema"]["fields"], start=1)
            ]
        relations.append(relation)
    return {"relations": relations}


def in_catalog(path: str, body: dict[str, Any]) -> dict[str, Any]:
    namespace = (body.get("namespace") or [None])[0]
    key = f"{namespace}.{body.get('name')}"
    match path.removeprefix("/v1/catalog/"):
        case "namespaces":
            return {"namespaces": [{"name": n, "comment": None} for n in CATALOG.namespaces]}
        case "list":
            found = [o for o in CATALOG.objects.values() if o["schema_name"] == namespace]
            return {"objects": [{"name": o["name"], "kind": o["kind"]} for o in found]}
        case "find_schemas" | "find_relations" | "find_columns" as call:
            return metadata(call, body)
        case "load":
            if key not in CATALOG.objects:
                raise RefusedError(
                    404, "SLACKWATER_UNKNOWN_RELATION", "42P01", f"No relation {key}."
                )
            return CATALOG.objects[key]
        case "create_namespace":
            if namespace in CATALOG.namespaces:
                raise RefusedError(
                    400, "SLACKWATER_SCHEMA_ALREADY_EXISTS", "42P06", f"{namespace} exists."
                )
            CATALOG.namespaces.append(namespace)
            CATALOG.save()
            return {}
        case "drop_namespace":
            if not body["cascade"] and any(
                o["schema_name"] == namespace for o in CATALOG.objects.values()
            ):
                raise RefusedError(
                    400, "SLACKWATER_SCHEMA_NOT_EMPTY", "2BP01", f"{namespace} holds objects."
                )
            CATALOG.namespaces.remove(namespace)
            CATALOG.save()
            return {}
        case "create_table":
            return CATALOG.add(body, "table", None)
        case "create_view":
            context = body["context"]
            view = {
                "query": body["query"],
                "catalog": context["catalog"],
                "namespace": context["namespace"],
            }
            return CATALOG.add(body, "view", view)
        case "alter_table":
            for change in body["changes"]:
                if "add_column" in change:
                    column = change["add_column"]
                    CATALOG.objects[key]["schema"]["fields"].append(
                        {
                            "name": column["name"][0],
                            "type": column["type"],
                            "nullable": column["nullable"],
                            "metadata": {},
                        }
                    )
            CATALOG.save()
            return CATALOG.objects[key]
        case "rename_table":
            described = CATALOG.objects.pop(key)
            described |= {"schema_name": body["to_namespace"][0], "name": body["to_name"]}
            CATALOG.objects[f"{body['to_namespace'][0]}.{body['to_name']}"] = described
            CATALOG.save()
            return {}
        case "drop_table" | "drop_view":
            dropped = CATALOG.objects.pop(key, None) is not None
            CATALOG.save()
            return {"dropped": dropped}
        case other:
            raise RefusedError(404, "SLACKWATER_INTERNAL", "XX000", f"no such call {other}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = json.loads(self.rfile.read(length))
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.reply(401, b"{}", "application/json", [])
            return
        record("calls.jsonl", {"path": self.path, "body": body})
        try:
            if self.path == "/v1/execute":
                table, notices = execute(body)
                self.reply(200, stream(table), "application/vnd.apache.arrow.stream", notices)
            else:
                found = json.dumps(answer(self.path, body)).encode()
                self.reply(200, found, "application/json", [])
        except RefusedError as refused:
            self.reply(refused.status, json.dumps(refused.body).encode(), "application/json", [])

    def reply(self, status: int, body: bytes, kind: str, notices: list[dict[str, str]]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if notices:
            self.send_header("X-Slackwater-Notices", quote(json.dumps(notices)))
        self.end_headers()
        self.wfile.write(body)


RECORDING = threading.Lock()


def record(name: str, value: dict[str, Any]) -> None:
    with RECORDING, (LOCATION / name).open("a") as file:
        file.write(json.dumps(value) + "\n")


def end_with_driver() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    LOCATION.mkdir(parents=True, exist_ok=True)
    if (LOCATION / "refuse-start").exists():
        sys.stderr.write("Traceback (most recent call last):\nValueError: no good reason\n")
        sys.exit(1)
    os.setsid()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    token_file = LOCATION / f"token-{os.getpid()}"
    token_file.touch(mode=0o600)
    token_file.write_text(TOKEN)
    environment = {
        name: os.environ.get(name)
        for name in (
            "SLACKWATER_APPLICATION",
            "SLACKWATER_METASTORE",
            "SLACKWATER_METASTORE_PASSWORD",
            "PYSPARK_GATEWAY_PORT",
        )
    }
    port = server.server_address[1]
    if (LOCATION / "nobody-listens").exists():
        server.server_close()
    record("starts.jsonl", {"pid": os.getpid(), "arguments": sys.argv[1:], **environment})
    threading.Thread(target=end_with_driver, daemon=True).start()
    line = {
        "role": "leader",
        "address": f"http://127.0.0.1:{port}",
        "token_file": str(token_file),
        "epoch": 1,
        "log": str(LOCATION / "log"),
        **marked(),
    }
    print(json.dumps(line), flush=True)
    if (LOCATION / "nobody-listens").exists():
        threading.Event().wait()
    server.serve_forever()


if __name__ == "__main__":
    main()
