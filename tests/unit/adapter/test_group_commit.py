"""The group committer over a log in memory."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pyarrow as pa
import pytest
from tests.support.adapter.adapter_log import MemoryLog, Weather, fence, outage, rows
from tests.support.waiting import PATIENCE

from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.writing.group_commit import (
    CommitSettings,
    GroupCommitter,
    Write,
    at_time,
    count_changes,
    pause_before_commit_ms,
)
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

FAST = CommitSettings(tick_ms=20, max_ahead_ms=20)
PATIENT = CommitSettings(tick_ms=600_000)


def wall_ms():
    return time.time_ns() // 1_000_000


@contextmanager
def running(log, *, settings=PATIENT, clock=wall_ms, **callbacks):
    oracle = TimestampOracle.recover(Timestamp(log.tables_upper()), clock)
    committer = GroupCommitter(
        log, oracle, location="./env", clock_ms=clock, settings=settings, **callbacks
    )
    committer.start()
    try:
        yield committer, oracle
    finally:
        committer.stop()


def a_write(*values, shard=1, **rest):
    return Write(str(uuid.uuid4()), {shard: rows(*values)}, inserted=len(values), **rest)


def failure(future):
    error = future.exception(PATIENCE)
    assert isinstance(error, SlackwaterError)
    return error.condition


class Gate:
    """Holds appends back until it is opened, and says when one has arrived."""

    def __init__(self):
        self.arrived, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.arrived.set()
        assert self.opened.wait(PATIENCE)


def test_queued_writes_share_one_commit_and_one_part_for_each_shard():
    gate = Gate()
    log = MemoryLog(before=gate)
    with running(log) as (committer, oracle):
        first = committer.submit(a_write(0))
        assert gate.arrived.wait(PATIENCE)
        others = [committer.submit(a_write(n, shard=1 + n % 2)) for n in range(1, 9)]
        gate.opened.set()
        times = {f.result(PATIENCE).timestamp for f in others}
        assert len(times) == 1
        assert first.result(PATIENCE).timestamp < min(times)
        assert oracle.read_ts() == max(times)
    assert [{s: len(p) for s, p in c[2].items()} for c in log.commits[:2]] == [{1: 1}, {2: 1, 1: 1}]
    assert sorted(k for _, k in log.visible(max(times))) == list(range(9))


def test_durable_then_readable_then_told_then_answered():
    log, seen = MemoryLog(), []

    def told(committed):
        seen.append((log.upper, oracle.read_ts(), future_done()))

    future_done = lambda: bool(futures and futures[0].done())  # noqa: E731
    futures = []
    with running(log, on_committed=told) as (committer, oracle):
        futures.append(committer.submit(a_write(1)))
        timestamp = futures[0].result(PATIENCE).timestamp
    assert seen[0] == (timestamp + 1, timestamp, False)


def test_an_idle_tick_moves_the_upper_and_writes_nothing():
    log = MemoryLog()
    ticked, count = threading.Event(), []

    def told(committed):
        assert committed.shard_ids == frozenset()
        count.append(committed.upper)
        if len(count) == 3:
            ticked.set()

    with running(log, settings=FAST, on_committed=told):
        assert ticked.wait(PATIENCE)
    assert count == sorted(set(count))
    assert all(parts == {} for _, _, parts in log.commits)


def test_a_write_id_has_one_effect():
    log = MemoryLog()
    with running(log) as (committer, _):
        write = a_write(1)
        results = {committer.submit(write).result(PATIENCE) for _ in range(3)}
    assert len(results) == 1
    assert len(log.updates) == 1


@pytest.mark.parametrize("again", ["an outage", "a commit"])
def test_a_repeated_write_is_readable_before_it_is_answered(again):
    """The answer to the first try was lost after the commit, when nobody could read it yet."""
    failing = []

    def fail():
        if failing:
            raise failing.pop()

    log = MemoryLog(before=fail, after=fail)
    with running(log) as (committer, oracle):
        write = a_write(1)
        failing.append(outage())
        log.before = lambda: None
        assert failure(committer.submit(write)) == "SLACKWATER_METASTORE_UNAVAILABLE"
        assert len(log.updates) == 1
        if again == "an outage":
            log.before = fail
            failing.append(outage())
        readable = []
        oracle_of_answer = committer.submit(write)
        oracle_of_answer.add_done_callback(lambda _: readable.append(oracle.read_ts()))
        timestamp = oracle_of_answer.result(PATIENCE).timestamp
        assert readable[0] >= timestamp
        assert log.visible(oracle.read_ts()) == [(1, 1)]


def test_a_failing_step_fails_its_own_write_only():
    gate = Gate()
    log = MemoryLog(before=gate)

    def broken(_):
        raise ValueError("this step is broken")

    with running(log) as (committer, _):
        committer.submit(a_write(0))
        assert gate.arrived.wait(PATIENCE)
        good, bad, also_good = (
            committer.submit(a_write(1)),
            committer.submit(a_write(2, steps=(broken,))),
            committer.submit(a_write(3)),
        )
        gate.opened.set()
        assert isinstance(bad.exception(PATIENCE), ValueError)
        assert good.result(PATIENCE).inserted == also_good.result(PATIENCE).inserted == 1
    assert sorted(k for _, k, _, _ in log.updates) == [0, 1, 3]


def test_an_outage_fails_what_is_pending_and_then_it_goes_on():
    failing = [True]

    def before():
        if failing.pop() if failing else False:
            raise outage()

    log = MemoryLog(before=before)
    with running(log) as (committer, _):
        assert failure(committer.submit(a_write(1))) == "SLACKWATER_METASTORE_UNAVAILABLE"
        assert committer.submit(a_write(2)).result(PATIENCE).inserted == 1
        assert committer.totals.failures == {"SLACKWATER_METASTORE_UNAVAILABLE": 1}
        assert committer.totals.took.number >= 1
    assert [k for _, k, _, _ in log.updates] == [2]


def test_fenced_means_everything_fails_and_the_end_is_reported_once():
    gate, fatal = Gate(), []

    def before():
        gate()
        fence()

    with running(MemoryLog(before=before), on_fatal=fatal.append) as (committer, _):
        committer.lock(frozenset({9}), "reader")
        first = committer.submit(a_write(1))
        assert gate.arrived.wait(PATIENCE)
        behind, blocked = committer.submit(a_write(2)), committer.submit(a_write(3, shard=9))
        gate.opened.set()
        assert {failure(f) for f in (first, behind, blocked)} == {"SLACKWATER_FENCED"}
        assert failure(committer.submit(a_write(4))) == "SLACKWATER_FENCED"
        with pytest.raises(SlackwaterError, match="SLACKWATER_FENCED"):
            committer.flush(PATIENCE)
        with pytest.raises(SlackwaterError, match="SLACKWATER_FENCED"):
            committer.lock(frozenset({1}), "late")
    assert len(fatal) == 1


def test_a_lock_covers_a_read_then_write():
    log = MemoryLog()
    with running(log) as (committer, oracle):
        before = committer.submit(a_write(1)).result(PATIENCE).timestamp
        committer.lock(frozenset({1}), "update")
        assert oracle.read_ts() >= before
        blocked = committer.submit(a_write(2))
        elsewhere = committer.submit(a_write(3, shard=2)).result(PATIENCE).timestamp
        own = committer.submit(a_write(4, owner="update")).result(PATIENCE).timestamp
        assert own > elsewhere
        assert not blocked.done()
        committer.release("update")
        assert blocked.result(PATIENCE).timestamp > own


def test_waiting_for_a_lock_ends():
    with running(MemoryLog(), settings=CommitSettings(tick_ms=600_000, wait_ms=30)) as (c, _):
        c.lock(frozenset({1}), "slow")
        assert failure(c.submit(a_write(1))) == "SLACKWATER_LOCK_TIMEOUT"
        with pytest.raises(SlackwaterError, match="55P03"):
            c.lock(frozenset({1, 2}), "other")
        withdrawn = a_write(2)
        future = c.submit(withdrawn)
        if c.withdraw(withdrawn.write_id):
            assert failure(future) == "SLACKWATER_CANCELED"
        c.release("slow")
        c.lock(frozenset({1, 2}), "other", wait_ms=PATIENCE * 1000)


def test_flush_commits_now_and_stopping_ends_what_is_blocked():
    log = MemoryLog()
    with running(log) as (committer, oracle):
        flushed = committer.flush(PATIENCE)
        assert oracle.read_ts() >= flushed
        committer.lock(frozenset({1}), "kept")
        blocked = committer.submit(a_write(1))
    assert failure(blocked) == "SLACKWATER_STATEMENT_INTERRUPTED"
    assert failure(committer.submit(a_write(2))) == "SLACKWATER_STATEMENT_INTERRUPTED"


def test_pace():
    assert pause_before_commit_ms(Timestamp(100), 100, 1000) == 0
    assert pause_before_commit_ms(Timestamp(100), 500, 1000) == 0
    assert pause_before_commit_ms(Timestamp(350), 100, 1000) == 250
    assert pause_before_commit_ms(Timestamp(10_000), 100, 1000) == 0


def test_a_clock_that_goes_back_an_hour_stops_nothing():
    now = [10_000_000]
    with running(MemoryLog(), clock=lambda: now[0]) as (committer, _):
        before = committer.submit(a_write(1)).result(PATIENCE).timestamp
        now[0] -= 3_600_000
        after = [committer.submit(a_write(n)).result(PATIENCE).timestamp for n in range(3)]
    assert before == 10_000_000
    assert after == [before + 1, before + 2, before + 3]


def test_parts_made_when_the_time_is_known():
    log, asked = MemoryLog(), []

    def parts_at(timestamp):
        asked.append(timestamp)
        return log.new_parts(1, at_time(rows(5), timestamp))

    with running(log) as (committer, _):
        write = Write("w", {1: parts_at})
        timestamp = committer.submit(write).result(PATIENCE).timestamp
    assert asked == [timestamp]
    assert log.updates == [(1, 5, timestamp, 1)]


def test_counting_and_dating_rows():
    changes = pa.concat_tables([rows(1, 2), rows(3, diff=-1), rows(4, diff=-2)])
    assert count_changes(changes) == (2, 3)
    assert count_changes(rows()) == (0, 0)
    dated = at_time(rows(1), Timestamp(7))
    assert dated.to_pylist() == [{"k": 1, "__time": 7, "__diff": 1}]


@pytest.mark.parametrize("seed", range(6))
def test_in_any_weather_nothing_is_lost_doubled_or_read_too_late(seed):
    weather = Weather(seed, lambda: log)
    log = MemoryLog(before=weather.before, after=weather.after)
    acknowledged, mutex = set(), threading.Lock()

    def client(number):
        for n in range(15):
            value = number * 1000 + n
            write = a_write(value, shard=number % 3)
            while True:
                future = committer.submit(write)
                error = future.exception(PATIENCE)
                if error is None:
                    break
                assert error.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
            with mutex:
                acknowledged.add((number % 3, value))
                expected = set(acknowledged)
            assert expected <= set(log.visible(oracle.read_ts()))

    with running(log, settings=FAST) as (committer, oracle):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(client, range(6)))
        final = log.visible(oracle.read_ts())
    assert sorted(final) == sorted(acknowledged)
    assert len(acknowledged) == 90


@pytest.mark.parametrize("limits", [{"max_waiting": 3}, {"max_waiting_bytes": 40}])
def test_what_waits_is_bounded_and_the_error_says_so(limits):
    log = MemoryLog()
    settings = CommitSettings(tick_ms=600_000, **limits)
    with running(log, settings=settings) as (committer, _):
        committer.lock(frozenset({1}), "slow")
        large = a_write(*range(1000))
        waiting = [committer.submit(w) for w in (large, a_write(1), a_write(2), a_write(3))]
        refused = [f for f in waiting if f.done()]
        assert refused
        assert {failure(f) for f in refused} == {"SLACKWATER_TOO_MANY_REQUESTS"}
        assert committer.submit(large) is waiting[0]
        committer.release("slow")
        for future in waiting:
            if future not in refused:
                future.result(PATIENCE)
        assert committer.submit(a_write(4)).result(PATIENCE).inserted == 1
        committer.lock(frozenset({1}), "again")
        committer.release("again")
