"""The threads around ingestions, and the options of statements."""

import threading

import pytest
from tests.support.waiting import PATIENCE

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import user_error
from slackwater.storage.generators import GeneratorConfig, GeneratorIngestion
from slackwater.storage.ingestion import IngestionRunner, Reached, Resumed, StepSuperseded


class Commits:
    """Remembers commits; `wait` returns once a condition on them holds."""

    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()

    def __call__(self, source_id, reached, step):
        values = step.updates["counter"].column("counter").to_pylist()
        with self.changed:
            self.seen.append((source_id, values, (step.frontier, step.state)))
            self.changed.notify_all()

    def values(self, source_id):
        return [value for who, values, _ in self.seen if who == source_id for value in values]

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE)


class Ticks:
    """A clock that goes on by a second at each look."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1000
        return self.now


@pytest.fixture
def runner_of():
    runners = []

    def make(commit, clock, record=lambda changes: None):
        runners.append(IngestionRunner(commit, record, clock))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


def counter(reached=(None, None), **more):
    return GeneratorIngestion(GeneratorConfig("COUNTER", **more), *reached)


def fresh(ingestion):
    return lambda: Resumed(ingestion)


def test_polls_commits_and_resumes(runner_of):
    commits = Commits()
    runner = runner_of(commits, Ticks())
    runner.add("u1", fresh(counter()), 1)
    commits.wait(lambda: len(commits.values("u1")) > 5)
    runner.remove("u1")
    reached = commits.seen[-1][2]
    runner.add("u1", fresh(counter(reached)), 1)
    count = len(commits.seen)
    commits.wait(lambda: len(commits.seen) > count + 2)
    runner.remove("u1")
    values = commits.values("u1")
    assert values == list(range(1, len(values) + 1))
    assert runner.statuses() == []


class Blocked:
    def __init__(self):
        self.entered = threading.Event()
        self.release = threading.Event()

    def poll(self, now_ms):
        self.entered.set()
        self.release.wait(PATIENCE)

    def committed(self, step):
        raise AssertionError


def test_a_slow_source_holds_up_no_other(runner_of):
    commits, slow = Commits(), Blocked()
    runner = runner_of(commits, Ticks())
    runner.add("u1", fresh(slow), 1)
    assert slow.entered.wait(PATIENCE)
    runner.add("u2", fresh(counter()), 1)
    commits.wait(lambda: len(commits.values("u2")) > 5)
    slow.release.set()


def test_a_source_that_another_leader_runs_has_not_failed(runner_of):
    """What ends this process is told elsewhere: the source goes on there."""
    asked = threading.Event()
    calls = []

    def commit(*step):
        calls.append(step)
        if len(calls) > 1:
            asked.set()
        raise Fenced(1, 2)

    history = []
    runner = runner_of(commit, Ticks(), history.extend)
    runner.add("u1", fresh(counter(up_to=3)), 1)
    while not asked.wait(0.01):
        runner.wake("u1")
    runner.close()
    assert all(change.status.error is None for change in (*history, *runner.statuses()))


def test_a_failed_commit_is_repeated_and_shown(runner_of):
    commits = Commits()
    failures = [
        user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="1", reason="gone"),
        RuntimeError("odd"),
    ]

    def commit(*step):
        if failures:
            raise failures.pop(0)
        commits(*step)

    history = []
    runner = runner_of(commit, Ticks(), history.extend)
    runner.add("u1", fresh(counter(up_to=3)), 1)
    runner.wake("u1")

    def ceased_after_wakes(status):
        runner.wake()
        return status.status == "ceased"

    assert runner.wait_for("u1", ceased_after_wakes, PATIENCE)
    assert commits.values("u1") == [1, 2, 3]
    assert runner.statistics()["u1"].updates_committed == 3
    runner.remove("u1")
    changes = [change.status for change in history]
    assert [change.status for change in changes[:3]] == ["starting", "stalled", "stalled"]
    assert "gone" in changes[1].error
    assert "odd" in changes[2].error
    assert changes[-1].status == "ceased"


class Flaky:
    """Nothing new, one error, nothing new."""

    def __init__(self):
        self.errors = [None, "first", None]
        self.inner = counter(up_to=1)

    def poll(self, now_ms):
        if len(self.errors) > 1 and self.errors.pop(0) is None:
            return self.inner.poll(now_ms)
        if len(self.errors) == 1:
            self.errors.append(None)
            raise user_error("SLACKWATER_SOURCE_FILE_UNREADABLE", file="f", reason="r")
        return None

    def committed(self, step):
        self.inner.committed(step)


def test_a_passing_error_leaves_the_status_that_was(runner_of):
    runner = runner_of(Commits(), Ticks())
    runner.add("u1", fresh(Flaky()), 1)
    assert runner.wait_for("u1", lambda status: status.status == "stalled", PATIENCE)
    runner.wake()
    assert runner.wait_for("u1", lambda status: status.status == "ceased", PATIENCE)


class Store:
    """Keeps the steps of one source. The answer to the commit number `lost` does not arrive."""

    def __init__(self, lost):
        self.lost, self.calls = lost, 0
        self.reached, self.values = Reached(), []
        self.superseded = 0

    def commit(self, source_id, reached, step):
        self.calls += 1
        if reached.steps != self.reached.steps:
            self.superseded += 1
            raise StepSuperseded(source_id, reached.steps, self.reached.steps)
        self.reached = self.reached.after(step)
        if step.updates:
            self.values += step.updates["counter"].column("counter").to_pylist()
        if self.calls == self.lost:
            raise user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="10", reason="gone")

    def resume(self):
        reached = (self.reached.frontier, self.reached.state)
        return Resumed(counter(reached, up_to=20), self.reached)


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_i51_a_superseded_step_makes_the_ingestion_start_from_what_is_stored(runner_of, lost):
    store = Store(lost)
    runner = runner_of(store.commit, Ticks())
    runner.add("u1", store.resume, 1)
    assert runner.wait_for("u1", lambda status: status.status == "stalled", PATIENCE)
    runner.wake()
    assert runner.wait_for("u1", lambda status: status.status == "ceased", PATIENCE)
    assert store.superseded == 1
    assert store.values == list(range(1, 21))
    assert runner.statistics()["u1"] == store.reached.statistics


def test_changes_that_cannot_be_recorded_are_recorded_later(runner_of):
    failures = [user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="10", reason="gone")] * 2
    recorded, complete = [], threading.Event()

    def record(changes):
        if failures:
            raise failures.pop()
        recorded.extend(change.status.status for change in changes)
        if recorded[-1] == "ceased":
            complete.set()

    runner = runner_of(Commits(), Ticks(), record)
    runner.add("u1", fresh(counter(up_to=3)), 1)
    assert complete.wait(PATIENCE)
    runner.remove("u1")
    assert recorded[0] == "starting"
    assert recorded == list(dict.fromkeys(recorded))


def test_a_source_whose_state_cannot_be_read_is_stalled_until_it_can(runner_of):
    failures = [user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="10", reason="gone")]

    def resume():
        if failures:
            raise failures.pop()
        return Resumed(counter(up_to=1))

    runner = runner_of(Commits(), Ticks())
    runner.add("u1", resume, 1)
    assert runner.wait_for("u1", lambda status: status.status == "stalled", PATIENCE)
    runner.wake()
    assert runner.wait_for("u1", lambda status: status.status == "ceased", PATIENCE)


def test_that_a_status_cannot_be_recorded_any_more_ends_no_source(runner_of):
    def fenced(changes):
        raise Fenced(1, 2)

    commits = Commits()
    runner_of(commits, Ticks(), fenced).add("u1", fresh(counter()), 1)
    commits.wait(lambda: len(commits.values("u1")) > 3)
