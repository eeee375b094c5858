"""The threads around ingestions, and the options of statements."""

import threading

import pytest

from slackwater.repr.errors import user_error
from slackwater.storage.generators import GeneratorConfig, GeneratorIngestion
from slackwater.storage.ingestion import IngestionRunner

WAIT_S = 10


class Commits:
    """Remembers commits; `wait` returns once a condition on them holds."""

    def __init__(self):
        self.seen = []
        self.changed = threading.Condition()

    def __call__(self, source_id, updates, state):
        with self.changed:
            self.seen.append((source_id, updates["counter"].column("counter").to_pylist(), state))
            self.changed.notify_all()

    def values(self, source_id):
        return [value for who, values, _ in self.seen if who == source_id for value in values]

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)


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

    def make(commit, clock):
        runners.append(IngestionRunner(commit, clock))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


def counter(state=None, **more):
    return GeneratorIngestion(GeneratorConfig("COUNTER", **more), state)


def test_polls_commits_and_resumes(runner_of):
    commits = Commits()
    runner = runner_of(commits, Ticks())
    runner.add("u1", counter(), 1)
    commits.wait(lambda: len(commits.values("u1")) > 5)
    runner.remove("u1")
    state = commits.seen[-1][2]
    runner.add("u1", counter(state), 1)
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
        self.release.wait(WAIT_S)

    def committed(self, step):
        raise AssertionError


def test_a_slow_source_holds_up_no_other(runner_of):
    commits, slow = Commits(), Blocked()
    runner = runner_of(commits, Ticks())
    runner.add("u1", slow, 1)
    assert slow.entered.wait(WAIT_S)
    runner.add("u2", counter(), 1)
    commits.wait(lambda: len(commits.values("u2")) > 5)
    slow.release.set()


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

    runner = runner_of(commit, Ticks())
    runner.add("u1", counter(up_to=3), 1)
    runner.wake("u1")

    def ceased_after_wakes(status):
        runner.wake()
        return status.status == "ceased"

    assert runner.wait_for("u1", ceased_after_wakes, WAIT_S)
    assert commits.values("u1") == [1, 2, 3]
    changes = [change.status for change in runner.history()]
    assert [change.status for change in changes[:3]] == ["starting", "stalled", "stalled"]
    assert "gone" in changes[1].error
    assert "odd" in changes[2].error
    assert changes[-1].status == "ceased"
    assert runner.statistics()["u1"].updates_committed == 3


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
    runner.add("u1", Flaky(), 1)
    assert runner.wait_for("u1", lambda status: status.status == "stalled", WAIT_S)
    runner.wake()
    assert runner.wait_for("u1", lambda status: status.status == "ceased", WAIT_S)
