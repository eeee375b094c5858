"""The coordinator's HTTP face over a real metastore: who keeps whom waiting, and who need not."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
import uvicorn
from tests.support.adapter.coordination import Place
from tests.support.persist.persistence import new_environment
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.protocol import Caller, WriteTables
from slackwater.server.admission import AdmissionLimits, Lane, lane_of
from slackwater.server.app import application

TOKEN = "secret"


class Server:
    """A server on a port of its own, in a thread."""

    def __init__(self, place, limits):
        self.place = place
        self.stopped = []
        app = application(place.coordinator, TOKEN, self.stopped.append, lambda: None, limits)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._server.serve(sockets=[self._listener])), daemon=True
        )
        self._thread.start()
        wait_until(lambda: self._server.started)

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    def call(self, path, **body):
        """Status and answer of one call, on a connection of its own."""
        connection = self.connect()
        try:
            return self.send(connection, path, body).answer()
        finally:
            connection.close()

    def send(self, connection, path, body):
        """Sends a call; its answer is read with `answer`."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        connection.request("POST", path, json.dumps(body), headers)
        return Sent(connection)

    def sql(self, text, session):
        return self.call("/v1/execute", session=session, text=text, context={"user": "me"})

    def close(self):
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(PATIENCE)
        assert self.stopped == []


class Sent:
    def __init__(self, connection):
        self._connection = connection

    def answer(self):
        response = self._connection.getresponse()
        payload = response.read()
        if "json" in response.headers.get("content-type", ""):
            return response.status, json.loads(payload)
        return response.status, payload


def condition_of(answer):
    return answer[1]["error"]["condition"]


def running(place):
    return sum(len(session.running) for session in place.env.sessions.all())


@pytest.fixture
def place(tmp_path):
    environment = new_environment(f"sqlite:///{tmp_path}/metastore.db", tmp_path / "environment")
    made = Place(environment)
    made.table("t", k="integer")
    yield made
    made.close()
    environment.engine.dispose()


@contextmanager
def serving(place, **limits):
    server = Server(place, AdmissionLimits(**limits))
    try:
        yield server
    finally:
        server.close()


def subscribe(server, session):
    status, answer = server.sql("DECLARE c CURSOR FOR SUBSCRIBE t WITH (snapshot = false)", session)
    assert status == 200, answer


@contextmanager
def fetching(server, count):
    """So many sessions that wait for rows; the block gets their connections."""
    connections = [server.connect() for _ in range(count)]

    def begin(numbered):
        number, connection = numbered
        subscribe(server, f"app/{number}")
        body = {"session": f"app/{number}", "text": "FETCH ALL c", "execution": "e"}
        return server.send(connection, "/v1/execute", body)

    with ThreadPoolExecutor(16) as pool:
        sent = list(pool.map(begin, enumerate(connections)))
    wait_until(lambda: running(server.place) == count)
    try:
        yield sent
    finally:
        for connection in connections:
            connection.close()


@pytest.mark.nightly
def test_400_fetches_that_wait_keep_nobody_else_waiting(place):
    item = place.item("t")
    with serving(place) as server, fetching(server, 400) as sent:
        assert server.call("/v1/status")[1]["epoch"] == 1
        answer = server.call("/v1/catalog/load", namespace=["default"], name="t")[1]
        assert answer["id"] == item.id
        bound = server.call("/v1/bind", session="app/b", relations=[{"id": item.id}], internal=True)
        assert bound[0] == 200
        assert server.call("/v1/release", session="app/b", holds=[bound[1]["hold"]])[0] == 200
        assert server.call("/v1/cancel", session="app/7", execution="e")[0] == 200
        assert condition_of(sent[7].answer()) == "SLACKWATER_CANCELED"
        assert server.call("/v1/session/close", session="app/8")[0] == 200
        assert condition_of(sent[8].answer()) == "SLACKWATER_CANCELED"
        place.write("t", {"k": 1})
        rest = [one.answer() for n, one in enumerate(sent) if n not in (7, 8)]
        assert {status for status, _ in rest} == {200}
        assert {pa.ipc.open_stream(ipc).read_all()["k"].to_pylist()[0] for _, ipc in rest} == {1}


def test_too_many_statements_are_refused_and_what_belongs_to_others_is_not(place):
    item = place.item("t")
    with serving(place, statements=3) as server, fetching(server, 3) as sent:
        refused = server.sql("SHOW ALL", "app/x")
        assert refused[0] == 503
        assert condition_of(refused) == "SLACKWATER_TOO_MANY_REQUESTS"
        assert refused[1]["error"]["sqlstate"] == "53300"
        inside = {"session": "app/i", "relations": [{"id": item.id}], "internal": True}
        assert server.call("/v1/bind", **inside)[0] == 200
        server.call("/v1/cancel", session="app/0", execution="e")
        assert condition_of(sent[0].answer()) == "SLACKWATER_CANCELED"
        wait_until(lambda: running(place) == 2)
        wait_until(lambda: server.sql("SHOW ALL", "app/x")[0] == 200)


def lane(path, asked=None, **caller):
    return lane_of(path, Caller(**caller), asked)


def test_lanes():
    assert lane("/v1/cancel") is Lane.CONTROL
    assert lane("/v1/release") is Lane.QUICK
    assert lane("/v1/execute", internal=True) is Lane.INSIDE
    assert lane("/v1/peek") is Lane.INSIDE
    assert lane("/v1/write", WriteTables("w", (), "h")) is Lane.INSIDE
    assert lane("/v1/write", WriteTables("w", ())) is Lane.STATEMENT
    assert lane("/v1/plan") is Lane.STATEMENT


def test_a_call_whose_client_has_gone_ends(place):
    item = place.item("t")
    with serving(place) as server:
        with fetching(server, 5):
            pass
        wait_until(lambda: running(place) == 0)
        # A bind that waits for a time that is far away, and one that waits for a lock.
        place.env.committer.lock(frozenset({item.shard_id}), "other")
        late = {"session": "app/l", "relations": [{"id": item.id, "as_of": {"at": 2**60}}]}
        locked = {"session": "app/w", "relations": [], "write_targets": [item.id]}
        for body in (late, locked):
            connection = server.connect()
            server.send(connection, "/v1/bind", body)
            wait_until(lambda: running(place) == 1)
            connection.close()
            wait_until(lambda: running(place) == 0)
        place.env.committer.release("other")
        place.write("t", {"k": 1})
        assert place.env.sessions.find("app/l").holds == set()
        assert place.env.sessions.find("app/w").holds == set()


def test_requests_and_answers_have_a_largest_size(place):
    with serving(place, request_bytes=1000, answer_bytes=4000) as server:
        refused = server.sql("SHOW ALL -- " + "x" * 100_000, "app/1")
        assert refused[0] == 413
        assert condition_of(refused) == "SLACKWATER_TOO_LARGE"
        assert refused[1]["error"]["sqlstate"] == "54000"
        assert server.sql("SHOW ALL", "app/1")[0] == 200
        subscribe(server, "app/1")
        place.write("t", *({"k": n} for n in range(500)))
        assert condition_of(server.sql("FETCH ALL c", "app/1")) == "SLACKWATER_TOO_LARGE"
