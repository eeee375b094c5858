"""A REST catalog that says nothing: a sink of it is told, and its thread is free again."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from slackwater.adapter.external import iceberg_requests
from slackwater.adapter.external.iceberg import IcebergTarget
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import IcebergAccess
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


@pytest.mark.parametrize(
    ("silent", "more"),
    [("/v1/config", {}), ("/v1/namespaces", {}), ("/oauth/tokens", {"credential": "a:b"})],
)
def test_a_catalog_that_is_silent_is_an_error(monkeypatch, silent, more):
    monkeypatch.setattr(iceberg_requests, "ANSWER_S", 0.2)
    server = Catalog(silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    columns = SinkColumns(("n", "t"), "the table n.t", pa.schema([("k", pa.int64())]))
    target = IcebergTarget(IcebergAccess("rest", url, None, **more), None, "w", "s", columns)
    try:
        with pytest.raises(SlackwaterError) as caught:
            target.ensure()
        assert caught.value.condition == "SLACKWATER_SINK_UNREACHABLE"
        assert "timed out" in str(caught.value).lower()
        assert any(silent in each for each in server.asked)
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
