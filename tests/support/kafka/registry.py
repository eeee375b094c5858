"""A schema registry for tests: what sources and sinks ask of Confluent's, over HTTP."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import fastavro
import pytest

from slackwater.adapter.external.libraries import protobuf
from slackwater.adapter.external.protobuf_files import compiled


@dataclass(frozen=True)
class Protobuf:
    """What a schema of Protobuf refers to."""

    references: tuple[dict[str, str | int], ...] = ()


@dataclass
class Registry:
    """Schemas by their ids, and the ids of subjects. `asked` are the paths of all questions.

    Those of Protobuf are in `protobuf` too, by their texts. A registry that `serializes` gives
    their descriptors to who asks for them.

    `answers` are what it says to a path instead of what it has: a status and a body. `logins` are
    those of all questions, `levels` the compatibility that is asked of subjects.
    """

    address: str = ""
    first: int = 1
    schemas: list[str] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    logins: list[str | None] = field(default_factory=list)
    levels: dict[str, str] = field(default_factory=dict)
    protobuf: dict[str, Protobuf] = field(default_factory=dict)
    serializes: bool = True
    compiled: dict[str, bytes] = field(default_factory=dict)

    def register(self, subject: str, schema: object) -> int:
        """The id of the schema, which is the latest of its subject now."""
        return self._registered(subject, json.dumps(schema))

    def register_protobuf(self, subject: str, text: str, **references: str) -> int:
        """The id of a schema of Protobuf. References are the subjects of what it imports, of which
        the last versions are meant, by the names of the files without their endings."""
        found = tuple(
            {"name": f"{name}.proto", "subject": each, "version": len(self.subjects[each])}
            for name, each in references.items()
        )
        self.protobuf[text] = Protobuf(found)
        return self._registered(subject, text)

    def descriptors(self, text: str) -> bytes:
        """The descriptor set of a schema of Protobuf and what it imports."""
        if text not in self.compiled:
            self.compiled[text] = compiled({"s.proto": text, **self._imported(text)}, "s.proto")
        return self.compiled[text]

    def _imported(self, text: str) -> dict[str, str]:
        found = {}
        for each in self.protobuf[text].references:
            number = self.subjects[str(each["subject"])][int(each["version"]) - 1]
            other = self.schemas[number - self.first]
            found |= {str(each["name"]): other, **self._imported(other)}
        return found

    def _said(self, text: str, asked_form: str) -> dict[str, Any]:
        """What it says of a schema, in the form that was asked for if it knows it."""
        known = self.protobuf.get(text)
        if known is None:
            return {"schema": text}
        if self.serializes and asked_form == "serialized":
            library = protobuf().descriptor_pb2
            file = library.FileDescriptorSet.FromString(self.descriptors(text)).file[-1]
            text = base64.b64encode(file.SerializeToString()).decode()
        references = {"references": list(known.references)} if known.references else {}
        return {"schema": text, "schemaType": "PROTOBUF", **references}

    def _registered(self, subject: str, text: str) -> int:
        if text not in self.schemas:
            self.schemas.append(text)
        number = self.schemas.index(text) + self.first
        self.subjects.setdefault(subject, []).append(number)
        return number

    def message(self, number: int, value: object) -> bytes:
        """The value in the schema with that id, as Confluent's serializer writes it."""
        schema = fastavro.parse_schema(json.loads(self.schemas[number - self.first]))
        stream = BytesIO()
        fastavro.schemaless_writer(stream, schema, value)
        return b"\0" + number.to_bytes(4, "big") + stream.getvalue()

    def registered(self, subject: str, text: str, kind: str = "AVRO") -> int:
        """The id of a schema that a writer gives; the latest stays what it is when it is there."""
        known = {
            self.schemas[number - self.first]: number for number in self.subjects.get(subject, [])
        }
        if text in known:
            return known[text]
        if kind == "PROTOBUF":
            return self.register_protobuf(subject, text)
        return self.register(subject, json.loads(text))

    def answer(self, path: str, given: Any = None) -> tuple[int, Any]:
        """The status and the body. `given` is what a writer sends; None: it asks."""
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path]
        plain, _, form = path.partition("?format=")
        match [unquote(part) for part in plain.strip("/").split("/")]:
            case ["subjects", subject, "versions"] if given is not None:
                return 200, {
                    "id": self.registered(subject, given["schema"], given.get("schemaType", "AVRO"))
                }
            case ["config", subject] if given is not None:
                self.levels[subject] = given["compatibility"]
                return 200, given
            case ["config", subject] if subject in self.levels:
                return 200, {"compatibilityLevel": self.levels[subject]}
            case ["subjects"]:
                return 200, list(self.subjects)
            case ["schemas", "ids", number] if 0 <= int(number) - self.first < len(self.schemas):
                return 200, self._said(self.schemas[int(number) - self.first], form)
            case ["subjects", subject, "versions", which] if subject in self.subjects:
                version = len(self.subjects[subject]) if which == "latest" else int(which)
                number = self.subjects[subject][version - 1]
                said = self._said(self.schemas[number - self.first], form)
                return 200, {"subject": subject, "version": version, "id": number, **said}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}


@contextmanager
def served(registry: Registry, context: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """The registry, which answers for as long as the block runs, with TLS if there is a context."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.tell()

        def do_POST(self) -> None:
            self.tell(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_PUT(self) -> None:
            self.do_POST()

        def tell(self, given: Any = None) -> None:
            registry.logins.append(self.headers["Authorization"])
            status, found = registry.answer(self.path, given)
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        registry.address = f"{scheme}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with served(Registry()) as found:
        yield found
