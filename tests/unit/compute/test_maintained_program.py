"""What a view's program tells its driver, and makes of one that does not answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from tests.support.compute.flows import flow

from slackwater.compute.cost_model import CostModel
from slackwater.compute.maintained_program import MaintainedProgram
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp


def test_a_driver_that_cannot_be_told_of_a_commit_is_no_failure():
    """The updates are durable: that the driver keeps more than it has to is no matter."""

    def committed(upper):
        raise SlackwaterError("SLACKWATER_INDEX_MEMORY", "53200", "no memory", {})

    made = MaintainedProgram(SimpleNamespace(flow=flow("u7")), None, CostModel())
    made._open = SimpleNamespace(driver=SimpleNamespace(committed=committed))
    with capture_logs() as logged:
        made.committed(Timestamp(5))
    assert [line["event"] for line in logged] == ["driver_not_told"]
    assert made.is_open


def reached(*, at, lower, upper, changes=(), since=0, next_change=None):
    """How far a program is that was at `at` when it was told that nothing changes from `lower` on.

    `changes` are the times at which its input changes; `next_change` makes it a temporal one.
    """
    told = []
    plan = SimpleNamespace(is_temporal=next_change is not None)
    shards = SimpleNamespace(
        flow=replace(flow("u7", "u1"), plan=plan),
        readable_from=lambda earliest: max(earliest, since),
        changes=lambda first, end: {"u1": [t for t in changes if first <= t < end]},
    )
    made = MaintainedProgram(shards, None, CostModel())
    made._open = SimpleNamespace(
        driver=SimpleNamespace(advanced=told.append), reached=at, next_change=next_change
    )
    made.advanced(Timestamp(lower), Timestamp(upper))
    assert told in ([], [made._open.reached])
    return made._open.reached


@pytest.mark.parametrize(
    ("expected", "case"),
    [
        (9, {"at": 5, "lower": 5, "upper": 9}),
        (9, {"at": 3, "lower": 5, "upper": 9}),
        (9, {"at": 3, "lower": 5, "upper": 9, "changes": [2]}),
        (3, {"at": 3, "lower": 5, "upper": 9, "changes": [4]}),
        (3, {"at": 3, "lower": 5, "upper": 9, "changes": [3]}),
        (3, {"at": 3, "lower": 5, "upper": 9, "since": 4}),
        (9, {"at": 7, "lower": 5, "upper": 9}),
        (11, {"at": 11, "lower": 5, "upper": 9}),
        (9, {"at": 3, "lower": 5, "upper": 9, "next_change": 5}),
        (3, {"at": 3, "lower": 5, "upper": 9, "next_change": 4}),
    ],
)
def test_a_program_goes_on_while_nothing_changes(expected, case):
    """Also one that was hydrated as of a time before: it would be stale when something does."""
    assert reached(**case) == expected
