"""The HTTP face: what it takes at once, and who gets a thread when statements have them all."""

import asyncio
import json
import threading

import pytest
from tests.support.waiting import PATIENCE

from slackwater.adapter import protocol
from slackwater.adapter.calls import Endpoint
from slackwater.server import app as server
from slackwater.server.admission import AdmissionLimits


class Waiting:
    """A coordinator whose binds wait until something is released."""

    log = location = "here"

    def __init__(self):
        self.released, self.bound = threading.Event(), threading.Semaphore(0)
        self.calls = self

    def endpoints(self):
        return {
            "/v1/bind": Endpoint(protocol.Bind, lambda *call: self._bind(*call)),
            "/v1/release": Endpoint(protocol.Release, self._release),
        }

    def _bind(self, caller, asked):
        self.bound.release()
        assert self.released.wait(PATIENCE)
        return {"bound": True}

    def _release(self, caller, asked):
        self.released.set()
        return {}


@pytest.fixture
def coordinator():
    return Waiting()


async def post(app, path, body, pieces=1):
    """The status and the JSON of an answer."""
    raw = json.dumps(body).encode()
    width = -(-len(raw) // pieces)
    incoming = [raw[at : at + width] for at in range(0, len(raw), width)]
    sent = []

    async def receive():
        piece = incoming.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(incoming)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"authorization", b"Bearer secret")],
    }
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


def condition(answer):
    return answer[1]["error"]["condition"], answer[1]["error"]["sqlstate"]


def test_a_request_that_is_too_large_is_refused(coordinator):
    app = server.application(
        coordinator, "secret", pytest.fail, lambda: None, AdmissionLimits(request_bytes=100)
    )
    for pieces in (1, 7):
        large = asyncio.run(post(app, "/v1/release", {"holds": ["x" * 200]}, pieces))
        assert condition(large) == ("SLACKWATER_TOO_LARGE", "54000")
        assert not coordinator.released.is_set()
    assert asyncio.run(post(app, "/v1/release", {"holds": ["x"]}, 3)) == (200, {})


def test_what_statements_wait_for_gets_a_thread_when_they_have_them_all(coordinator):
    app = server.application(
        coordinator, "secret", pytest.fail, lambda: None, AdmissionLimits(statements=2)
    )

    async def run():
        binds = [asyncio.create_task(post(app, "/v1/bind", {})) for _ in range(2)]
        for _ in range(2):
            await asyncio.to_thread(coordinator.bound.acquire)
        refused = await asyncio.wait_for(post(app, "/v1/bind", {}), PATIENCE)
        released = await asyncio.wait_for(post(app, "/v1/release", {}), PATIENCE)
        return refused, [released, *await asyncio.gather(*binds)]

    refused, answers = asyncio.run(run())
    assert condition(refused) == ("SLACKWATER_TOO_MANY_REQUESTS", "53300")
    assert answers == [(200, {}), *[(200, {"bound": True})] * 2]


def test_a_defect_is_told_without_its_trace(coordinator, monkeypatch):
    def fail(caller, asked):
        raise KeyError("query")

    monkeypatch.setattr(coordinator, "_bind", fail)
    app = server.application(coordinator, "secret", pytest.fail, lambda: None)
    answer = asyncio.run(post(app, "/v1/bind", {}))
    assert condition(answer) == ("SLACKWATER_INTERNAL", "XX000")
    assert "KeyError: 'query'" in answer[1]["error"]["message"]
    assert "Traceback" not in str(answer)
