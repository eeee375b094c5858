"""What a worker makes of the work that a replica begins, with ticks and an engine of the test."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from structlog.contextvars import get_contextvars, merge_contextvars
from structlog.testing import capture_logs
from tests.support.compute.flows import flow

from slackwater.compute.replica import Failed, WorkKind
from slackwater.compute.schedule import Tick
from slackwater.compute.worker import Listeners, Worker
from slackwater.repr.errors import SlackwaterError

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
