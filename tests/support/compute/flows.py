"""Dataflows as the decisions of a replica see them: ids, inputs and where they begin."""

from __future__ import annotations

from slackwater.compute.dataflow import Dataflow, Input, ViewExport
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId


def flow(name: str, *inputs: str, as_of: int = 0) -> Dataflow:
    """A dataflow without a plan, which no decision needs."""
    reads = {GlobalId(each): Input(number, None) for number, each in enumerate(inputs)}
    return Dataflow(GlobalId(name), name, None, reads, Timestamp(as_of), ViewExport(None, 1, 2))
