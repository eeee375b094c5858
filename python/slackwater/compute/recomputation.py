"""A view computed as a whole, and the row because of which it cannot be."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from slackwater.compute.cost_model import CostModel
from slackwater.compute.engine import Engine, TickEnded, ViewContents
from slackwater.compute.failing import called
from slackwater.compute.flow_shards import FlowShards
from slackwater.compute.records import StepRecord
from slackwater.compute.schedule import Tick
from slackwater.compute.tick_outcome import Computed, TickMeter
from slackwater.persist.client import Append
from slackwater.repr.dataflow_error import DATA_ERROR, SOURCE_ERROR, EvaluationError
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

INHERITED = frozenset({DATA_ERROR, SOURCE_ERROR})
"""The errors of a view that those of its inputs are."""

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(frozen=True, slots=True)
class Recomputation:
    """Computes the contents of one view out of its inputs at a time, without its program."""

    shards: FlowShards
    engine: Engine
    cost_model: CostModel

    def until_change(self, tick: Tick, meter: TickMeter) -> Computed:
        """The updates up to just after the first time at which an input has changed."""
        at = self.shards.first_change(tick.lower, tick.upper)
        if at is None:
            return Computed(Append(self.shards.flow.view.shard_id, tick.lower, tick.upper, ()))
        return self.contents(tick, at, meter)

    def soon(self, tick: Tick, at: Timestamp, meter: TickMeter) -> Computed:
        """As `contents`. Raises `TickEnded` when it takes twice as long as was expected.

        The program may stay open meanwhile: it can follow what has changed instead.
        """
        rows, read_before = self.shards.input_rows(at), meter.scanned
        whole_ms = self.shards.limits.whole_ms
        most_ms = max(whole_ms, self.cost_model.most_whole_us(rows) // 1000)
        began_s = meter.monotonic()
        try:
            return self.contents(tick, at, meter, most_ms)
        except TickEnded:
            meter.scanned = read_before
            self.cost_model.computed(rows, meter.us_since(began_s))
            _LOG.info("recomputing_ended", view=self.shards.flow.name, after_ms=most_ms)
            raise

    def contents(
        self, tick: Tick, at: Timestamp, meter: TickMeter, most_ms: int | None = None
    ) -> Computed:
        """The contents at `at`, as what they differ by from those just before the tick.

        Raises `TickEnded` when it takes longer than `most_ms`, and the error of an input that has
        one at `at`.
        """
        shards, flow = self.shards, self.shards.flow
        shards.refuse_errors(at, Timestamp(at + 1))
        inputs, rows = shards.contents(at), shards.input_rows(at)
        meter.scanned += rows
        recorded = None if tick.first else shards.recorded(Timestamp(tick.lower - 1), meter)
        view = ViewContents(flow.plan.kept, flow.view.desc, at, inputs.contents, recorded)
        began_s = meter.monotonic()
        # Few rows of input may make many.
        rows_of_few = self.engine.collect_view(view, most_ms) if inputs.few else None
        if rows_of_few is not None:
            parts = shards.inline(rows_of_few, meter)
        else:
            directory = shards.shards.files.shard_directory(flow.view.shard_id)
            files = self.engine.write_view(view, directory, most_ms)
            shards.shards.files.blobs.settle(file.uri for file in files)
            parts = shards.few_inline(tuple(file.part() for file in files if file.rows))
        took_us = meter.us_since(began_s)
        self.cost_model.computed(rows, took_us)
        emitted = sum(part.rows for part in parts)
        upper = Timestamp(at + 1)
        append = Append(flow.view.shard_id, self._lower(tick), upper, parts)
        step = StepRecord("recompute", "recompute", emitted, 0, took_us)
        return Computed(append, (step,))

    def nothing(self, tick: Tick, upper: Timestamp) -> Append:
        """No updates up to `upper`."""
        return Append(self.shards.flow.view.shard_id, self._lower(tick), upper, ())

    def failure(self, error: SlackwaterError, at: Timestamp) -> EvaluationError:
        """`error` of the contents at `at`, or that of the row that makes them fail, if one does."""
        flow, found = self.shards.flow, None
        if error.condition not in INHERITED:
            inputs = self.shards.contents(at)
            view = ViewContents(flow.plan.kept, flow.view.desc, at, inputs.contents)
            found = self.engine.failing_row(view, few=inputs.few)
        if found is None:
            return EvaluationError.of(error, flow.name, flow.input_names)
        names = {str(g): source.name for g, source in flow.inputs.items()}
        row = called(found, names)
        return EvaluationError.of(found.error, flow.name, flow.input_names, row)

    def _lower(self, tick: Tick) -> Timestamp:
        """The tick's lower; of a first tick the upper of the output, if that is before it.

        If another worker was first, the append does not fit then.
        """
        return min(tick.lower, self.shards.output_upper) if tick.first else tick.lower
