"""A replica that was running when a controller connects: what goes on, stops and begins.

Everything here is on the replica's side, and pure. Source: spec controllers 4.10, I39.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    MaterializedViewExport,
)
from slackwater.compute.controller.history import ReplicaState, replayed
from slackwater.compute.controller.protocol import Command
from slackwater.controller.protocol import AllowCompaction
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The actions of a replica, in this order, and the `state` that it then is in.

    `cancel`: peeks that are dropped without an answer. `stop`: exports that are dropped, with
    what they have not sent. `keep`: exports that go on and may be compacted so far; nothing was
    reported for them since there, so that the next report tells all. `start`: dataflows that
    are installed anew. What else the commands ask for (peeks, schedules, writes) is in `state`.
    """

    cancel: tuple[str, ...]
    stop: tuple[GlobalId, ...]
    keep: tuple[AllowCompaction, ...]
    start: tuple[DataflowDescription, ...]
    state: ReplicaState


def reconcile(old: ReplicaState, commands: Iterable[Command]) -> Reconciled:
    """Compares what is installed with what a new controller wants, at `InitializationComplete`.

    A dataflow goes on if it has the same exports and computes the same, was not compacted beyond
    the as-of that is wanted, gives no subscription or copy, and reads only indexes that go on. The
    rest is dropped, and created anew. The end is that of a fresh start with `commands` (I39).

    Raises FatalError when the instance was created in another way: the replica has to end then.
    """
    state = replayed(commands)
    if old.instance is not None and state.instance != old.instance:
        raise FatalError(f"the instance was created as {old.instance}, not as {state.instance}")
    kept: set[GlobalId] = set()
    start: list[DataflowDescription] = []
    before = {each.export_ids: each for each in old.dataflows()}
    for wanted in state.dataflows():
        running = before.get(wanted.export_ids)
        if running is not None and _goes_on(old, running, wanted, kept):
            kept.update(wanted.export_ids)
        else:
            start.append(wanted)
    return Reconciled(
        cancel=tuple(old.peeks),
        stop=tuple(sorted(old.export_ids - kept)),
        keep=tuple(AllowCompaction(each, state.sinces[each]) for each in sorted(kept)),
        start=tuple(start),
        state=state,
    )


def _goes_on(
    old: ReplicaState,
    running: DataflowDescription,
    wanted: DataflowDescription,
    kept: set[GlobalId],
) -> bool:
    return (
        running.computes_like(wanted)
        and all(isinstance(each, MaterializedViewExport) for each in running.sink_exports)
        and all(_reaches(old, each, wanted) for each in running.export_ids)
        and _reads_what_goes_on(old, wanted, kept)
    )


def _reaches(old: ReplicaState, export: GlobalId, wanted: DataflowDescription) -> bool:
    return wanted.as_of is not None and old.sinces[export] <= wanted.as_of


def _reads_what_goes_on(
    old: ReplicaState, wanted: DataflowDescription, kept: set[GlobalId]
) -> bool:
    logs = () if old.instance is None else old.instance.logs
    return all(each in kept or each in logs for each in wanted.index_imports)
