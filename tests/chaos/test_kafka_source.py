"""A source that reads a topic, while its leader and its broker are killed.

At each time the source has exactly the messages before the frontier of that time: each once, none
missing, none that came later.
"""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from tests.support.applications.application import Application, SqlError, kill, only_coordinator
from tests.support.kafka.broker import PASSWORD, USER, running_broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

KEYS = 7


@pytest.fixture(scope="module")
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture
def application(tmp_path):
    with Application(tmp_path / "environment", master="local[2]") as running:
        yield running


def create(application, broker, topic):
    application.sql("USE slackwater.default")
    address = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    application.sql(f"CREATE CONNECTION k TO KAFKA ({address})")
    for name, envelope in (("appended", "NONE"), ("upserted", "UPSERT")):
        application.sql(
            f"CREATE SOURCE {name} FROM KAFKA CONNECTION k (TOPIC '{topic}') "
            f"KEY FORMAT TEXT VALUE FORMAT TEXT INCLUDE KEY, OFFSET ENVELOPE {envelope} "
            "WITH (TIMESTAMP INTERVAL '50 ms', RETAIN HISTORY FOR '1 hour')"
        )
    application.sql(
        "CREATE MATERIALIZED VIEW totals WITH (RETAIN HISTORY FOR '1 hour') AS "
        "SELECT count(*) AS keys, sum(CAST(text AS INT)) AS total FROM upserted"
    )


class Sender(threading.Thread):
    """Sends numbers, one after the other, until it is stopped; each is acknowledged."""

    def __init__(self, broker, topic):
        super().__init__(daemon=True)
        self._producer = broker.producer(enable_idempotence="true", message_timeout_ms="600000")
        self._topic = topic
        self._stopped = threading.Event()
        self.sent = 0

    def run(self):
        while not self._stopped.wait(0.02):
            for _ in range(10):
                number = self.sent
                value = None if number % 31 == 30 else b"%d" % number
                self._producer.produce(self._topic, key=b"%d" % (number % KEYS), value=value)
                self.sent += 1
            self._producer.poll(0)

    def stop(self):
        self._stopped.set()
        self.join()
        assert self._producer.flush(300) == 0


def value_of(number):
    return None if number % 31 == 30 else number


def upserts(frontier):
    """What the keys have after the first messages."""
    last = {number % KEYS: value_of(number) for number in range(frontier)}
    return {str(key): value for key, value in last.items() if value is not None}


def read(application, query):
    """The rows of the query, however often a leader or a broker is killed meanwhile."""

    def rows():
        with suppress(SqlError):
            return [application.rows(query)]
        return None

    return wait_until(rows, what=f"{query} can be answered")[0]


def check_at(application, time):
    """Compares what is there at a time with the messages before the frontier then."""
    at = f"AS OF {time}"
    progress = read(application, f"SELECT offset FROM appended_progress WHERE partition = 0 {at}")
    frontier = progress[0][0] if progress else 0
    offsets = read(application, f"SELECT offset, text FROM appended {at}")
    expected = [[n, None if n % 31 == 30 else str(n)] for n in range(frontier)]
    assert sorted(offsets) == expected
    progress = read(application, f"SELECT offset FROM upserted_progress WHERE partition = 0 {at}")
    frontier = progress[0][0] if progress else 0
    rows = read(application, f"SELECT key, CAST(text AS INT) FROM upserted {at}")
    expected = upserts(frontier)
    assert dict(map(tuple, rows)) == expected
    assert len(rows) == len(expected)
    ((keys, total),) = read(application, f"SELECT * FROM totals {at}")
    assert (keys, total or 0) == (len(expected), sum(expected.values()))


def reached(application, name):
    found = read(application, f"SELECT max(offset) FROM {name}_progress WHERE partition = 0")
    return found[0][0] or 0


def readable(application):
    """The last time at which the view, and so what it reads, is complete."""
    query = (
        "SELECT f.write_frontier FROM mz_internal.mz_frontiers f JOIN mz_catalog.mz_objects o "
        "ON f.object_id = o.id WHERE o.name = 'totals'"
    )
    return int(read(application, query)[0][0]) - 1


def test_leaders_and_brokers_that_are_killed(application, broker):
    topic = broker.new_topic()
    create(application, broker, topic)
    sender, seen = Sender(broker, topic), []
    sender.start()
    for victim in ("leader", "broker", "leader"):
        before = reached(application, "upserted")
        wait_until(
            lambda before=before: reached(application, "upserted") > before + 50,
            what="the source goes on",
        )
        seen.append(readable(application))
        if victim == "leader":
            kill(only_coordinator(application.location))
        else:
            broker.restart()
    sender.stop()
    for name in ("appended", "upserted"):
        wait_until(lambda name=name: reached(application, name) == sender.sent, what="all is there")
    seen.append(readable(application))
    for time in seen:
        check_at(application, time)


def test_a_password_that_changes_stops_and_continues_a_source(application, broker):
    topic = broker.new_topic()
    application.sql("USE slackwater.default")
    application.sql(f"CREATE SECRET p AS '{PASSWORD}'")
    application.sql("CREATE SECRET wrong AS 'something else'")
    authority = broker.certificates.authority
    application.sql(
        f"CREATE CONNECTION secure TO KAFKA (BROKER '{broker.secure_address}', "
        f"SASL MECHANISMS 'SCRAM-SHA-256', SASL USERNAME '{USER}', SASL PASSWORD SECRET p, "
        f"SSL CERTIFICATE AUTHORITY '{authority}')"
    )
    application.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION secure (TOPIC '{topic}') FORMAT TEXT "
        "WITH (TIMESTAMP INTERVAL '50 ms')"
    )
    send(broker, topic, b"one")
    wait_until(lambda: application.rows("SELECT * FROM s") == [["one"]], what="one is there")
    application.sql(
        "ALTER CONNECTION secure SET (SASL PASSWORD SECRET wrong) WITH (VALIDATE = false)"
    )
    send(broker, topic, b"two")
    status = "SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'"
    (told,) = wait_until(
        lambda: [row[0] for row in application.rows(status) if row[0]], what="the source stops"
    )
    assert "SLACKWATER_SOURCE_UNREACHABLE" in told
    assert "invalid credentials" in told
    assert "something else" not in told
    application.sql("ALTER CONNECTION secure SET (SASL PASSWORD SECRET p)")
    wait_until(
        lambda: sorted(application.rows("SELECT * FROM s")) == [["one"], ["two"]],
        what="two is there",
    )


@pytest.mark.nightly
def test_reads_wait_until_what_was_there_at_first_is_read(application, broker):
    """The broker is gone right after the source looked at its topic: nobody sees it empty."""
    topic = broker.new_topic()
    send(broker, topic, b"one")
    application.sql("USE slackwater.default")
    options = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    application.sql(f"CREATE CONNECTION k TO KAFKA ({options})")
    application.sql("CREATE CLUSTER c (SIZE '25cc', REPLICATION FACTOR 0)")
    create = "CREATE SOURCE s IN CLUSTER c FROM KAFKA CONNECTION k (TOPIC '{}') FORMAT TEXT"
    application.sql(create.format(topic))
    application.sql("CREATE VIEW v AS SELECT count(*) AS n FROM s")
    application.sql("SET slackwater.statement_timeout = '2s'")
    for query in ("SELECT * FROM v", "SELECT * FROM s", "SUBSCRIBE TO s UP TO 9999999999999"):
        with pytest.raises(SqlError, match="SLACKWATER_SNAPSHOT_TIMEOUT") as caught:
            application.rows(query)
        assert "The cluster c, which reads it, has no replicas." in caught.value.message
    broker.stop()
    application.sql("ALTER CLUSTER c SET (REPLICATION FACTOR 1)")
    status = "SELECT status FROM mz_internal.mz_source_statuses WHERE name = 's'"
    wait_until(lambda: application.rows(status) == [["stalled"]], what="the source stops")
    with pytest.raises(SqlError, match=r"It has stopped: .*SLACKWATER_SOURCE_UNREACHABLE"):
        application.rows("SELECT * FROM v")
    application.sql("SET slackwater.statement_timeout = '10min'")
    waiting = application.start("SELECT * FROM v")
    broker.start()
    assert waiting.result().rows == [[1]]
    assert application.rows("SELECT * FROM s") == [["one"]]
    kill(only_coordinator(application.location))
    application.sql("ALTER CLUSTER c SET (REPLICATION FACTOR 0)")
    assert application.rows("SELECT * FROM s") == [["one"]]


def send(broker, topic, value):
    producer = broker.producer()
    producer.produce(topic, value=value)
    assert producer.flush(60) == 0
