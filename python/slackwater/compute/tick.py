"""One tick of one dataflow: from the parts of its inputs to the appends to its shards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine
from slackwater.compute.relations import relation_json
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.persist import blobs, reading
from slackwater.persist.client import Append
from slackwater.persist.consolidate import consolidate
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN, RelationDesc
from slackwater.sql.delta import (
    Inputs,
    Interval,
    Leaf,
    UpdatesQuery,
    opaque_delta,
    output_delta,
    state_delta,
)
from slackwater.sql.plan import Opaque

COLLECT_LIMIT_ROWS = 50_000
"""From so many rows of input on, results are written by executors and not collected."""

BROADCAST_LIMIT_ROWS = 20_000
"""Up to so many rows a delta is broadcast to its joins."""

TICK_LIMIT_ROWS = 2_000_000
"""A tick after the first one takes about so many rows of input, to bound its memory."""

KEYED_TICK_LIMIT_PARTS = 64
"""Of a plan that computes groups anew at each time, a tick takes about so many times."""


@dataclass(frozen=True, slots=True)
class _Delta:
    """What changed in a leaf: the parts, and the times below which they are read."""

    parts: tuple[Part | NewPart, ...]
    desc: RelationDesc
    lower: Timestamp | None
    upper: Timestamp | None
    advance_to: Timestamp | None = None

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def retractions(self) -> bool:
        return any(part.has_retractions for part in self.parts)


@dataclass(slots=True)
class _Run:
    """A tick that is being computed."""

    flow: Dataflow
    tick: Tick
    shards: Shards
    engine: Engine
    prefix: str
    deltas: dict[Leaf, _Delta] = field(default_factory=dict)


def appends_of_tick(
    flow: Dataflow, tick: Tick, shards: Shards, engine: Engine, prefix: str
) -> tuple[Append, ...]:
    """Computes the tick. Its appends may end before ``tick.upper``: another tick does the rest.

    Nothing is committed. `prefix` makes the names of temporary views, of letters, digits and
    underscores; they are gone afterwards. Raises what the engine and the shards raise.
    """
    run = _Run(flow, tick, shards, engine, prefix)
    if isinstance(flow.plan.root, Opaque):
        return _recompute(run)
    return _maintain(run)


# Maintained in steps


def _maintain(run: _Run) -> tuple[Append, ...]:
    tick, flow = run.tick, run.flow
    upper = tick.upper
    if not tick.first and not tick.collapse:
        read = [p for g in flow.inputs for p in _parts(run, g, tick.lower, upper)]
        keyed = any(aggregate.is_keyed for aggregate in flow.plan.aggregates)
        most = KEYED_TICK_LIMIT_PARTS if keyed else len(read)
        upper = capped_upper(read, tick.lower, upper, TICK_LIMIT_ROWS, most)
    for global_id in flow.inputs:
        delta = _input_delta(run, global_id, upper)
        if delta.rows:
            run.deltas[global_id] = delta
    interval = Interval(tick.lower, upper, tick.first)
    states: list[tuple[NewPart, ...]] = []
    for number, (aggregate, shard) in enumerate(
        zip(flow.plan.aggregates, flow.state_shards, strict=True)
    ):
        query = state_delta(aggregate, interval, _inputs(run), run.prefix)
        parts = _updates(run, query, shard, aggregate.desc)
        if parts:
            run.deltas[number] = _Delta(parts, aggregate.desc, None, None)
        states.append(parts)
    query = output_delta(flow.plan, interval, _inputs(run), run.prefix)
    output = _updates(run, query, flow.output_shard, flow.plan.output)
    shards = (flow.output_shard, *flow.state_shards)
    return tuple(
        Append(shard, _from(run, shard), upper, parts)
        for shard, parts in zip(shards, (output, *states), strict=True)
    )


def _inputs(run: _Run) -> Inputs:
    small = {leaf for leaf, delta in run.deltas.items() if delta.rows <= BROADCAST_LIMIT_ROWS}
    retracted = {leaf for leaf, delta in run.deltas.items() if delta.retractions}
    return Inputs(run.deltas.keys(), small, retracted)


def _input_delta(run: _Run, global_id: GlobalId, upper: Timestamp) -> _Delta:
    tick, desc = run.tick, run.flow.inputs[global_id].desc
    if tick.first:
        parts = (
            *run.shards.parts_at(run.flow.inputs[global_id].shard_id, tick.lower),
            *_parts(run, global_id, Timestamp(tick.lower + 1), upper),
        )
        distinct = tuple({part.part_id: part for part in parts}.values())
        return _Delta(distinct, desc, None, upper, tick.lower)
    parts = _parts(run, global_id, tick.lower, upper)
    if tick.collapse:
        updates = run.shards.read(parts, desc, lower=tick.lower, upper=upper)
        return _Delta(_collapsed(updates, Timestamp(upper - 1)), desc, None, None)
    return _Delta(parts, desc, tick.lower, upper)


def _collapsed(updates: pa.Table, time: Timestamp) -> tuple[NewPart, ...]:
    """What is left of the updates when all of them happen at `time`."""
    position = updates.schema.get_field_index(TIME_COLUMN)
    times = pa.repeat(pa.scalar(time, pa.int64()), updates.num_rows)
    moved = consolidate(updates.set_column(position, updates.schema.field(position), times))
    return (blobs.inline_part(moved),) if moved.num_rows else ()


# Recomputed


def _recompute(run: _Run) -> tuple[Append, ...]:
    """The updates at the first time at which something changed, up to just after it."""
    tick, flow = run.tick, run.flow
    at = _change(run)
    shard = flow.output_shard
    if at is None:
        return (Append(shard, _from(run, shard), tick.upper, ()),)
    for global_id, source in flow.inputs.items():
        parts = run.shards.parts_at(source.shard_id, at)
        run.deltas[global_id] = _Delta(parts, source.desc, None, Timestamp(at + 1))
    query = opaque_delta(flow.plan, at, not tick.first, run.prefix)
    output = _updates(run, query, shard, flow.plan.output)
    return (Append(shard, _from(run, shard), Timestamp(at + 1), output),)


def _change(run: _Run) -> Timestamp | None:
    tick = run.tick
    if tick.first:
        return tick.lower
    if tick.collapse:
        return Timestamp(tick.upper - 1)
    return first_change(run.flow, run.shards, tick.lower, tick.upper)


def first_change(
    flow: Dataflow, shards: Shards, lower: Timestamp, upper: Timestamp
) -> Timestamp | None:
    """The first time in ``[lower, upper)`` at which an input of the dataflow has an update."""
    times: list[int] = []
    for source in flow.inputs.values():
        parts = shards.parts_between(source.shard_id, lower, upper)
        times.extend(part.min_time for part in parts if part.min_time >= lower)
        spanning = [part for part in parts if part.min_time < lower]
        if spanning:
            updates = shards.read(spanning, source.desc, lower=lower, upper=upper)
            earliest = pc.min(updates.column(TIME_COLUMN)).as_py()
            times.extend(() if earliest is None else (earliest,))
    return Timestamp(min(times)) if times else None


# Queries


def _updates(
    run: _Run, query: UpdatesQuery | None, shard: int, desc: RelationDesc
) -> tuple[NewPart, ...]:
    """The result of the query as parts for the shard."""
    if query is None:
        return ()
    with _views(run, query):
        if sum(delta.rows for delta in run.deltas.values()) > COLLECT_LIMIT_ROWS:
            directory = run.shards.shard_directory(shard)
            return tuple(
                NewPart(
                    FileBody(file.uri, file.size_bytes, file.modified_ms, None),
                    file.rows,
                    Timestamp(file.min_time),
                    Timestamp(file.max_time),
                    file.has_retractions,
                )
                for file in run.engine.write(query.text, directory)
                if file.rows
            )
        collected = run.engine.collect(query.text)
    if collected.num_rows == 0:
        return ()
    conformed = reading.read([blobs.inline_part(collected)], desc)
    return run.shards.new_parts(shard, conformed)


@contextmanager
def _views(run: _Run, query: UpdatesQuery) -> Iterator[None]:
    names: list[str] = []
    try:
        for view in sorted(query.reads, key=str):
            delta = _old(run, view.leaf) if view.old else _delta(run, view.leaf)
            relation = relation_json(
                delta.parts,
                delta.desc,
                lower=delta.lower,
                upper=delta.upper,
                advance_to=delta.advance_to,
            )
            names.append(view.name(run.prefix))
            run.engine.register(names[-1], delta.desc, relation)
        yield
    finally:
        if names:
            run.engine.unregister(names)


def _delta(run: _Run, leaf: Leaf) -> _Delta:
    return run.deltas[leaf]


def _old(run: _Run, leaf: Leaf) -> _Delta:
    """The updates of the leaf before the tick. For a recomputed view, 0 is its own output."""
    lower = run.tick.lower
    flow = run.flow
    if not isinstance(leaf, int):
        shard, desc = flow.inputs[leaf].shard_id, flow.inputs[leaf].desc
    elif flow.plan.is_opaque:
        shard, desc = flow.output_shard, flow.plan.output
    else:
        shard, desc = flow.state_shards[leaf], flow.plan.states[leaf]
    parts = run.shards.parts_at(shard, Timestamp(lower - 1))
    return _Delta(parts, desc, None, lower)


def _parts(run: _Run, global_id: GlobalId, lower: Timestamp, upper: Timestamp) -> tuple[Part, ...]:
    return run.shards.parts_between(run.flow.inputs[global_id].shard_id, lower, upper)


def _from(run: _Run, shard: int) -> Timestamp:
    """Where the append begins: in the first tick, at the upper that the shard was made with."""
    return run.shards.state(shard).upper if run.tick.first else run.tick.lower
