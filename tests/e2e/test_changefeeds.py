"""Changefeeds over HTTP, in applications of the whole product, whose leaders are killed."""

import contextlib
import http.client
import json
import re
import subprocess
import threading
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.applications.fixtures import Workplace
from tests.support.applications.odd_columns import NAMES, declared, quoted, row
from tests.support.applications.served import Served, conf, served
from tests.support.applications.stopped import stopped
from tests.support.persist.postgres import running_server
from tests.support.server.ingress import Signer, held_port, request
from tests.support.storage.changefeeds import Faults, Upstream, columns, feeds_of
from tests.support.waiting import PATIENCE, wait_until

from slackwater.storage.changefeed.encoding import offset, place_of

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changefeeds")
    with held_port() as port:
        address = {"spark.slackwater.ingress.address": f"127.0.0.1:{port}"}
        with Application(folder / "environment", conf=address, master="local[2]") as running:
            yield running


@pytest.fixture
def place(application, request):
    schema = request.node.originalname[:40]
    made = Workplace(application, schema, None)
    yield made
    application.sql(f"DROP SCHEMA slackwater.{schema} CASCADE")


def address(application):
    return application.python(
        "result = spark.sparkContext.getConf().get('spark.slackwater.ingress.address')"
    )


def url(place, name="bank"):
    at = f"http://{address(place.application)}/api/changefeed/slackwater/{place.schema}/{name}"
    return at


def test_the_example_of_the_documentation(application):
    """The statements and the calls of docs/user/tasks/follow_a_database.md, as they stand there."""
    page = (Path(__file__).parents[2] / "docs/user/tasks/follow_a_database.md").read_text()
    blocks = re.findall(r"```(sql|sh)\n(.*?)```", page, re.DOTALL)
    application.sql("USE slackwater.default")
    seen = []
    for kind, text in blocks:
        if kind == "sql":
            for statement in filter(None, map(str.strip, text.split(";"))):
                if statement.startswith("SELECT"):
                    wait_until(
                        lambda: application.value("SELECT count(*) FROM transfers") == 1,
                        what="what was resolved is bound",
                    )
                seen = application.rows(statement)
        else:
            ran = subprocess.run(
                [
                    "bash",
                    "-euo",
                    "pipefail",
                    "-c",
                    text.replace("127.0.0.1:8090", address(application)),
                ],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert ran.returncode == 0, ran.stderr
    more = '{"note":"thanks"}'
    assert [[number, Decimal(a), Decimal(b), m, Decimal(t)] for number, a, b, m, t in seen] == [
        [1, Decimal("65.50"), Decimal("4.50"), more, Decimal(100)],
        [2, Decimal("34.50"), Decimal("4.50"), more, Decimal(100)],
    ]
    application.sql("DROP SOURCE slackwater.default.bank CASCADE")


def test_statuses_and_metrics(place):
    place.sql(f"CREATE SOURCE bank FROM CHANGEFEED (FORMAT COCKROACH) FOR TABLES (a {columns()})")
    at = url(place)
    row = '{"after": {"id": 1}, "key": [1], "updated": "5.0"}'
    of_table = row.replace('"key"', '"topic": "a", "key"')
    of_query = row.replace('"key": [1], ', "")
    for path, body, status in (
        ("", "", 200),
        ("", f'{{"payload": [{of_table}]}}', 200),
        ("", f'{{"payload": [{row}]}}', 400),
        ("", "{", 400),
        ("/a", f'{{"payload": [{of_query}]}}', 200),
        ("/b", '{"payload": []}', 400),
        ("/a/b", "{}", 404),
        ("/2026-01-31/1-2-3-4-5-a-6.ndjson", row, 200),
        ("/2026-01-31/202699310000000000000000000000000.RESOLVED", "", 400),
        ("/2026-01-31/202601310000000000000000000000000.RESOLVED?feed=files", "", 200),
        ("?feed=one", '{"resolved": "7.0"}', 200),
        ("?feed=ONE", '{"resolved": "6.0"}', 409),
        ("?feed=two", '{"resolved": "6.0"}', 200),
        (f"?feed={'x' * 300}", '{"resolved": "6.0"}', 400),
    ):
        assert request(at + path, body.encode()).status == status, (path, body)
    assert request(at, b"", method="GET").status == 405
    assert request(at, b"", method="PUT").status == 200
    assert request(at.replace("/bank", "/nothing")).status == 404
    metrics = request(f"http://{address(place.application)}/metrics", method="GET")
    assert metrics.headers["content-type"].startswith("text/plain; version=")
    source = place.application.value(
        "SELECT id FROM slackwater.mz_internal.mz_object_fully_qualified_names"
        f" WHERE name = 'bank' AND schema_name = '{place.schema}'"
    )
    schema = f'object_id="{source}"'
    wanted = [
        f"slackwater_checkpoint_advance_duration_seconds_count{{{schema}}}",
        f"slackwater_checkpoint_refresh_duration_seconds_count{{{schema}}}",
        f"slackwater_checkpoint_proposed_going_backwards_errors_total{{{schema}}} 1",
        f"slackwater_changefeed_landed_rows_total{{{schema}}} 3",
    ]
    for each in wanted:
        assert each in metrics.text
    wait_until(
        lambda: (
            "slackwater_checkpoint_committed_age_seconds{" + schema
            in request(f"http://{address(place.application)}/metrics", method="GET").text
        ),
        what="something is bound",
    )


def test_tokens(tmp_path, port):
    signer = Signer(tmp_path)
    settings = {
        "spark.slackwater.ingress.address": f"127.0.0.1:{port}",
        "spark.slackwater.ingress.jwt.keys": str(signer.file),
    }
    with Application(tmp_path / "environment", conf=settings) as application:
        application.sql(
            "CREATE SOURCE slackwater.default.bank FROM CHANGEFEED (FORMAT COCKROACH)"
            f" FOR TABLES (a {columns()})"
        )
        at = f"http://127.0.0.1:{port}/api/changefeed/slackwater/default/bank"
        good = signer.token(["slackwater", "default"])
        other = signer.token(["slackwater", "other"])
        assert request(at).status == 401
        assert request(at, headers={"Authorization": f"Bearer {other}"}).status == 401
        assert request(at, headers={"Authorization": f"Bearer {good}"}).status == 200
        assert request(f"{at}?access_token={good}&feed=x").status == 200
        metrics = f"http://127.0.0.1:{port}/metrics"
        assert request(metrics, method="GET").status == 401
        every = signer.token(["slackwater", "*"])
        assert (
            request(metrics, headers={"Authorization": f"Bearer {every}"}, method="GET").status
            == 200
        )
    told = "".join(path.read_text() for path in (tmp_path / "environment" / "log").iterdir())
    for token in (good, other, every):
        assert token not in told + application.log.read_text()


class Sending:
    """Lets an upstream go on and sends what its feeds say, each message until it is answered.

    It sends `rounds` rounds, and more when they are over and it is asked to go on.
    """

    def __init__(self, at, upstream, feeds, rounds):
        self._at = at
        self._upstream = upstream
        self._feeds = feeds
        self._random = Random("rounds")
        self.statuses = set()
        self.rounds = 0
        self._wanted = rounds
        self._is_ending = False
        self._asked = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self._has_another():
            for _ in range(self._random.randint(0, 4)):
                self._upstream.transact()
            for feed in self._random.sample(self._feeds, len(self._feeds)):
                self._send(feed.round(self._upstream))
            self.rounds += 1
        for feed in self._feeds:
            self._send(feed.round(self._upstream, is_last=True))

    def _has_another(self):
        with self._asked:
            self._asked.wait_for(lambda: self.rounds < self._wanted or self._is_ending)
            return self.rounds < self._wanted

    def _send(self, messages):
        for message in messages:
            status = None
            while status != 200:
                status = self._post(message)
                self.statuses.add(status)

    def _post(self, message):
        try:
            return request(f"{self._at}?feed={message.feed}", message.body, timeout_s=15).status
        except (OSError, http.client.HTTPException):
            return None

    def asks(self, rounds=5):
        """Lets it go on for so many rounds at least; gives how many there are then."""
        with self._asked:
            enough = self.rounds + rounds
            self._wanted = max(self._wanted, enough)
            self._asked.notify()
        return enough

    def goes_on(self):
        enough = self.asks()
        wait_until(lambda: self.rounds >= enough, what="feeds go on")

    def end(self):
        with self._asked:
            self._is_ending = True
            self._asked.notify()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert self.statuses <= {200, 503, None}


@dataclass(frozen=True, slots=True)
class Bank:
    """Two applications, one of which leads, and feeds that send to whichever does."""

    leader: Served
    other: Served
    user: Application
    sending: Sending
    upstream: Upstream

    def check(self):
        """When the feeds have ended, all is applied, and was whole at every time."""
        self.sending.end()
        wait_until(
            lambda: frontier(self.user) == offset(self.upstream.now.next),
            what="everything is bound",
        )
        check_over_time(self.user, self.upstream)


@contextlib.contextmanager
def bank(folder, seed, lease="30s", metastore=None):
    upstream = Upstream(seed, tables=3)
    feeds = feeds_of(upstream, 2, Faults(), seed)
    declared = ", ".join(f"{table} {columns()}" for table in upstream.tables)
    union = " UNION ALL ".join(f"SELECT balance FROM {table}" for table in upstream.tables)
    chosen = {} if metastore is None else {"spark.slackwater.metastore": metastore}
    with (
        held_port() as port,
        served(folder, "first", conf(port, lease) | chosen) as first,
        served(folder, "second", conf(port, lease) | chosen) as second,
    ):
        wait_until(
            lambda: "leading" in first.log.read_text() or "leading" in second.log.read_text(),
            what="one of them leads",
        )
        leader, other = (first, second) if "leading" in first.log.read_text() else (second, first)
        other.says("standing by")
        with Application(first.location, metastore, folder=folder / "user") as user:
            user.sql("USE slackwater.default")
            user.sql(
                "CREATE SOURCE bank FROM CHANGEFEED (FORMAT COCKROACH, FEEDS ('feed-0', 'feed-1'))"
                f" FOR TABLES ({declared})"
                " WITH (TIMESTAMP INTERVAL '100ms', RETAIN HISTORY FOR '1 hour')"
            )
            user.sql(
                "CREATE MATERIALIZED VIEW total WITH (RETAIN HISTORY FOR '1 hour') AS"
                f" SELECT sum(balance) AS total, count(*) AS n FROM ({union})"
            )
            at = f"http://127.0.0.1:{port}/api/changefeed/slackwater/default/bank"
            yield Bank(leader, other, user, Sending(at, upstream, feeds, rounds=30), upstream)


def test_every_transaction_once_and_whole_while_leaders_are_killed(tmp_path):
    with bank(tmp_path, "killed") as running:
        running.sending.goes_on()
        running.leader.kill()
        # Whichever application sees it first leads, also one of a user.
        running.sending.goes_on()
        for _ in range(2):
            kill(only_coordinator(running.leader.location))
            running.sending.goes_on()
        running.check()
        assert running.other.end() == 0


@pytest.mark.postgres
@pytest.mark.nightly
def test_every_transaction_once_and_whole_while_the_metastore_and_a_leader_hang(tmp_path):
    with running_server() as server, bank(tmp_path, "hung", "2s", server.new_database()) as running:
        sending = running.sending
        sending.goes_on()
        server.restart()
        sending.goes_on()
        sending.statuses.discard(503)
        with stopped(server.processes):
            sending.asks()
            wait_until(lambda: 503 in sending.statuses, what="it counts as away")
        sending.goes_on()
        # On a busy machine another one may lead by now: the lease is short.
        with stopped([only_coordinator(running.leader.location)]):
            # Whichever application sees it first leads, also one of a user.
            sending.goes_on()
        # It goes on when another one leads, and can change nothing.
        sending.goes_on()
        running.check()


def frontier(user):
    return place_of(Decimal(user.value("SELECT frontier FROM bank_progress")))


MOST_CHECKED = 20
"""A slow machine binds at hundreds of times: some of them are looked at, all along the history."""


def check_over_time(user, upstream):
    """At times at which something was bound, tables and view are those of the upstream."""
    # FETCH gives what is ready, and the view may not have followed its inputs yet.
    user.rows("SELECT total, n FROM total")
    both = "SELECT frontier, n FROM bank_progress, (SELECT count(*) AS n FROM total)"
    user.sql(f"DECLARE c CURSOR FOR SUBSCRIBE TO ({both}) AS OF AT LEAST 0")
    changes = user.rows("FETCH ALL c WITH (timeout = '5 minutes')")
    user.sql("CLOSE c")
    times = sorted({change[0] for change in changes})
    assert len(times) > 5
    union = " UNION ALL ".join(
        f"SELECT '{table}' AS named, id, owner, balance FROM {table}" for table in upstream.tables
    )
    for time in times[:: -(-len(times) // MOST_CHECKED)]:
        ((bound, total, count),) = user.rows(
            f"SELECT frontier, total, n FROM bank_progress, total AS OF {time}"
        )
        truth = upstream.contents(place_of(Decimal(bound)))
        found = user.rows(f"SELECT * FROM ({union}) ORDER BY named, id AS OF {time}")
        expected = [
            [table, *truth[table][key].values()]
            for table in sorted(upstream.tables)
            for key in sorted(truth[table])
        ]
        assert found == expected, time
        held = sum(row["balance"] for rows in truth.values() for row in rows.values())
        assert held in (0, upstream.total)
        assert (total or 0, count) == (held, sum(map(len, truth.values())))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "after": st.fixed_dictionaries({}, optional={"id": JSON, "owner": JSON, "x": JSON}) | JSON,
        "before": JSON,
        "key": st.lists(JSON, max_size=2) | JSON,
        "topic": st.sampled_from(["a", "db.a", "b"]) | st.text(),
        "updated": st.sampled_from(["5.0", "7.0000000001", "1e3"]) | JSON,
        "more": st.just(1),
    },
)
BODIES = st.one_of(
    st.binary(max_size=60),
    JSON.map(json.dumps).map(str.encode),
    st.fixed_dictionaries(
        {},
        optional={
            "payload": st.lists(CHANGES, max_size=3),
            "resolved": st.sampled_from(["3.0", "8.0"]) | JSON,
            "length": JSON,
        },
    )
    .map(json.dumps)
    .map(str.encode),
)
BEHIND = st.sampled_from(["", "/", "/a", "/b", "/2026-01-31/1-2-3-4-5-a-6.ndjson"]) | st.text(
    max_size=20
).map(lambda text: "/" + quote(text))


@settings(max_examples=300, deadline=None, database=None)
@given(behind=BEHIND, feed=st.sampled_from(["", "x", "y"]) | st.text(max_size=9), body=BODIES)
@pytest.mark.nightly
def test_no_message_finds_a_defect(fuzzed, behind, feed, body):
    status = request(f"{fuzzed}{behind}?feed={quote(feed)}", body).status
    assert status in (200, 400, 404, 409), (behind, feed, body)


@pytest.fixture(scope="module")
def fuzzed(application):
    """The address of a source that takes anything; at the end it still goes on."""
    application.sql(
        "CREATE SOURCE slackwater.default.fuzzed FROM CHANGEFEED (FORMAT COCKROACH)"
        f" FOR TABLES (a {columns()})"
    )
    at = f"http://{address(application)}/api/changefeed/slackwater/default/fuzzed"
    yield at
    feeds = application.rows(
        "SELECT partition FROM slackwater.mz_internal.mz_changefeed_partitions"
    )
    for feed in {"default", *(feed for (feed,) in feeds)}:
        body = b'{"resolved": "9000000000000000000.0"}'
        assert request(f"{at}?feed={quote(feed)}", body).status == 200
    wait_until(
        lambda: (
            str(application.value("SELECT frontier FROM slackwater.default.fuzzed_progress"))
            == "9000000000000000000.0000000001"
        ),
        what="all is bound",
    )
    log = Path(application.location) / "log" / "coordinator.jsonl"
    assert '"level": "error"' not in log.read_text()
    application.sql("DROP SOURCE slackwater.default.fuzzed")


def test_changefeeds_have_the_columns(place):
    names = list(NAMES)
    place.sql(
        "CREATE SOURCE bank FROM CHANGEFEED (FORMAT COCKROACH)"
        f" FOR TABLES (a ({declared(names)}) KEY ({quoted(names[0])}, {quoted(names[1])})"
        f" EXTRAS `__Time'`)"
    )
    at = url(place)
    after = dict(zip(names, row(1), strict=True))
    change = {"topic": "a", "key": row(1)[:2], "after": {**after, "more": 1}, "updated": "5.0"}
    assert request(at, json.dumps({"payload": [change]}).encode()).status == 200
    assert request(at, b'{"resolved": "6.0"}').status == 200
    listed = ", ".join(map(quoted, [*names, "__Time'"]))
    expected = [[*row(1), '{"more":1}']]
    wait_until(lambda: place.rows(f"SELECT {listed} FROM a") == expected, what="the row is bound")
