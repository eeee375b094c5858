"""What a view's program makes of a driver that does not answer."""

from __future__ import annotations

from types import SimpleNamespace

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
