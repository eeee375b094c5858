"""The ingress without an environment behind it: settings, tokens, limits, statuses."""

import asyncio
import contextlib
import json
import socket
import threading

import pytest
from sqlalchemy import create_engine
from tests.support.server.ingress import Signer, certificate, held_port, request
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.sources.webhooks import Verdict, Webhook
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.ids import GlobalId
from slackwater.server.ingress import listener as listening
from slackwater.server.ingress import settings as ingress_settings
from slackwater.server.ingress.app import answer_of
from slackwater.server.ingress.gate import BackendGate, IngressBackend
from slackwater.server.ingress.listener import Ingress
from slackwater.server.ingress.settings import read, remembered
from slackwater.server.ingress.tokens import Tokens
from slackwater.storage.changefeed.messages import MessageTarget
from slackwater.storage.webhook import WebhookConfig

PATH = "/api/webhook/slackwater/default/w"
FEED = "/api/changefeed/slackwater/default/f"


class FakeWebhooks:
    """Sources without an environment. `verdicts` are given in turn; without any, COMMITTED."""

    def __init__(self, check=None):
        item = CatalogItem(GlobalId("u1"), ItemKind.SOURCE, "default", "w", "")
        self.webhook = Webhook(item, 1, WebhookConfig("TEXT"), check)
        self.posted = []
        self.verdicts = []
        self.held = None
        self.said = []

    def find(self, schema, name):
        return self.webhook if (schema, name) == ("default", "w") else None

    def post(self, posted):
        self.posted.append(posted)
        if self.held is not None:
            self.held.append(posted)
            return
        verdict = self.verdicts.pop(0) if self.verdicts else Verdict.COMMITTED
        threading.Thread(target=posted.done, args=(verdict, verdict.value)).start()

    def listens(self, url, error):
        self.said.append((url, error))


class FakeChangefeeds:
    """One source without an environment. `verdicts` are given in turn; without any, COMMITTED."""

    def __init__(self):
        self.posted = []
        self.verdicts = []
        self.is_silent = False

    def find(self, schema, name):
        return object() if (schema, name) == ("default", "f") else None

    def post(self, feed_request):
        self.posted.append(feed_request)
        if not self.is_silent:
            verdict = self.verdicts.pop(0) if self.verdicts else Verdict.COMMITTED
            threading.Thread(target=feed_request.done, args=(verdict, verdict.value)).start()


def backend(webhooks, confirm=lambda: None, changefeeds=None):
    return IngressBackend(
        webhooks, changefeeds or FakeChangefeeds(), confirm, lambda: b"metric 1.0\n"
    )


class Place:
    def __init__(self, webhooks, settings=None):
        self._holds = contextlib.ExitStack()
        port = self._holds.enter_context(held_port())
        self.webhooks = webhooks
        self.changefeeds = FakeChangefeeds()
        self.gate = BackendGate()
        chosen = read({"address": f"127.0.0.1:{port}", **(settings or {})})
        self.url = chosen.url
        self.settings = chosen
        self.ingress = Ingress(chosen, self.gate)
        self.ingress.start()
        self.gate.open(backend(webhooks, changefeeds=self.changefeeds))
        wait_until(lambda: (self.url, None) in webhooks.said, what="the ingress listens")

    def close(self):
        self.ingress.stop()
        self._holds.close()

    def post(self, body=b"x", headers=(), path=PATH, **options):
        return request(self.url + path, body, headers, **options)


@pytest.fixture
def place():
    places = []

    def make(webhooks=None, **settings):
        made = Place(
            webhooks or FakeWebhooks(),
            {name.replace("_", "."): value for name, value in settings.items()},
        )
        places.append(made)
        return made

    yield make
    for each in places:
        each.close()


def test_a_request_is_handed_over_whole(place):
    at = place()
    assert at.post(b"hello", {"X-Id": "7"}).status == 200
    (posted,) = at.webhooks.posted
    assert posted.body == b"hello"
    assert posted.headers["x-id"] == "7"


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.COMMITTED, 200),
        (Verdict.REFUSED, 400),
        (Verdict.MALFORMED, 400),
        (Verdict.TOO_LARGE, 413),
        (Verdict.BACKWARDS, 409),
        (Verdict.GONE, 404),
        (Verdict.FULL, 429),
        (Verdict.UNAVAILABLE, 503),
        (Verdict.FAILED, 500),
    ],
)
def test_every_verdict_has_a_status(verdict, status):
    answer = answer_of(verdict, verdict.value)
    assert answer.status == status
    assert (b"retry-after" in dict(answer.headers)) == (status in (429, 503))


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/", "POST", 404),
        ("/api/webhook/slackwater/default", "POST", 404),
        ("/api/webhook/slackwater/default/w/x", "POST", 404),
        ("/api/webhook/other/default/w", "POST", 404),
        ("/api/webhook/slackwater/default/W", "POST", 404),
        ("/api/webhook/slackwater/default/%ff", "POST", 404),
        ("/api/webhook/slackwater/default/%77", "POST", 200),
        (PATH, "GET", 405),
        (PATH, "PUT", 405),
        ("/_/healthz", "GET", 200),
        ("/_/healthz", "POST", 405),
    ],
)
def test_paths_and_methods(place, path, method, status):
    assert place().post(path=path, method=method).status == status


def test_a_source_that_was_changed_meanwhile_is_asked_once_more(place):
    at = place()
    at.webhooks.verdicts = [Verdict.GONE, Verdict.COMMITTED]
    assert at.post().status == 200
    at.webhooks.verdicts = [Verdict.GONE, Verdict.GONE, Verdict.COMMITTED]
    assert at.post().status == 404
    at.webhooks.verdicts = [Verdict.UNAVAILABLE, Verdict.COMMITTED]
    assert at.post().status == 503


def test_a_header_twice_is_401(place):
    assert place().post(headers=[("X-A", "1"), ("x-a", "2")]).status == 401


def test_a_large_body_is_413_however_it_comes(place):
    at = place(body_limit="1kB")
    assert at.post(b"x" * 1024).status == 200
    assert at.post(b"x" * 1025).status == 413
    chunks = b"400\r\n" + b"x" * 1024 + b"\r\n1\r\nx\r\n0\r\n\r\n"
    assert at.post(chunks, {"Transfer-Encoding": "chunked"}).status == 413
    assert len(at.webhooks.posted) == 1


def test_headers_without_end_are_refused(place):
    at = place()
    # The connection ends before all is sent, so the answer may not be read.
    with contextlib.suppress(ConnectionError):
        assert at.post(headers={"X-A": "a" * 200_000}).status == 400
    assert at.webhooks.posted == []


def test_more_than_the_limit_at_once_is_429(place):
    at = place(requests_limit="2")
    at.webhooks.held = []
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(at.post())) for _ in range(2)]
    for each in threads:
        each.start()
    wait_until(lambda: len(at.webhooks.held) == 2, what="two requests wait")
    third = at.post()
    assert third.status == 429
    assert third.headers["retry-after"] == "1"
    for each in at.webhooks.held:
        each.done(Verdict.COMMITTED, "")
    for each in threads:
        each.join()
    assert [answer.status for answer in answers] == [200, 200]
    at.webhooks.held = None
    assert at.post().status == 200


def test_all_bodies_together_are_limited(place):
    at = place(body_limit="1kB", memory_limit="1500")
    at.webhooks.held = []
    waiting = threading.Thread(target=at.post, args=(b"x" * 1000,))
    waiting.start()
    wait_until(lambda: at.webhooks.held, what="a request waits")
    assert at.post(b"x" * 1000).status == 429
    at.webhooks.held.pop().done(Verdict.COMMITTED, "")
    waiting.join()
    at.webhooks.held = None
    assert at.post(b"x" * 1000).status == 200


def test_a_body_that_does_not_come_ends_with_the_time(place):
    at = place(timeout="300ms")
    with socket.create_connection(("127.0.0.1", at.settings.port), timeout=PATIENCE) as sender:
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf"
        sender.sendall(head.encode())
        assert sender.recv(4096).startswith(b"HTTP/1.1 503")


def test_a_commit_that_does_not_come_ends_with_the_time(place):
    at = place(timeout="300ms")
    at.webhooks.held = []
    answer = at.post()
    assert answer.status == 503
    assert "not certain" in answer.text


def test_a_connection_that_says_nothing_is_ended(place, monkeypatch):
    monkeypatch.setattr(listening, "SILENT_S", 0.2)
    at = place()
    with socket.create_connection(("127.0.0.1", at.settings.port), timeout=PATIENCE) as sender:
        sender.sendall(b"POST / HTTP/1.1\r\nX-Slow: ")
        assert sender.recv(4096) == b""


def test_nobody_leads_is_503(place):
    at = place()
    at.gate.close()
    answer = at.post()
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert at.post(path="/_/healthz", method="GET").status == 503

    def lost():
        raise user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="1", reason="gone")

    at.gate.open(backend(at.webhooks, lost))
    assert at.post().status == 503
    assert at.webhooks.posted == []


def test_the_next_leader_gets_the_port_when_the_one_before_gives_it_up(port):
    with socket.create_server(("127.0.0.1", port)):
        webhooks, gate = FakeWebhooks(), BackendGate()
        gate.open(backend(webhooks))
        ingress = Ingress(read({"address": f"127.0.0.1:{port}"}), gate)
        ingress.start()
        wait_until(lambda: webhooks.said, what="it says that it cannot listen")
        assert "cannot listen on" in webhooks.said[0][1]
    wait_until(lambda: webhooks.said[-1][1] is None, what="it listens")
    assert request(f"http://127.0.0.1:{port}{PATH}").status == 200
    ingress.stop()


def test_tls(tmp_path, place):
    certificate_file, key_file = certificate(tmp_path)
    at = place(tls_certificate=str(certificate_file), tls_key=str(key_file))
    assert at.url.startswith("https://")
    assert at.post(trusted=str(certificate_file)).status == 200


def test_what_is_defective_is_500_and_says_nothing(place):
    at = place()
    at.webhooks.post = lambda posted: 1 / 0
    answer = at.post(b"hidden")
    assert (answer.status, answer.text) == (500, "internal error")


# Changefeeds


def test_a_message_of_a_feed_is_handed_over_whole(place):
    at = place()
    for path, feed, target in (
        (FEED, "default", MessageTarget()),
        (f"{FEED}//?feed=One%20two", "One two", MessageTarget()),
        (f"{FEED}/t%2Fu?access_token=a&feed=x", "x", MessageTarget(table="t/u")),
    ):
        assert at.post(b"message", path=path).status == 200
        feed_request = at.changefeeds.posted.pop()
        assert (feed_request.feed, feed_request.target, feed_request.body) == (
            feed,
            target,
            b"message",
        )


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/api/changefeed/slackwater/default", "POST", 404),
        ("/api/changefeed/other/default/f", "POST", 404),
        ("/api/changefeed/slackwater/default/F", "POST", 404),
        (f"{FEED}/a/b", "POST", 404),
        (f"{FEED}/%ff", "POST", 404),
        (FEED, "GET", 405),
        (FEED, "PUT", 200),
    ],
)
def test_paths_and_methods_of_feeds(place, path, method, status):
    at = place()
    assert at.post(path=path, method=method).status == status
    assert len(at.changefeeds.posted) == (status == 200)


def test_the_limits_are_those_of_feeds_too(place):
    at = place(body_limit="1kB", memory_limit="1500")
    assert at.post(b"x" * 1025, path=FEED).status == 413
    assert at.changefeeds.posted == []
    at.changefeeds.is_silent = True
    waiting = threading.Thread(target=at.post, args=(b"x" * 1000,), kwargs={"path": FEED})
    waiting.start()
    wait_until(lambda: at.changefeeds.posted, what="a message waits")
    assert at.post(b"x" * 1000, path=FEED).status == 429
    at.changefeeds.posted.pop().done(Verdict.COMMITTED, "")
    waiting.join()
    at.changefeeds.is_silent = False
    for verdict, status in ((Verdict.BACKWARDS, 409), (Verdict.UNAVAILABLE, 503)):
        at.changefeeds.verdicts = [verdict]
        assert at.post(path=FEED).status == status
    at.gate.close()
    closed = at.post(path=FEED)
    assert (closed.status, closed.headers["retry-after"]) == (503, "1")


def test_a_landing_that_does_not_come_ends_with_the_time(place):
    at = place(timeout="300ms")
    at.changefeeds.is_silent = True
    late = at.post(path=FEED)
    assert (late.status, late.headers["retry-after"]) == (503, "1")
    assert "not certain" in late.text


def test_a_scrape_that_hangs_holds_up_nobody(place):
    at = place()
    begun, answers, told = threading.Event(), threading.Event(), []

    def metrics():
        begun.set()
        assert answers.wait(PATIENCE)
        return b"metric 2.0\n"

    at.gate.open(IngressBackend(at.webhooks, at.changefeeds, lambda: None, metrics))

    def scrape():
        told.append(at.post(path="/metrics", method="GET"))

    first = threading.Thread(target=scrape)
    first.start()
    assert begun.wait(PATIENCE)
    assert at.post().status == 200
    second = at.post(path="/metrics", method="GET")
    assert (second.status, second.headers["retry-after"]) == (429, "1")
    answers.set()
    first.join(PATIENCE)
    assert [(each.status, each.text) for each in told] == [(200, "metric 2.0\n")]
    wait_until(lambda: at.post(path="/metrics", method="GET").status == 200, what="the next scrape")


def test_a_scrape_that_fails_says_nothing_of_why(place):
    at = place()

    def metrics():
        raise ValueError("a secret")

    at.gate.open(IngressBackend(at.webhooks, at.changefeeds, lambda: None, metrics))
    for _ in range(2):
        failed = at.post(path="/metrics", method="GET")
        assert (failed.status, failed.text) == (500, "internal error")


def test_tokens_of_feeds(tmp_path, place):
    signer = Signer(tmp_path)
    at = place(jwt_keys=str(signer.file))
    token = signer.token(("slackwater", "default"))
    other = signer.token(("slackwater", "other"))
    bearer, in_address = {"Authorization": f"Bearer {token}"}, f"{FEED}?access_token={token}"
    assert at.post(path=FEED, headers=bearer).status == 200
    assert at.post(path=in_address).status == 200
    assert len(at.changefeeds.posted) == 2
    # A header that is there counts, whatever the address says.
    for headers in ({"Authorization": "Basic eDp5"}, {"Authorization": f"Bearer {other}"}):
        assert at.post(path=in_address, headers=headers).status == 401
    for path in (FEED, f"{FEED}?access_token={other}", f"{FEED}?access_token="):
        refused = at.post(path=path)
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    # A path that is none is so for everybody.
    assert at.post(path=f"{FEED}/a/b").status == 404
    metrics = signer.token(("slackwater", "mz_internal"))
    for given, status in ((token, 401), (metrics, 200)):
        headers = {"Authorization": f"Bearer {given}"}
        assert at.post(path="/metrics", method="GET", headers=headers).status == status
    assert len(at.changefeeds.posted) == 2


# Tokens


def test_a_source_without_check_needs_a_token_once_there_are_keys(tmp_path, place):
    signer = Signer(tmp_path)
    at = place(jwt_keys=str(signer.file))
    assert at.post().status == 401
    token = signer.token(("slackwater", "default"))
    assert at.post(headers={"Authorization": f"Bearer {token}"}).status == 200
    other = signer.token(("slackwater", "other"))
    refused = at.post(headers={"Authorization": f"Bearer {other}"})
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"


def test_a_source_with_check_looks_after_itself(tmp_path, place):
    at = place(FakeWebhooks(check=object()), jwt_keys=str(Signer(tmp_path).file))
    assert at.post().status == 200


def test_tokens(tmp_path):
    signer, other = Signer(tmp_path), Signer(tmp_path, "RS256")
    both = tmp_path / "both.pem"
    both.write_text(signer.file.read_text() + other.file.read_text())
    revoked = tmp_path / "revoked"
    revoked.write_text("gone\n")
    tokens = Tokens(str(both), str(revoked))

    def counts(token, schema="default", scheme="Bearer"):
        return tokens.allows(f"{scheme} {token}", ("slackwater", schema))

    whole = ("slackwater", "*")
    assert counts(signer.token(("slackwater", "default")))
    assert counts(other.token(whole), "any")
    assert counts(signer.token(whole, claim="https://github.com/cockroachdb/replicator"))
    assert counts(signer.token(whole), scheme="bearer")
    assert not counts(signer.token(("other", "*")))
    assert not counts(signer.token(whole), scheme="Basic")
    assert not counts(signer.token(whole, jti=None))
    assert not counts(signer.token(whole, jti=7))
    assert not counts(signer.token(whole, jti="gone"))
    assert not counts(signer.token(whole, exp=1))
    assert not counts(signer.token(whole, nbf=2**33))
    assert not counts(signer.token())
    assert not counts(Signer(tmp_path, "ES256").token(whole))
    assert not counts(signer.token(whole)[:-4])
    assert not counts("")
    assert not tokens.allows(None, ("slackwater", "default"))
    for odd in (7, "x", {"schemas": "x"}, {"schemas": [7]}, None):
        assert not counts(signer.token(slackwater=odd))


def test_a_token_that_names_another_algorithm_does_not_count(tmp_path):
    signer = Signer(tmp_path)
    tokens = Tokens(str(signer.file), None)
    import jwt

    claims = {"jti": "1", "slackwater": {"schemas": [["slackwater", "*"]]}}
    for token in (jwt.encode(claims, None, "none"), jwt.encode(claims, "k" * 64, "HS256")):
        assert not tokens.allows(f"Bearer {token}", ("slackwater", "default"))


def test_keys_are_read_again(tmp_path):
    now = [0.0]
    first = Signer(tmp_path)
    tokens = Tokens(str(first.file), None, lambda: now[0])
    second = Signer(tmp_path)
    token = f"Bearer {second.token(('slackwater', '*'))}"
    assert not tokens.allows(token, ("slackwater", "default"))
    now[0] = 61.0
    assert tokens.allows(token, ("slackwater", "default"))
    first.file.write_text("half")
    now[0] = 122.0
    assert tokens.allows(token, ("slackwater", "default"))


# Settings


def test_without_an_address_nothing_listens():
    assert read({}) is None
    assert read({"address": "off"}) is None


def test_settings():
    found = read(
        {"address": "[::1]:8443", "url": "https://a.b/", "body.limit": "1kB", "timeout": "2s"}
    )
    assert (found.host, found.port, found.url) == ("::1", 8443, "https://a.b")
    assert (found.body_bytes, found.timeout_ms, found.requests) == (1024, 2000, 500)
    assert read({"address": "localhost:80"}).url == "http://localhost:80"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"adress": "a:1"}, "spark.slackwater.ingress.adress"),
        ({"address": "8080"}, "spark.slackwater.ingress.address"),
        ({"address": "a:99999"}, "spark.slackwater.ingress.address"),
        ({"address": "a:1", "tls.key": "k"}, "spark.slackwater.ingress.tls.certificate"),
        ({"address": "a:1", "body.limit": "x"}, "spark.slackwater.ingress.body.limit"),
        ({"address": "a:1", "body.limit": "0"}, "spark.slackwater.ingress.body.limit"),
        ({"address": "a:1", "requests.limit": "0"}, "spark.slackwater.ingress.requests.limit"),
        ({"address": "a:1", "timeout": "0s"}, "spark.slackwater.ingress.timeout"),
        ({"address": "a:1", "timeout": "soon"}, "spark.slackwater.ingress.timeout"),
    ],
)
def test_settings_that_are_wrong_are_refused(settings, named):
    with pytest.raises(SlackwaterError) as caught:
        read(settings)
    assert named in caught.value.message


@pytest.mark.parametrize("name", ["tls.certificate", "jwt.keys", "jwt.revoked"])
def test_files_that_are_not_there_are_refused(tmp_path, name):
    missing = str(tmp_path / "missing")
    signer = Signer(tmp_path)
    given = {"jwt.keys": str(signer.file), name: missing}
    if name.startswith("tls"):
        given["tls.key"] = missing
    with pytest.raises(SlackwaterError) as caught:
        Ingress(read({"address": "127.0.0.1:1", **given}), BackendGate())
    assert f"spark.slackwater.ingress.{name}" in caught.value.message


def test_the_environment_remembers_the_settings():
    engine = create_engine("sqlite://")
    ingress_settings.ingress.create(engine)
    with engine.begin() as conn:
        assert remembered(conn, {}) == {}
        assert remembered(conn, {"address": "a:1"}) == {"address": "a:1"}
        assert remembered(conn, {}) == {"address": "a:1"}
        assert remembered(conn, {"address": "off"}) == {"address": "off"}
        assert json.loads(json.dumps(remembered(conn, {}))) == {"address": "off"}


def test_nothing_but_http_is_answered():
    from slackwater.server.ingress.app import IngressApp

    app = IngressApp(read({"address": "a:1"}), BackendGate(), None)
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(app({"type": "websocket"}, None, send))
    assert sent == []
