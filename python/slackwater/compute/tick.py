"""One tick of one dataflow: from the parts of its inputs to the appends to its shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.compute.dataflow import Dataflow, Shards
from slackwater.compute.engine import Engine, NamedUpdates
from slackwater.compute.programs import RunningView
from slackwater.compute.relations import relation_json
from slackwater.compute.schedule import Tick, capped_upper
from slackwater.persist import blobs, reading
from slackwater.persist.client import Append
from slackwater.persist.consolidate import consolidate
from slackwater.persist.error_shards import first_refusal
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.planner.delta.rules import (
    Inputs,
    Interval,
    Leaf,
    UpdatesQuery,
    UpdatesView,
    opaque_delta,
    output_delta,
    state_delta,
)
from slackwater.planner.plan.nodes import Aggregate, Opaque, ViewPlan
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN, RelationDesc

COLLECT_LIMIT_ROWS = 50_000
"""From so many rows of input on, results are written by executors and not collected."""

INLINE_LIMIT_ROWS = 10_000
"""Up to so many rows that executors wrote become an inline part."""

SMALL_LIMIT_ROWS = 1_000_000
SMALL_LIMIT_BYTES = 64 * 1024 * 1024
"""A query that reads less than both is computed from rows in memory, if they fit, without jobs."""

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
    queries: TickQueries
    deltas: dict[Leaf, _Delta] = field(default_factory=dict)


class TickQueries:
    """The queries of one dataflow's ticks: made once for each kind of tick. Not thread-safe.

    `prefix` makes the names that the queries read, of letters, digits and underscores; while one
    of them runs, nothing else with these names may.
    """

    def __init__(self, plan: ViewPlan, prefix: str, running: RunningView | None = None) -> None:
        self.prefix = prefix
        self.running = running
        """What is asked instead, where the dataflow has a program."""
        self.scanned = 0
        """How many rows the queries of the last tick read."""
        self.wary = False
        """Whether rows that failed earlier are kept from the queries; see `Inputs`."""
        self._plan = plan
        self._steady: dict[tuple[int | None, Inputs], UpdatesQuery | None] = {}

    def state(
        self, aggregate: Aggregate, interval: Interval, inputs: Inputs
    ) -> UpdatesQuery | None:
        """See `slackwater.planner.delta.rules.state_delta`."""
        return self._kept(
            (aggregate.state, inputs),
            interval,
            lambda: state_delta(aggregate, interval, inputs, self.prefix),
        )

    def output(self, interval: Interval, inputs: Inputs) -> UpdatesQuery | None:
        """See `slackwater.planner.delta.rules.output_delta`."""
        return self._kept(
            (None, inputs),
            interval,
            lambda: output_delta(self._plan, interval, inputs, self.prefix),
        )

    def recomputed(self, recorded: bool) -> UpdatesQuery:
        """See `slackwater.planner.delta.rules.opaque_delta`; all its updates have the time 0."""
        inputs = Inputs(frozenset(), frozenset())
        key = (int(recorded), inputs)
        kept = self._steady.get(key)
        if kept is None:
            kept = opaque_delta(self._plan, Timestamp(0), recorded, self.prefix)
            self._steady[key] = kept
        return kept

    def _kept(
        self,
        key: tuple[int | None, Inputs],
        interval: Interval,
        make: Callable[[], UpdatesQuery | None],
    ) -> UpdatesQuery | None:
        # Only in the first interval the text speaks of a time.
        if interval.first:
            return make()
        if key not in self._steady:
            self._steady[key] = make()
        return self._steady[key]


def appends_of_tick(
    flow: Dataflow, tick: Tick, shards: Shards, engine: Engine, queries: TickQueries
) -> tuple[Append, ...]:
    """Computes the tick. Its appends may end before ``tick.upper``: another tick does the rest.

    Nothing is committed. `queries` are those of the dataflow. Raises SLACKWATER_SOURCE_ERROR when
    an input has an error at a time that is to be exact, and what the engine and the shards raise.
    """
    _refuse_errors(flow, tick, shards)
    queries.scanned = 0
    if queries.running is not None:
        return queries.running.appends(tick)
    engine = engine.under(flow.settings)
    run = _Run(flow, tick, shards, engine, queries)
    if isinstance(flow.plan.root, Opaque):
        return _recompute(run)
    try:
        return _maintain(run)
    except SlackwaterError as error:
        if tick.first or queries.wary or not error.is_data_error:
            raise
    # The row that failed may have been corrected long ago.
    queries.wary = True
    try:
        return _maintain(_Run(flow, tick, shards, engine, queries))
    except SlackwaterError:
        queries.wary = False
        raise


def _refuse_errors(flow: Dataflow, tick: Tick, shards: Shards) -> None:
    for source in flow.inputs.values():
        if source.errors_shard is None:
            continue
        error = first_refusal(shards, source.errors_shard, source.name, tick.exact_from, tick.upper)
        if error is not None:
            raise error


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
        query = run.queries.state(aggregate, interval, _inputs(run))
        parts = _updates(run, query, shard, aggregate.desc)
        if parts:
            run.deltas[number] = _Delta(parts, aggregate.desc, None, None)
        states.append(parts)
    query = run.queries.output(interval, _inputs(run))
    output = _updates(run, query, flow.output_shard, flow.plan.output)
    shards = (flow.output_shard, *flow.state_shards)
    return tuple(
        Append(shard, _from(run, shard), upper, parts)
        for shard, parts in zip(shards, (output, *states), strict=True)
    )


def _inputs(run: _Run) -> Inputs:
    small = {leaf for leaf, delta in run.deltas.items() if delta.rows <= BROADCAST_LIMIT_ROWS}
    retracted = {leaf for leaf, delta in run.deltas.items() if delta.retractions}
    return Inputs(frozenset(run.deltas), frozenset(small), frozenset(retracted), run.queries.wary)


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
    moved = consolidate(_at(updates, time))
    return (blobs.inline_part(moved),) if moved.num_rows else ()


def _at(updates: pa.Table, time: Timestamp) -> pa.Table:
    position = updates.schema.get_field_index(TIME_COLUMN)
    times = pa.repeat(pa.scalar(time, pa.int64()), updates.num_rows)
    return updates.set_column(position, updates.schema.field(position), times)


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
    if _is_large(run):
        query = opaque_delta(flow.plan, at, not tick.first, run.queries.prefix)
        output = _updates(run, query, shard, flow.plan.output)
    else:
        query = run.queries.recomputed(not tick.first)
        output = _updates(run, query, shard, flow.plan.output, at)
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
    for shard_id, desc in (each for source in flow.inputs.values() for each in source.shards):
        parts = shards.parts_between(shard_id, lower, upper)
        times.extend(part.min_time for part in parts if part.min_time >= lower)
        spanning = [part for part in parts if part.min_time < lower]
        if spanning:
            updates = shards.read(spanning, desc, lower=lower, upper=upper)
            earliest = pc.min(updates.column(TIME_COLUMN)).as_py()
            times.extend(() if earliest is None else (earliest,))
    return Timestamp(min(times)) if times else None


# Queries


def _updates(
    run: _Run,
    query: UpdatesQuery | None,
    shard: int,
    desc: RelationDesc,
    at: Timestamp | None = None,
) -> tuple[NewPart, ...]:
    """The result of the query as parts for the shard; all of it at the time `at`, if given."""
    if query is None:
        return ()
    views = [_named(run, view) for view in sorted(query.reads, key=lambda v: (str(v.leaf), v.old))]
    run.queries.scanned += sum(part.rows for view in views for part in view.parts)
    if _is_large(run):
        return _few_inline(run, _written(run, query, views, shard), shard, desc)
    collected = run.engine.collect_small(query.text, views) if _is_small(views) else None
    if collected is None:
        with _registered(run, views):
            collected = run.engine.collect(query.text)
    if collected.num_rows == 0:
        return ()
    conformed = reading.conformed(collected, desc)
    return run.shards.new_parts(shard, conformed if at is None else _at(conformed, at))


def _is_large(run: _Run) -> bool:
    return sum(delta.rows for delta in run.deltas.values()) > COLLECT_LIMIT_ROWS


def _is_small(views: Sequence[NamedUpdates]) -> bool:
    parts = [part for view in views for part in view.parts]
    size = sum(part.body.size_bytes for part in parts if isinstance(part.body, FileBody))
    return sum(part.rows for part in parts) <= SMALL_LIMIT_ROWS and size <= SMALL_LIMIT_BYTES


def _written(
    run: _Run, query: UpdatesQuery, views: Sequence[NamedUpdates], shard: int
) -> tuple[NewPart, ...]:
    with _registered(run, views):
        files = run.engine.write(query.text, run.shards.shard_directory(shard))
    run.shards.blobs.settle(file.uri for file in files)
    return tuple(file.part() for file in files if file.rows)


def _few_inline(
    run: _Run, parts: tuple[NewPart, ...], shard: int, desc: RelationDesc
) -> tuple[NewPart, ...]:
    """Few rows out of much input go inline: whoever reads them needs no Spark job then."""
    if not parts or sum(part.rows for part in parts) > INLINE_LIMIT_ROWS:
        return parts
    made = run.shards.new_parts(shard, run.shards.read(parts, desc))
    for part in parts:
        if isinstance(part.body, FileBody):
            run.shards.blobs.delete(part.body.uri)
    return made


def _named(run: _Run, view: UpdatesView) -> NamedUpdates:
    delta = _old(run, view.leaf) if view.old else run.deltas[view.leaf]
    return NamedUpdates(
        view.name(run.queries.prefix),
        delta.desc,
        delta.parts,
        delta.lower,
        delta.upper,
        delta.advance_to,
    )


@contextmanager
def _registered(run: _Run, views: Sequence[NamedUpdates]) -> Iterator[None]:
    names: list[str] = []
    try:
        for view in views:
            relation = relation_json(
                view.parts,
                view.desc,
                lower=view.lower,
                upper=view.upper,
                advance_to=view.advance_to,
            )
            names.append(view.name)
            run.engine.register(view.name, view.desc, relation)
        yield
    finally:
        if names:
            run.engine.unregister(names)


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
