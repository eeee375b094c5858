"""Tables that are added to a source of a topic, while its leader is killed again and again.

At each time from its first contents on, each table has exactly the messages before the frontier of
that time, whenever it was made, and whatever died while it was copied.
"""

from __future__ import annotations

import pytest
from tests.chaos.test_kafka_source import Sender, reached, read, upserts
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.kafka.broker import running_broker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

LONG = "WITH (RETAIN HISTORY FOR '1 hour')"


@pytest.fixture
def broker():
    with running_broker() as running:
        yield running


@pytest.fixture
def application(tmp_path):
    with Application(tmp_path / "environment", master="local[2]") as running:
        yield running


def create(application, name, envelope):
    application.sql(
        f"CREATE TABLE {name} FROM SOURCE s KEY FORMAT TEXT VALUE FORMAT TEXT "
        f"INCLUDE KEY, OFFSET ENVELOPE {envelope} {LONG}"
    )


def check_at(application, time, appended, upserted):
    """Compares what tables have at a time with the messages before the frontier then."""
    at = f"AS OF {time}"
    ((frontier,),) = read(application, f"SELECT offset FROM s_progress WHERE partition = 0 {at}")
    for name in appended:
        rows = read(application, f"SELECT offset, text FROM {name} {at}")
        assert sorted(rows) == [[n, None if n % 31 == 30 else str(n)] for n in range(frontier)]
    for name in upserted:
        rows = read(application, f"SELECT key, CAST(text AS INT) FROM {name} {at}")
        assert dict(map(tuple, rows)) == upserts(frontier)
        assert len(rows) == len(upserts(frontier))


def present(application):
    """A time at which all is complete."""
    query = "SELECT min(write_frontier) FROM mz_internal.mz_frontiers f JOIN mz_catalog.mz_tables t"
    found = read(application, f"{query} ON f.object_id = t.id WHERE t.source_id IS NOT NULL")
    return int(found[0][0]) - 1


@pytest.mark.nightly
def test_leaders_that_are_killed_while_tables_are_copied(application, broker):
    topic = broker.new_topic()
    application.sql("USE slackwater.default")
    address = f"BROKER '{broker.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    application.sql(f"CREATE CONNECTION k TO KAFKA ({address})")
    application.sql(
        f"CREATE SOURCE s FROM KAFKA CONNECTION k (TOPIC '{topic}') "
        "WITH (TIMESTAMP INTERVAL '50 ms', RETAIN HISTORY FOR '1 hour')"
    )
    appended, upserted, seen = ["a0"], [], []
    create(application, "a0", "NONE")
    sender = Sender(broker, topic)
    sender.start()
    for turn in range(1, 4):
        before = reached(application, "s")
        wait_until(
            lambda before=before: reached(application, "s") > before + 200,
            what="the source goes on",
        )
        create(application, f"a{turn}", "NONE")
        create(application, f"u{turn}", "UPSERT")
        kill(only_coordinator(application.location))
        appended.append(f"a{turn}")
        upserted.append(f"u{turn}")
        for name in (*appended, *upserted):
            assert read(application, f"SELECT count(*) > 0 FROM {name}") == [[True]]
        seen.append((present(application), list(appended), list(upserted)))
    sender.stop()
    wait_until(lambda: reached(application, "s") == sender.sent, what="all is there")
    seen.append((present(application), appended, upserted))
    for time, first, second in seen:
        check_at(application, time, first, second)
