"""A source that reads tables of PostgreSQL, while its leader, the server and what sends its log
are killed.

At each time the tables have exactly what one transaction of the upstream has left: each transaction
once and whole, in the table with a key and in the one without.
"""

from __future__ import annotations

import threading
from collections import Counter

import psycopg
import pytest
from tests.support.applications.application import Application, SqlError, kill, only_coordinator
from tests.support.storage.upstreams import Upstream, running_upstream_server
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

ACCOUNTS = 5
FIRST = 100


@pytest.fixture
def upstream():
    with running_upstream_server() as server:
        made = Upstream(server)
        made.run(
            "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL, note TEXT)",
            "ALTER TABLE accounts ALTER note SET STORAGE EXTERNAL",
            f"INSERT INTO accounts SELECT n, {FIRST}, repeat('x', 4000)"
            f" FROM generate_series(0, {ACCOUNTS - 1}) n",
            "CREATE TABLE journal (n INT)",
            "ALTER TABLE journal REPLICA IDENTITY FULL",
            "CREATE PUBLICATION p FOR ALL TABLES",
        )
        yield made


@pytest.fixture
def application(tmp_path):
    with Application(tmp_path / "environment", master="local[2]") as running:
        yield running


class Writer(threading.Thread):
    """Moves money from one account to another, transaction after transaction, until it is stopped.

    The journal has the numbers of the last transactions; a server that is killed is waited for.
    """

    def __init__(self, upstream):
        super().__init__(daemon=True)
        self._upstream = upstream
        self._stopped = threading.Event()
        self.done = 0

    def run(self):
        connection = self._upstream.connected()
        while not self._stopped.wait(0.01):
            try:
                if connection is None:
                    connection = self._upstream.connected()
                    last = connection.execute("SELECT max(n) FROM journal").fetchone()[0]
                    self.done = 0 if last is None else last + 1
                with connection.transaction():
                    for statement in written(self.done):
                        connection.execute(statement)
                self.done += 1
            except psycopg.Error:
                connection = None
        if connection is not None:
            connection.close()

    def stop(self):
        self._stopped.set()
        self.join(PATIENCE)
        assert not self.is_alive()


def written(number):
    giver, taker = number % ACCOUNTS, (number + 2) % ACCOUNTS
    yield f"UPDATE accounts SET balance = balance - 1 WHERE id = {giver}"
    yield f"INSERT INTO journal VALUES ({number})"
    yield f"UPDATE accounts SET balance = balance + 1 WHERE id = {taker}"
    yield f"DELETE FROM journal WHERE n = {number - 50}"


def expected(number):
    """The balances, and the journal, after so many transactions."""
    balances = Counter(dict.fromkeys(range(ACCOUNTS), FIRST))
    for each in range(number):
        balances[each % ACCOUNTS] -= 1
        balances[(each + 2) % ACCOUNTS] += 1
    journal = range(max(0, number - 50), number)
    return sorted(balances.items()), list(journal)


def read(application, query):
    """The rows of the query, however often a leader or a server is killed meanwhile."""

    refused = []

    def rows():
        try:
            return [application.rows(query)]
        except SqlError as error:
            refused.append(error.message)
            return None

    try:
        return wait_until(rows)[0]
    except AssertionError:
        raise AssertionError(f"{query}: {refused[-1]}") from None


def reached(application):
    return (read(application, "SELECT max(n) FROM journal")[0][0] or -1) + 1


def readable(application):
    """The last time at which the view, and so what it reads, is complete."""
    query = (
        "SELECT f.write_frontier FROM mz_internal.mz_frontiers f JOIN mz_catalog.mz_objects o "
        "ON f.object_id = o.id WHERE o.name = 'totals'"
    )
    return int(read(application, query)[0][0]) - 1


def check_at(application, time):
    """Compares what is there at a time with what some transaction has left."""
    at = f"AS OF {time}"
    journal = sorted(n for (n,) in read(application, f"SELECT n FROM journal {at}"))
    number = journal[-1] + 1 if journal else 0
    accounts = read(application, f"SELECT id, balance, length(note) FROM accounts {at}")
    balances, entries = expected(number)
    assert journal == entries
    assert sorted((i, balance) for i, balance, _ in accounts) == balances
    assert {size for *_, size in accounts} == {4000}
    assert read(application, f"SELECT * FROM totals {at}") == [[ACCOUNTS, ACCOUNTS * FIRST]]


def test_leaders_and_servers_that_are_killed(application, upstream):
    application.sql("USE slackwater.default")
    application.sql(f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})")
    writer, seen = Writer(upstream), []
    writer.start()
    application.sql(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES "
        "WITH (TIMESTAMP INTERVAL '50 ms', RETAIN HISTORY FOR '1 hour')"
    )
    application.sql(
        "CREATE MATERIALIZED VIEW totals WITH (RETAIN HISTORY FOR '1 hour') AS "
        "SELECT count(*) AS n, sum(balance) AS total FROM accounts"
    )
    later = []
    for victim in ("sender", "leader", "server", "leader"):
        before = reached(application)
        wait_until(
            lambda before=before: reached(application) > before + 20, what="the source goes on"
        )
        seen.append(readable(application))
        # A table whose copy has begun, or not yet, or is there already.
        later.append(f"later_{len(later)}")
        application.sql(
            f"CREATE TABLE {later[-1]} FROM SOURCE s (REFERENCE accounts)"
            " WITH (RETAIN HISTORY FOR '1 hour')"
        )
        match victim:
            case "leader":
                kill(only_coordinator(application.location))
            case "sender":
                with upstream.connected() as connection:
                    query = "SELECT active_pid FROM pg_replication_slots WHERE active"
                    for (pid,) in connection.execute(query).fetchall():
                        kill(pid)
            case "server":
                for pid in upstream.server.processes:
                    kill(pid)
                upstream.server.process.wait(PATIENCE)
                upstream.server.start()
    writer.stop()
    wait_until(lambda: reached(application) == writer.done, what="all is there")
    for table in later:
        ((count, there),) = read(application, f"SELECT count(*), max(mz_now()) FROM {table}")
        assert count == ACCOUNTS
    # Before that time the last table was not there.
    wait_until(lambda: readable(application) >= there, what="the view is as far as the tables")
    seen.append(readable(application))
    for time in seen:
        check_at(application, time)
    at = f"AS OF {seen[-1]}"
    accounts = sorted(read(application, f"SELECT * FROM accounts {at}"))
    for table in later:
        assert sorted(read(application, f"SELECT * FROM {table} {at}")) == accounts
    slots = "SELECT count(*) FROM pg_replication_slots"
    with upstream.connected() as connection:
        wait_until(
            lambda: connection.execute(slots).fetchone() == (1,), what="slots of copies are gone"
        )
    # A source is dropped with its connection while the server is away, and its leader dies too.
    for pid in upstream.server.processes:
        kill(pid)
    upstream.server.process.wait(PATIENCE)
    application.sql("DROP CONNECTION pg CASCADE")
    notice = "SELECT hint FROM mz_internal.mz_notices WHERE notice_type = 'abandoned slot'"
    wait_until(lambda: read(application, notice), what="the notice of the slot")
    kill(only_coordinator(application.location))
    listed = "SELECT replication_slot FROM mz_internal.mz_postgres_sources"
    ((slot,),) = read(application, listed)
    assert slot.startswith("slackwater_")
    upstream.server.start()
    with upstream.connected() as connection:
        wait_until(lambda: connection.execute(slots).fetchone() == (0,), what="the slot is gone")
    wait_until(lambda: read(application, listed) == [], what="the list is empty")
