"""What a worker makes of the work that a replica begins, with ticks and an engine of the test."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from structlog.contextvars import get_contextvars, merge_contextvars
from structlog.testing import capture_logs
from tests.support.compute.flows import flow

from slackwater.compute.replica import COMMITTED_TOGETHER, Failed, WorkKind
from slackwater.compute.schedule import Round, Tick
from slackwater.compute.tick_outcome import TickOutcome
from slackwater.compute.worker import Listeners, Worker, WorkerOptions
from slackwater.persist.appends import Append, UpperMismatch
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import Moves

ERROR = SlackwaterError("SLACKWATER_STORAGE_UNREADABLE", "58030", "no answer", {})


@pytest.fixture
def worker():
    engine = SimpleNamespace(ended_by=lambda interruption: nullcontext())
    made = Worker(None, None, engine, Listeners(progress=lambda _: None, fatal=lambda _: None))
    made._replica.add(flow("u7", "u1"))
    made._replica.begin_round()
    yield made
    made.validate()


def done(worker, tick, most_ms=None):
    """The result of a tick that is computed so, and the lines that were logged meanwhile."""
    view = SimpleNamespace(flow=worker._replica.flows["u7"], tick=tick)
    kind = WorkKind.TICK if most_ms is None else WorkKind.QUICK_TICK
    run = worker._begin(view.flow, Tick("u7", 4, 9, False), kind)
    with capture_logs(processors=[merge_contextvars]) as logged:
        return worker._do(view, run, most_ms), logged


def test_lines_of_a_tick_say_whose_it_is_and_over_which_interval(worker):
    def tick(tick, meter, most_ms):
        raise ERROR

    result, logged = done(worker, tick)
    assert result == Failed(ERROR)
    (line,) = [each for each in logged if each["event"] == "tick_failed"]
    assert (line["dataflow"], line["lower"], line["upper"]) == ("u7", 4, 9)
    assert get_contextvars() == {}


class Heard:
    """Keeps spans: their names, their attributes, what they move, and how they have failed."""

    def __init__(self):
        self.spans = []

    @contextmanager
    def span(self, name, attributes, moves):
        failures = []
        self.spans.append((name, attributes, moves, failures))
        yield failures.append


def test_a_tick_is_a_span_that_fails_with_it(worker):
    worker._spans = Heard()

    def tick(tick, meter, most_ms):
        raise ERROR

    done(worker, tick)
    interval = {"dataflow": "u7", "lower": 4, "upper": 9}
    moves = Moves("u7", 4, 9)
    assert worker._spans.spans == [("tick", interval, moves, [ERROR.condition])]


class Rounds:
    """A worker whose rounds have the ticks of a test, which take their time by its clock."""

    def __init__(self, *names):
        self.now_s = 100.0
        self.takes_s = dict.fromkeys(names, 0.001)
        self.offered, self.committed, self.moved = [], [], []
        self.refuses, self.error = set(), None
        engine = SimpleNamespace(ended_by=lambda interruption: nullcontext())
        listeners = Listeners(progress=self.moved.append, fatal=lambda _: None)
        options = WorkerOptions(monotonic=lambda: self.now_s)
        self.worker = Worker(None, self, engine, listeners, options)
        self.ticks = [Tick(name, 4, 9, False) for name in names]
        self.worker._planned = self.planned
        for name in names:
            made = flow(name, "u1")
            self.worker._replica.add(made)
            self.worker._views[name] = self.view(made)

    def view(self, made):
        def tick(tick, meter, most_ms):
            self.now_s += self.takes_s[made.global_id]
            appends = (Append(1, 4, 9, ()), Append(2, 4, 9, ()))
            return TickOutcome(appends, 9, (), True, None)

        def committed(upper):
            self.committed.append(made.global_id)

        return SimpleNamespace(
            flow=made, tick=tick, is_quick=lambda tick: True, committed=committed
        )

    def planned(self, agenda):
        made, self.ticks = [t for t in self.ticks if t.global_id in agenda.flows], []
        return Round({}, tuple(made))

    def append(self, offered):
        self.offered.append([made.global_id for made, _ in offered])
        if self.error is not None:
            raise self.error
        mismatch = UpperMismatch(1, 4, 6)
        return [mismatch if made.global_id in self.refuses else None for made, _ in offered]

    def round(self):
        self.worker._round()
        self.worker.validate()
        assert self.worker._replica.works() == ()


def test_what_the_quick_ticks_of_a_round_compute_is_one_commit():
    rounds = Rounds("u7", "u8", "u9")
    rounds.round()
    assert rounds.offered == [["u7", "u8", "u9"]]
    assert rounds.committed == ["u7", "u8", "u9"]
    assert rounds.moved == [{"u7": 9}, {"u8": 9}, {"u9": 9}]
    assert [each.global_id for each in rounds.worker.records.all()] == ["u7", "u8", "u9"]


def test_of_what_is_committed_together_one_may_be_refused():
    rounds = Rounds("u7", "u8", "u9")
    rounds.refuses = {"u8"}
    rounds.round()
    assert rounds.committed == ["u7", "u9"]
    assert rounds.worker._replica.failures == {}


def test_an_error_of_the_common_commit_is_that_of_each():
    rounds = Rounds("u7", "u8")
    rounds.error = ERROR
    rounds.round()
    assert rounds.committed == []
    assert {f.error for f in rounds.worker._replica.failures.values()} == {ERROR}
    assert set(rounds.worker._replica.failures) == {"u7", "u8"}


def test_what_is_computed_does_not_wait_for_a_tick_that_takes_long():
    rounds = Rounds("u7", "u8", "u9")
    rounds.takes_s["u8"] = 0.06
    ticks = rounds.ticks
    # Nobody knows yet that it takes so long.
    rounds.round()
    rounds.ticks = ticks
    rounds.round()
    assert rounds.offered == [["u7", "u8"], ["u9"], ["u7"], ["u8", "u9"]]


def test_what_was_removed_while_it_waited_is_not_committed():
    rounds = Rounds("u7", "u8")

    def remove():
        rounds.worker.remove("u7")
        return []

    # The second tick is made after the first one has been computed.
    tick = rounds.worker._views["u8"].tick
    rounds.worker._views["u8"].tick = lambda *given: remove() or tick(*given)
    rounds.round()
    assert rounds.offered == [["u8"]]
    assert rounds.committed == ["u8"]


def test_a_worker_that_stops_commits_nothing_of_what_waits():
    rounds = Rounds("u7")
    tick = rounds.worker._views["u7"].tick

    def computed(*given):
        outcome = tick(*given)
        rounds.worker._monotonic = lambda: rounds.worker._replica.stop() or rounds.now_s
        return outcome

    rounds.worker._views["u7"].tick = computed
    with capture_logs() as logged:
        rounds.round()
    assert logged == []
    assert rounds.offered == []
    assert rounds.worker._replica.failures == {}


def test_a_commit_has_a_largest_number_of_ticks():
    rounds = Rounds(*(f"u{number}" for number in range(10, 11 + COMMITTED_TOGETHER)))
    rounds.takes_s = dict.fromkeys(rounds.takes_s, 0.0)
    rounds.round()
    assert [len(each) for each in rounds.offered] == [COMMITTED_TOGETHER, 1]
