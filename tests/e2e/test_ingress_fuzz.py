"""Any request gets an answer of the contract: no defect, no secret, and what is 200 is there."""

import contextlib
import socket
import threading

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.application import Application
from tests.support.ingress import free_port, request

pytestmark = pytest.mark.spark

SECRET = "hidden-Qx81"
BODY_LIMIT = 16 * 1024
EXAMPLES = 300
STATUSES = (200, 400, 401, 404, 405, 413, 429)
"""All but 503: somebody leads, and it does not take too long."""
SOURCES = {
    "t": "BODY FORMAT TEXT, INCLUDE HEADERS, INCLUDE HEADER 'x-id' AS id",
    "j": "BODY FORMAT JSON",
    "a": "BODY FORMAT JSON ARRAY, INCLUDE HEADERS",
    "b": "BODY FORMAT BYTES, INCLUDE HEADER 'x-id' AS id BYTES",
    "c": "BODY FORMAT JSON, CHECK (WITH (HEADERS, BODY, SECRET s)"
    " CAST(get_json_object(body, '$.n') AS INT) > 0 OR headers['x-id'] = s"
    " OR body RLIKE '(a|b|ab)*c')",
}


def described(url):
    """The ingress as OpenAPI describes it."""
    anything = {"schema": {"type": "string", "format": "binary"}}
    json_body = {"schema": {}}
    operation = {
        "parameters": [
            {
                "name": "source",
                "in": "path",
                "required": True,
                "schema": {"anyOf": [{"enum": list(SOURCES)}, {"type": "string", "minLength": 1}]},
            },
            {"name": "x-id", "in": "header", "schema": {"type": "string"}},
            {"name": "authorization", "in": "header", "schema": {"type": "string"}},
            {"name": "access_token", "in": "query", "schema": {"type": "string"}},
        ],
        "requestBody": {
            "content": {"application/octet-stream": anything, "application/json": json_body}
        },
        "responses": {
            str(status): {"description": "an answer", "content": {"text/plain": {}}}
            for status in (200, 400, 401, 404, 413, 429)
        },
    }
    return {
        "openapi": "3.0.3",
        "info": {"title": "ingress", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/api/webhook/slackwater/default/{source}": {"post": operation}},
    }


@schemathesis.serializer("application/octet-stream")
def as_they_are(context, value):
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    conf = {
        "spark.slackwater.ingress.address": f"127.0.0.1:{free_port()}",
        "spark.slackwater.ingress.body.limit": str(BODY_LIMIT),
    }
    with Application(folder / "environment", conf=conf, master="local[2]") as running:
        running.sql("USE slackwater.default")
        running.sql(f"CREATE SECRET s AS '{SECRET}'")
        for name, clauses in SOURCES.items():
            running.sql(f"CREATE SOURCE {name} FROM WEBHOOK ({clauses})")
        yield running
    told = "".join(path.read_text() for path in (folder / "environment" / "log").iterdir())
    assert SECRET not in told
    assert "Traceback" not in told
    assert '"level": "error"' not in told


@pytest.fixture(scope="module")
def base(application):
    url = application.value("SELECT url FROM mz_internal.mz_webhook_sources WHERE name = 't'")
    return url.removesuffix("/api/webhook/slackwater/default/t")


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_no_request_finds_a_defect(application, base, mode):
    schema = schemathesis.openapi.from_dict(described(base))
    (operation,) = [each.ok() for each in schema.get_all_operations()]
    before = counts(application)
    passed = dict.fromkeys(SOURCES, 0)

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def explore(case):
        answer = case.call(base_url=base, timeout=30)
        assert answer.status_code in STATUSES, (answer.status_code, answer.text)
        assert SECRET not in answer.text
        source = str(case.path_parameters.get("source"))
        if answer.status_code == 200 and source in passed:
            passed[source] += 1

    explore()
    after = counts(application)
    # One row for each request; of the others a request may have any number.
    for source in ("t", "b"):
        assert after[source] - before[source] == passed[source]


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(raw=st.binary(max_size=200), head=st.booleans())
def test_no_bytes_find_a_defect(base, raw, head):
    """What is no HTTP at all, or begins as if it were."""
    port = int(base.rpartition(":")[2])
    start = b"POST /api/webhook/slackwater/default/t HTTP/1.1\r\nHost: a\r\n" if head else b""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as sender,
        contextlib.suppress(ConnectionError),
    ):
        sender.sendall(start + raw + b"\r\n\r\n")
        sender.shutdown(socket.SHUT_WR)
        answer = sender.recv(65536)
    assert not answer.startswith(b"HTTP/1.1 5"), answer


def test_limits_hold_under_load(application, base):
    """Many large requests at once: each is taken or refused, and the rows are those taken."""
    url = f"{base}/api/webhook/slackwater/default/b"
    before = counts(application)["b"]
    statuses = []

    def send(size):
        for _ in range(10):
            statuses.append(request(url, b"x" * size).status)

    sizes = [0, 1, BODY_LIMIT, BODY_LIMIT + 1, 5 * BODY_LIMIT] * 4
    threads = [threading.Thread(target=send, args=(size,)) for size in sizes]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(statuses) == 200
    assert set(statuses) <= {200, 413}
    assert statuses.count(413) == 80
    assert counts(application)["b"] - before == 120


def counts(application):
    return {name: application.value(f"SELECT count(*) FROM {name}") for name in SOURCES}
