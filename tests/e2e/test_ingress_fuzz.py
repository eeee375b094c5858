"""Any request gets an answer of the contract: no defect, no secret, and what is 200 is there."""

import contextlib
import socket
import threading
from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.applications.application import Application
from tests.support.server.ingress import held_port, request
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.spark

SECRET = "hidden-Qx81"
BODY_LIMIT = 16 * 1024
EXAMPLES = 100
STATUSES = (200, 400, 401, 404, 405, 409, 413, 429)
"""All but 503: somebody leads, and it does not take too long."""
WEBHOOK = "/api/webhook/slackwater/default/{source}"
CHANGEFEED = "/api/changefeed/slackwater/default/{source}"
SOURCES = {
    "t": "BODY FORMAT TEXT, INCLUDE HEADERS, INCLUDE HEADER 'x-id' AS id",
    "j": "BODY FORMAT JSON",
    "a": "BODY FORMAT JSON ARRAY, INCLUDE HEADERS",
    "b": "BODY FORMAT BYTES, INCLUDE HEADER 'x-id' AS id BYTES",
    "c": "BODY FORMAT JSON, CHECK (WITH (HEADERS, BODY, SECRET s)"
    " CAST(get_json_object(body, '$.n') AS INT) > 0 OR headers['x-id'] = s"
    " OR body RLIKE '(a|b|ab)*c')",
}


TIMES = {"type": "string", "pattern": r"^[0-9]{1,19}\.[0-9]{1,10}$"}
MESSAGE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "payload": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["after", "key", "topic", "updated"],
                "properties": {
                    "after": {
                        "type": "object",
                        "nullable": True,
                        "properties": {"id": {"type": "integer"}, "n": {"type": "string"}},
                    },
                    "key": {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
                    "topic": {"enum": ["fed", "db.fed", "b"]},
                    "updated": TIMES,
                },
            },
        },
        "resolved": TIMES,
    },
}
"""What a feed sends; what is read of it has a form of its own in test_changefeeds.py."""


def parameter(name, place, schema):
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


def operation(source, parameters, content):
    text = {"type": "string"}
    return {
        "parameters": [
            parameter("source", "path", source),
            parameter("authorization", "header", text),
            parameter("access_token", "query", text),
            *parameters,
        ],
        "requestBody": {"content": content},
        "responses": {
            str(status): {"description": "an answer", "content": {"text/plain": {}}}
            for status in STATUSES
        },
    }


def described(url):
    """The ingress as OpenAPI describes it."""
    text = {"type": "string"}
    anything = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    webhook = operation(
        {"anyOf": [{"enum": list(SOURCES)}, {"type": "string", "minLength": 1}]},
        [parameter("x-id", "header", text)],
        anything | {"application/json": {"schema": {}}},
    )
    changefeed = operation(
        {"enum": ["f"]},
        [parameter("feed", "query", {"anyOf": [{"enum": ["one", "two"]}, text]})],
        anything | {"application/json": {"schema": MESSAGE}},
    )
    return {
        "openapi": "3.0.3",
        "info": {"title": "ingress", "version": "1"},
        "servers": [{"url": url}],
        "paths": {
            WEBHOOK: {"post": webhook},
            CHANGEFEED: {"post": changefeed},
        },
    }


@schemathesis.serializer("application/octet-stream")
def as_they_are(context, value):
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    with held_port() as port:
        conf = {
            "spark.slackwater.ingress.address": f"127.0.0.1:{port}",
            "spark.slackwater.ingress.body.limit": str(BODY_LIMIT),
        }
        with Application(folder / "environment", conf=conf, master="local[2]") as running:
            running.sql("USE slackwater.default")
            running.sql(f"CREATE SECRET s AS '{SECRET}'")
            for name, clauses in SOURCES.items():
                running.sql(f"CREATE SOURCE {name} FROM WEBHOOK ({clauses})")
            running.sql(
                "CREATE SOURCE f FROM CHANGEFEED (FORMAT COCKROACH)"
                " FOR TABLES (fed (id INT, n STRING) KEY (id))"
            )
            yield running
    told = "".join(path.read_text() for path in (folder / "environment" / "log").iterdir())
    assert SECRET not in told
    assert "Traceback" not in told
    assert '"level": "error"' not in told


@pytest.fixture(scope="module")
def base(application):
    url = application.value("SELECT url FROM mz_internal.mz_webhook_sources WHERE name = 't'")
    return url.removesuffix("/api/webhook/slackwater/default/t")


def explored(base, path, mode):
    """The source and the status of each of the requests that are tried."""
    schema = schemathesis.openapi.from_dict(described(base))
    answered = []

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=schema[path]["POST"].as_strategy(generation_mode=mode))
    def explore(case):
        answer = case.call(base_url=base, timeout=PATIENCE)
        assert answer.status_code in STATUSES, (answer.status_code, answer.text)
        assert SECRET not in answer.text
        answered.append((str(case.path_parameters.get("source")), answer.status_code))

    explore()
    return answered


def modes(here: schemathesis.GenerationMode) -> pytest.MarkDecorator:
    """Both modes of requests; the one that is not `here` is left to `make nightly`."""
    return pytest.mark.parametrize(
        "mode",
        [
            pytest.param(mode, marks=[] if mode is here else pytest.mark.nightly)
            for mode in schemathesis.GenerationMode
        ],
        ids=lambda mode: mode.value,
    )


@modes(schemathesis.GenerationMode.POSITIVE)
def test_no_request_to_a_webhook_finds_a_defect(application, base, mode):
    before = counts(application)
    passed = Counter(source for source, status in explored(base, WEBHOOK, mode) if status == 200)
    after = counts(application)
    # One row for each request; of the others a request may have any number.
    for source in ("t", "b"):
        assert after[source] - before[source] == passed[source]


@modes(schemathesis.GenerationMode.NEGATIVE)
def test_no_request_to_a_changefeed_finds_a_defect(base, mode):
    statuses = Counter(explored(base, CHANGEFEED, mode))
    if mode is schemathesis.GenerationMode.POSITIVE:
        assert statuses["f", 200] > EXAMPLES / 10


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(raw=st.binary(max_size=200), head=st.booleans())
def test_no_bytes_find_a_defect(base, raw, head):
    """What is no HTTP at all, or begins as if it were."""
    port = int(base.rpartition(":")[2])
    start = b"POST /api/webhook/slackwater/default/t HTTP/1.1\r\nHost: a\r\n" if head else b""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as sender,
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
