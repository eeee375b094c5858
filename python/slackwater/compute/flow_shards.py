"""The durable shards of one dataflow: its inputs, their changes and errors, and its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.compute.dataflow import Dataflow, Input, Shards
from slackwater.compute.engine import Contents, InputContents
from slackwater.compute.limits import Limits
from slackwater.compute.relations import relation_json
from slackwater.compute.tick_outcome import TickMeter
from slackwater.persist import reading
from slackwater.persist.error_shards import first_refusal
from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

Changes = Mapping[GlobalId, tuple[Part, ...]]
"""For each input the parts that may have updates in an interval."""


@dataclass(frozen=True, slots=True)
class FlowShards:
    """Reads the shards of a dataflow and makes parts of its output. Commits nothing.

    Each call reads the state of the shards anew, so that two calls may see commits of other
    workers between them.
    """

    flow: Dataflow
    shards: Shards
    limits: Limits

    @property
    def output_upper(self) -> Timestamp:
        return self.shards.reads.state(self.flow.view.shard_id).upper

    def readable_from(self, lower: Timestamp) -> Timestamp:
        """The first time from `lower` on at which all inputs can be read.

        Where an input cannot be read, the output is not known either.
        """
        shards = [source.shard_id for source in self.flow.inputs.values()]
        return max((self.shards.reads.state(each).since for each in shards), default=lower)

    def refuse_errors(self, lower: Timestamp, upper: Timestamp) -> None:
        """Raises SLACKWATER_SOURCE_ERROR or SLACKWATER_DATA_ERROR when an input has an error."""
        for source in self.flow.inputs.values():
            if source.errors_shard is not None:
                error = first_refusal(
                    self.shards.reads, source.errors_shard, source.name, lower, upper
                )
                if error is not None:
                    raise error

    def changes(self, lower: Timestamp, upper: Timestamp) -> Changes:
        """For each input the parts that may have updates in the interval."""
        return {
            g: self.shards.reads.parts_between(source.shard_id, lower, upper)
            for g, source in self.flow.inputs.items()
        }

    def has_few_changes(self, lower: Timestamp, upper: Timestamp) -> bool:
        """Whether so few rows change in the interval that others may wait for who follows them."""
        changes = self.changes(lower, upper).values()
        rows = sum(part.rows for parts in changes for part in parts)
        return rows <= self.limits.quick_rows

    def first_change(self, lower: Timestamp, upper: Timestamp) -> Timestamp | None:
        """The first time in ``[lower, upper)`` at which rows or errors of an input change."""
        shards = (each for source in self.flow.inputs.values() for each in source.shards)
        times = [t for shard, desc in shards for t in self._first_times(shard, desc, lower, upper)]
        return Timestamp(min(times)) if times else None

    def input_rows(self, at: Timestamp) -> int:
        """The number of rows in the parts of all inputs that a read at `at` reads."""
        return sum(self._rows_at(source.shard_id, at) for source in self.flow.inputs.values())

    def rows_of(self, name: str, at: Timestamp) -> int:
        """As `input_rows`, of the one input with this id."""
        return self._rows_at(self.flow.inputs[GlobalId(name)].shard_id, at)

    def contents(self, at: Timestamp) -> InputContents:
        """All inputs at `at`."""
        contents: dict[str, Contents] = {}
        for global_id, source in self.flow.inputs.items():
            parts = self.shards.reads.parts_at(source.shard_id, at)
            relation = relation_json(parts, source.desc, as_of=at)
            contents[global_id] = Contents(source.desc, relation)
        return InputContents(at, contents, few=self.input_rows(at) < self.limits.few_rows)

    def recorded(self, at: Timestamp, meter: TickMeter) -> Contents:
        """The updates of the output up to `at`."""
        output = Input(self.flow.view.shard_id, self.flow.view.desc)
        meter.scanned += self._rows_at(output.shard_id, at)
        parts = self.shards.reads.parts_at(output.shard_id, at)
        return Contents(output.desc, relation_json(parts, output.desc, upper=Timestamp(at + 1)))

    def inline(self, updates: pa.Table, meter: TickMeter) -> tuple[NewPart, ...]:
        """Parts of the output with these updates; none if there are none.

        Their columns are those of the view in its order, then time and diff.
        """
        if updates.num_rows == 0:
            return ()
        began_s = meter.monotonic()
        view = self.flow.view
        named = updates.rename_columns([*view.desc.stored_names, TIME_COLUMN, DIFF_COLUMN])
        parts = self.shards.files.new_parts(view.shard_id, reading.conformed(named, view.desc))
        meter.encode_us += meter.us_since(began_s)
        return parts

    def error_parts(self, changes: Sequence[tuple[str, int, int]]) -> tuple[NewPart, ...]:
        """Parts of the shard of errors, out of errors with their times and diffs; none without."""
        if not changes:
            return ()
        schema = ERRORS.update_schema()
        rows = [dict(zip(schema.names, each, strict=True)) for each in changes]
        updates = pa.Table.from_pylist(rows, schema=schema)
        return self.shards.files.new_parts(self.flow.view.errors_shard, updates)

    def few_inline(self, parts: tuple[NewPart, ...]) -> tuple[NewPart, ...]:
        """Few rows out of much input go inline: whoever reads them needs no Spark job then."""
        if not parts or sum(part.rows for part in parts) > self.limits.inline_rows:
            return parts
        view = self.flow.view
        rows = self.shards.reads.read(parts, view.desc)
        made = self.shards.files.new_parts(view.shard_id, rows)
        for part in parts:
            if isinstance(part.body, FileBody):
                self.shards.files.blobs.delete(part.body.uri)
        return made

    def _rows_at(self, shard_id: int, at: Timestamp) -> int:
        return sum(part.rows for part in self.shards.reads.parts_at(shard_id, at))

    def _first_times(
        self, shard_id: int, desc: RelationDesc, lower: Timestamp, upper: Timestamp
    ) -> list[int]:
        parts = self.shards.reads.parts_between(shard_id, lower, upper)
        times: list[int] = [part.min_time for part in parts if part.min_time >= lower]
        spanning = [part for part in parts if part.min_time < lower]
        if spanning:
            updates = self.shards.reads.read(spanning, desc, lower=lower, upper=upper)
            earliest = pc.min(updates.column(TIME_COLUMN)).as_py()
            times.extend(() if earliest is None else (earliest,))
        return times
