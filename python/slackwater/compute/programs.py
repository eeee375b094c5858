"""The ticks of a dataflow that runs a program: what the driver is given and asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from slackwater.compute.dataflow import Dataflow, Input, Shards
from slackwater.compute.engine import (
    Contents,
    Engine,
    NamedUpdates,
    TickProgram,
    ViewProgram,
)
from slackwater.compute.records import StepRecord
from slackwater.compute.relations import relation_json
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.persist import reading
from slackwater.persist.client import Append
from slackwater.persist.parts import NewPart
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN

TICK_LIMIT_ROWS = 2_000_000
"""A tick takes about so many rows of input, to bound its memory."""


@dataclass(slots=True)
class RunningView:
    """A program and what it keeps in the driver between ticks. Not thread-safe.

    The promise of a tick is that of `slackwater.compute.tick.appends_of_tick`. What the driver
    keeps is filled from the inputs as they were just before the tick, when a tick needs it.
    """

    flow: Dataflow
    view: ViewProgram
    shards: Shards
    engine: Engine
    _program: TickProgram | None = field(default=None, init=False)
    """With all that it keeps."""
    scanned: int = field(default=0, init=False)
    """How many rows the last tick read whole."""
    steps: tuple[StepRecord, ...] = field(default=(), init=False)
    """What the last tick did."""

    @property
    def is_ready(self) -> bool:
        """Whether a tick needs no more than the changes."""
        return self._program is not None

    def appends(self, tick: Tick) -> tuple[Append, ...]:
        """The updates of the tick. It may end before ``tick.upper``: another one does the rest."""
        shard = self.flow.output_shard
        self.scanned, self.steps = 0, ()
        if tick.first:
            lower = self.shards.state(shard).upper
            parts = self._contents(tick.lower, None)
            return (Append(shard, lower, Timestamp(tick.lower + 1), parts),)
        if tick.collapse:
            self.close()
            parts = self._contents(Timestamp(tick.upper - 1), Timestamp(tick.lower - 1))
            return (Append(shard, tick.lower, tick.upper, parts),)
        return (self._ticked(tick),)

    def committed(self, upper: Timestamp) -> None:
        """The updates up to `upper` are durable."""
        if self._program is not None:
            self._program.committed(upper)

    def close(self) -> None:
        """Gives back what the driver keeps."""
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def end(self) -> None:
        """Gives back everything: the dataflow is not maintained any more."""
        self.close()
        self.engine.forget_plan(self.view.kept.plan_id)

    def _contents(self, at: Timestamp, recorded: Timestamp | None) -> tuple[NewPart, ...]:
        """The view's contents at `at`, or what they differ by from those of `recorded`."""
        flow = self.flow
        known = None
        if recorded is not None:
            output = Input(flow.output_shard, flow.plan.output)
            known = self._read(output, recorded, updates=True)
        directory = self.shards.shard_directory(flow.output_shard)
        files = self.engine.write_view(
            self.view, flow.plan.output, at, self._inputs(at), known, directory
        )
        self.shards.blobs.settle(file.uri for file in files)
        return tuple(file.part() for file in files if file.rows)

    def _inputs(self, at: Timestamp) -> Mapping[str, Contents]:
        return {g: self._read(source, at) for g, source in self.flow.inputs.items()}

    def _read(self, source: Input, at: Timestamp, *, updates: bool = False) -> Contents:
        """The collection at `at`: its rows, or, where `updates` are wanted, all up to then."""
        desc, parts = source.desc, self.shards.parts_at(source.shard_id, at)
        self.scanned += sum(part.rows for part in parts)
        if updates:
            return Contents(desc, relation_json(parts, desc, upper=Timestamp(at + 1)))
        return Contents(desc, relation_json(parts, desc, as_of=at))

    def _ticked(self, tick: Tick) -> Append:
        flow = self.flow
        lower = tick.lower
        read = {
            g: self.shards.parts_between(source.shard_id, lower, tick.upper)
            for g, source in flow.inputs.items()
        }
        every = [part for parts in read.values() for part in parts]
        upper = capped_upper(every, lower, tick.upper, TICK_LIMIT_ROWS, len(every))
        deltas: dict[str, NamedUpdates] = {
            g: NamedUpdates(g, flow.inputs[g].desc, parts, lower, upper)
            for g, parts in read.items()
            if parts
        }
        self.scanned += sum(part.rows for part in every)
        ticked = self._filled(Timestamp(lower - 1)).tick(lower, upper, deltas)
        self.steps = ticked.steps
        updates = ticked.updates
        parts: tuple[NewPart, ...] = ()
        if updates.num_rows:
            named = updates.rename_columns([*flow.plan.output.names, TIME_COLUMN, DIFF_COLUMN])
            conformed = reading.conformed(named, flow.plan.output)
            parts = self.shards.new_parts(flow.output_shard, conformed)
        return Append(flow.output_shard, lower, upper, parts)

    def _filled(self, before: Timestamp) -> TickProgram:
        """The program; at first it is filled with the contents at `before`."""
        if self._program is None:
            with ExitStack() as undo:
                program = self.engine.open_program(self.view, self.flow.name, before)
                undo.callback(program.close)
                program.load(before, self._inputs(before))
                undo.pop_all()
            self._program = program
        return self._program
