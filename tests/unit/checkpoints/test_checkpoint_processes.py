"""Groups in several processes, and threads, that share a database without a leader."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
import sqlalchemy as sa
from tests.support.checkpoints.checkpoints import NEVER_MS, Failing, await_bounds, t, window
from tests.support.persist.metastore_faults import Outage
from tests.support.persist.postgres import running_server
from tests.support.waiting import PATIENCE, wait_until

from slackwater.checkpoints import (
    ZERO,
    Checkpoints,
    DatabaseStore,
    EngineTransactions,
    GoingBackwards,
    Range,
    TableGroup,
    Variable,
    open_store,
    poll_every,
)
from slackwater.checkpoints.notifications import CHANNEL, PostgresNotifications
from slackwater.checkpoints.tables import create_tables
from slackwater.persist.metastore import RetryPolicy, connect
from slackwater.repr.errors import SlackwaterError

ROUNDS = 15
FAKE = TableGroup("fake")


def inc(first, last):
    return Range.including(t(first), t(last))


_OTHER = """
import sys
from slackwater.checkpoints import *

url, poll_ms, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bounds = Variable(Range())
with open_store(url) as store:
    with Checkpoints(store).start(TableGroup("FAKE"), bounds, poll_every(poll_ms)) as group:
        for number in range(2, 2 + rounds):
            group.advance("b", Time(number))
            bounds.wait_for(lambda found: found.max == Time(number).next, 60)
            group.commit(Range.including(ZERO, Time(number)))
            bounds.wait_for(lambda found: found.min == Time(number), 60)
print("done")
"""


def test_two_processes_share_a_group(new_database):
    url = new_database()
    # Without LISTEN and NOTIFY they have to look.
    poll_ms = NEVER_MS if url.startswith("postgresql") else 5
    bounds = Variable(Range())
    with (
        open_store(url) as store,
        Checkpoints(store).start(FAKE, bounds, poll_every(poll_ms)) as group,
    ):
        group.ensure(["a", "b"])
        other = subprocess.Popen(
            [sys.executable, "-c", _OTHER, url, str(poll_ms), str(ROUNDS)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for number in range(2, 2 + ROUNDS):
            group.advance("a", t(number))
            # The other one says the same of its partition, and then that all of it is applied.
            bounds.wait_for(lambda found, number=number: found.min == t(number), PATIENCE)
        assert other.communicate(timeout=PATIENCE)[0] == "done\n"
        await_bounds(bounds, inc(1 + ROUNDS, 1 + ROUNDS))


def test_writers_of_one_group_take_turns(new_database):
    """Also those that make the tables, the group and a partition, all at the same moment."""
    url = new_database()
    with ExitStack() as ending, ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: ending.enter_context(open_store(url)), range(4)))

        def work(number):
            store = stores[number % 4]
            for nanos in range(2, 12):
                store.advance("fake", f"p{number}", t(nanos))
                store.ensure("fake", [f"p{other}" for other in range(8)])
                store.commit("fake", inc(0, 1))

        assert list(pool.map(work, range(8))) == [None] * 8
        assert window(stores[0], "fake", ZERO) == inc(0, 11)
        for number in range(8):
            with pytest.raises(GoingBackwards):
                stores[0].advance("fake", f"p{number}", t(10))


def test_a_commit_whose_answer_is_lost_is_repeated_without_harm(new_database):
    engine = connect(new_database())
    create_tables(engine)
    outage = Outage(engine)
    store = DatabaseStore(EngineTransactions(engine, outage.retry_policy()))
    for landed in (True, False):
        for write in (
            lambda: store.ensure("fake", ["p"]),
            lambda: store.advance("fake", "p", t(10)),
            lambda: store.commit("fake", inc(0, 10)),
        ):
            outage.strike(landed=landed)
            with pytest.raises(SlackwaterError, match="SLACKWATER_METASTORE_UNAVAILABLE"):
                write()
            write()
    assert outage.lost == 6
    assert window(store, "fake", ZERO) == inc(10, 10)
    engine.dispose()


@pytest.mark.postgres
def test_a_notification_wakes_and_a_connection_that_breaks_is_replaced(postgres):
    url = postgres.new_database()
    engine = connect(url)
    create_tables(engine)
    listening = sa.text(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query = :query"
    ).bindparams(query=f"LISTEN {CHANNEL}")

    def listeners():
        with engine.connect() as conn:
            return set(conn.execute(listening).scalars())

    bounds = Variable(Range())
    with (
        open_store(url) as sender,
        closing(PostgresNotifications(engine, retry_ms=1)) as notifications,
    ):
        store = DatabaseStore(EngineTransactions(engine), notifications=notifications)
        with Checkpoints(store).start(FAKE, bounds, poll_every(NEVER_MS)):
            for nanos in range(1, 4):
                sender.advance("fake", "p", t(nanos))
                await_bounds(bounds, inc(0, nanos))
            broken = listeners()
            assert len(broken) == 1
            with engine.connect() as conn:
                for pid in broken:
                    conn.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            for nanos in range(4, 7):
                sender.advance("fake", "p", t(nanos))
                await_bounds(bounds, inc(0, nanos))
            assert len(listeners() - broken) == 1
    wait_until(lambda: not listeners(), what="the listener has ended")
    engine.dispose()


@pytest.mark.postgres
def test_a_server_that_goes_away_takes_no_bounds_with_it():
    with running_server() as server:
        url = server.new_database()
        engine = connect(url)
        create_tables(engine)
        bounds = Variable(Range())
        with closing(PostgresNotifications(engine, retry_ms=1)) as notifications:
            transactions = EngineTransactions(engine, RetryPolicy(wait_ms=0))
            store = Failing(DatabaseStore(transactions, notifications=notifications))
            with Checkpoints(store).start(FAKE, bounds, poll_every(NEVER_MS)) as group:
                group.advance("p", t(10))
                group.commit(inc(0, 10))
                group.advance("p", t(20))
                await_bounds(bounds, inc(10, 20))
                server.stop()
                group.refresh()
                store.await_calls("state failed", 1)
                assert bounds.get() == inc(10, 20)
                with pytest.raises(SlackwaterError, match="SLACKWATER_METASTORE_UNAVAILABLE"):
                    group.advance("p", t(30))
                server.start()
                with open_store(url) as other:
                    other.advance("fake", "p", t(30))
                    await_bounds(bounds, inc(10, 30))
        engine.dispose()
