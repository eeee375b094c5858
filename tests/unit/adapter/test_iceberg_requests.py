"""A catalog that says nothing: a sink of it is told, and its thread is free again."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from slackwater.adapter.external import iceberg_catalogs, iceberg_requests
from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import AwsAccess, IcebergAccess
from slackwater.storage.iceberg.schema import SinkColumns

ANSWER = b'{"defaults": {}, "overrides": {}}'


class Catalog(ThreadingHTTPServer):
    """A server that answers what it is asked until it is silent about a path."""

    daemon_threads = True

    def __init__(self, silent):
        super().__init__(("127.0.0.1", 0), Answers)
        self.silent, self.asked, self.ended = silent, [], threading.Event()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.silent in self.path:
            self.server.ended.wait()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        pass


KEYS = AwsAccess("us-east-1", None, "key", "secret")


@pytest.mark.parametrize(
    ("kind", "silent", "more"),
    [
        ("rest", "/v1/config", {}),
        ("rest", "/v1/namespaces", {}),
        ("rest", "/oauth/tokens", {"credential": "a:b"}),
        ("s3tablesrest", "/v1/namespaces", {"aws": KEYS}),
    ],
)
def test_a_catalog_that_is_silent_is_an_error(monkeypatch, kind, silent, more):
    monkeypatch.setattr(iceberg_requests, "ANSWER_S", 0.2)
    server = Catalog(silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        assert "timed out" in refusal(IcebergAccess(kind, url, None, **more)).lower()
        assert any(silent in each for each in server.asked)
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()


def test_a_metastore_that_is_silent_is_an_error(monkeypatch):
    monkeypatch.setattr(iceberg_catalogs, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"thrift://127.0.0.1:{silent.getsockname()[1]}"
        assert "read timeout" in refusal(IcebergAccess("hive", url, None)).lower()


def refusal(access):
    """What a sink says of a catalog that it cannot reach."""
    columns = SinkColumns(("n", "t"), "the table n.t", pa.schema([("k", pa.int64())]))
    with pytest.raises(SlackwaterError) as caught:
        IcebergTarget(access, None, "w", "s", columns).ensure()
    assert caught.value.condition == "SLACKWATER_SINK_UNREACHABLE"
    return str(caught.value)
