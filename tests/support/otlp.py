"""A receiver of OTLP over HTTP: it keeps the spans that a real exporter sends."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status

_PREFIX = "slackwater."


@dataclass(frozen=True)
class Sent:
    """A span as it was sent. Ids are bytes; `links` are pairs of the ids of trace and span."""

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    began_ns: int
    ended_ns: int
    attributes: dict
    links: list
    error: str | None

    @property
    def named(self) -> tuple[bytes, bytes]:
        return self.trace, self.id


class Receiver:
    """What has come so far. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Sent] = []
        self.address = ""

    def take(self, body: bytes) -> None:
        asked = ExportTraceServiceRequest.FromString(body)
        scopes = (scope for resource in asked.resource_spans for scope in resource.scope_spans)
        spans = [_sent(span) for scope in scopes for span in scope.spans]
        with self._lock:
            self._spans.extend(spans)

    def spans(self, name: str | None = None, **attributes) -> list[Sent]:
        """The spans with this name and these attributes."""
        with self._lock:
            found = list(self._spans)
        return [
            each
            for each in found
            if name in (None, each.name)
            and all(each.attributes.get(key) == value for key, value in attributes.items())
        ]

    def below(self, span: Sent, name: str | None = None) -> list[Sent]:
        """The spans of its trace whose parent it is, in the order of their beginnings."""
        found = [e for e in self.spans(name) if (e.trace, e.parent) == (span.trace, span.id)]
        return sorted(found, key=lambda each: each.began_ns)

    def linked(self, span: Sent) -> list[Sent]:
        """The spans to which it has links, as far as they have come."""
        by_id = {each.named: each for each in self.spans()}
        return [by_id[each] for each in span.links if each in by_id]


def _sent(span) -> Sent:
    values = {each.key: each.value for each in span.attributes}
    return Sent(
        span.name,
        span.trace_id,
        span.span_id,
        span.parent_span_id,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {
            key.removeprefix(_PREFIX): getattr(value, value.WhichOneof("value"))
            for key, value in values.items()
        },
        [(each.trace_id, each.span_id) for each in span.links],
        span.status.message if span.status.code == Status.STATUS_CODE_ERROR else None,
    )


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A receiver that listens at its `address` on loopback."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            zipped = self.headers.get("Content-Encoding") == "gzip"
            received.take(gzip.decompress(body) if zipped else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.address = f"http://127.0.0.1:{server.server_port}"
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
