"""Requests share commits, and each is told what became of it."""

import threading

import pyarrow as pa
import pytest
from tests.support.adapter.adapter_log import MemoryLog, outage
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.catalog.details import CheckConfig, CheckedInput, WebhookDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.sources.webhooks import Verdict, WebhookRequest, Webhooks, seen
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.writing.group_commit import CommitSettings, GroupCommitter
from slackwater.persist.leadership import Fenced
from slackwater.persist.parts import InlineBody, NewPart
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import user_id
from slackwater.storage.ingestion import Reached
from slackwater.storage.webhook import WebhookConfig


class Log(MemoryLog):
    """Remembers the bodies of each commit by shard."""

    def __init__(self, **around):
        super().__init__(**around)
        self.bodies = []

    def new_parts(self, shard_id, updates):
        self.bodies.append((shard_id, updates["body"].to_pylist()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([])):
            pass
        time = Timestamp(updates["__time"][0].as_py())
        part = InlineBody(sink.getvalue().to_pybytes())
        return (NewPart(part, updates.num_rows, time, time, False),)

    def append(self, lower, upper, parts, steps, results):
        self.before()
        self.upper = upper
        self.commits.append(sorted(parts))
        self.results.update(results)
        self.after()


class FakeChecks:
    """Holds for requests that do not say no; `failing` is raised instead."""

    def __init__(self):
        self.asked = []
        self.failing = None
        self.gate = threading.Event()
        self.gate.set()

    def holds(self, item, config, requests):
        self.asked.append(len(requests))
        assert self.gate.wait(PATIENCE)
        if self.failing is not None:
            raise self.failing
        return [request.body != b"no" for request in requests]


class FakeStates:
    def reached(self, source_id):
        return Reached()


CHECK = CheckConfig("body <> 'no'", (CheckedInput("BODY", "body", None, False),), None)


def source(number, name, form="TEXT", check=None):
    return CatalogItem(
        id=user_id(number),
        kind=ItemKind.SOURCE,
        schema_name="default",
        name=name,
        create_sql="",
        desc=WebhookConfig(form).desc,
        shard_id=number,
        details=WebhookDetails(WebhookConfig(form), check=check),
    )


class Place:
    def __init__(self, monkeypatch):
        monkeypatch.setattr(
            "slackwater.adapter.sources.webhooks.staged_files", lambda _, __, rows: rows
        )
        monkeypatch.setattr("slackwater.adapter.sources.webhooks.write_statistics", lambda *_: None)
        self.state = CatalogState.of(
            [], [source(10, "w"), source(11, "j", "JSON ARRAY"), source(12, "c", check=CHECK)]
        )
        self.log = Log()
        self.checks = FakeChecks()
        self.committer = GroupCommitter(
            self.log,
            TimestampOracle.recover(Timestamp(1), lambda: 1000),
            location="here",
            clock_ms=lambda: 1000,
            settings=CommitSettings(tick_ms=60_000),
        )
        self.webhooks = Webhooks(
            lambda: self.state,
            persist=None,
            committer=self.committer,
            states=FakeStates(),
            checks=self.checks,
            clock_ms=lambda: 1000,
        )
        self.told = []
        self.committer.start()
        self.webhooks.start()

    def post(self, name, body):
        webhook = self.webhooks.find("default", name)

        def done(verdict, said):
            self.told.append((body, verdict, said))

        self.webhooks.post(WebhookRequest(webhook, body, {}, 1, done))

    def verdicts(self, count):
        wait_until(lambda: len(self.told) >= count, what=f"{count} verdicts")
        return sorted((body, verdict.name) for body, verdict, _ in self.told)

    def statistics(self, number):
        found = self.webhooks.statistics()[user_id(number)]
        return found.messages_received, found.bytes_received, found.updates_committed


@pytest.fixture
def place(monkeypatch):
    made = Place(monkeypatch)
    yield made
    made.webhooks.stop()
    made.committer.stop()


def test_what_comes_while_a_commit_runs_is_the_next_commit(place):
    first, go = threading.Event(), threading.Event()

    def hold():
        first.set()
        assert go.wait(PATIENCE)

    place.log.before = hold
    place.post("w", b"1")
    assert first.wait(PATIENCE)
    for body in (b"2", b"3", b"4"):
        place.post("w", body)
    place.post("j", b"[5, 6]")
    assert place.told == []
    place.log.before = lambda: None
    go.set()
    assert {verdict for _, verdict in place.verdicts(5)} == {"COMMITTED"}
    assert place.log.bodies == [(10, ["1"]), (10, ["2", "3", "4"]), (11, ["5", "6"])]
    assert place.statistics(10) == (4, 4, 4)
    assert place.statistics(11) == (1, 6, 2)


def test_what_is_malformed_keeps_nobody_else(place):
    place.post("j", b"[1")
    place.post("w", b"\xff")
    place.post("w", b"1")
    assert place.verdicts(3) == [(b"1", "COMMITTED"), (b"[1", "MALFORMED"), (b"\xff", "MALFORMED")]
    assert place.statistics(10) == (2, 2, 1)
    # It was counted, though nothing of it was written.
    assert place.statistics(11) == (1, 2, 0)


def test_requests_that_wait_are_checked_together(place):
    place.checks.gate.clear()
    place.post("c", b"1")
    wait_until(lambda: place.checks.asked == [1], what="the first is checked")
    for body in (b"2", b"no", b"3"):
        place.post("c", body)
    place.post("w", b"other")
    wait_until(lambda: place.told, what="another source waits for nobody")
    place.checks.gate.set()
    found = place.verdicts(5)
    assert found == [
        (b"1", "COMMITTED"),
        (b"2", "COMMITTED"),
        (b"3", "COMMITTED"),
        (b"no", "REFUSED"),
        (b"other", "COMMITTED"),
    ]
    assert place.checks.asked == [1, 3]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName="s"), "GONE"),
        (user_error("SLACKWATER_SECRET_NOT_TEXT", objectName="s"), "REFUSED"),
        (outage(), "UNAVAILABLE"),
        (RuntimeError("hidden"), "FAILED"),
    ],
)
def test_a_check_that_cannot_be_made(place, error, verdict):
    place.checks.failing = error
    place.post("c", b"1")
    assert place.verdicts(1) == [(b"1", verdict)]
    assert "hidden" not in place.told[0][2]
    place.checks.failing = None
    place.post("c", b"2")
    assert place.verdicts(2)[1] == (b"2", "COMMITTED")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (user_error("SLACKWATER_NO_SPACE", what="w", path="/data"), Verdict.FULL),
        (user_error("SLACKWATER_TOO_MANY_REQUESTS", what="w", limit="1"), Verdict.FULL),
        (
            user_error("SLACKWATER_STORAGE_UNAVAILABLE", what="w", reason="gone"),
            Verdict.UNAVAILABLE,
        ),
        (user_error("SLACKWATER_STATEMENT_INTERRUPTED"), Verdict.UNAVAILABLE),
        (user_error("SLACKWATER_FENCED", location="here"), Verdict.UNAVAILABLE),
        (Fenced(1, 2), Verdict.UNAVAILABLE),
        (KeyError("hidden"), Verdict.FAILED),
    ],
    ids=lambda each: None if isinstance(each, Verdict) else str(each)[:30],
)
def test_what_senders_get_to_know_of_an_error(error, verdict):
    assert seen(error) == (verdict, verdict.value)


def test_a_commit_that_fails_is_told_and_counted_once(place):
    def fail():
        raise outage()

    place.log.before = fail
    place.post("w", b"1")
    assert place.verdicts(1) == [(b"1", "UNAVAILABLE")]
    place.log.before = lambda: None
    place.post("w", b"2")
    assert place.verdicts(2) == [(b"1", "UNAVAILABLE"), (b"2", "COMMITTED")]
    assert place.statistics(10) == (2, 2, 1)


def test_who_comes_when_it_ends_is_sent_away(place):
    place.webhooks.stop()
    place.post("w", b"1")
    place.post("c", b"2")
    assert place.verdicts(2) == [(b"1", "UNAVAILABLE"), (b"2", "UNAVAILABLE")]


def test_names_are_exact(place):
    assert place.webhooks.find("default", "w") is not None
    assert place.webhooks.find("default", "W") is None
    assert place.webhooks.find("Default", "w") is None
    assert place.webhooks.find("default", "nowhere") is None
    assert (
        place.webhooks.url(source(1, "a/b ü")) == "/api/webhook/slackwater/default/a%2Fb%20%C3%BC"
    )


def test_statuses_follow_the_ingress(place):
    before = place.webhooks.statuses()[0].status
    assert before.status == "stalled"
    assert before.error == "spark.slackwater.ingress.address is not set"
    assert before.error in place.webhooks.endpoint_notice(place.state.items[user_id(10)])
    place.webhooks.listens("https://host:1", None)
    assert {s.status.status for s in place.webhooks.statuses()} == {"running"}
    assert place.webhooks.urls()[user_id(10)] == "https://host:1/api/webhook/slackwater/default/w"
    assert "https://host:1" in place.webhooks.endpoint_notice(place.state.items[user_id(10)])
