"""Merging parts of large shards by Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.compute.engine import Engine
from slackwater.compute.relations import relation_json
from slackwater.persist.compaction import UNIT_LIMIT, sort_columns
from slackwater.persist.parts import NewPart, Part
from slackwater.planner.parser.canonical import quote_string
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import (
    DIFF_COLUMN,
    TIME_COLUMN,
    Column,
    RelationDesc,
    quote_identifier,
)


@dataclass(frozen=True, slots=True)
class EngineRewriter:
    """`slackwater.persist.compaction.Rewriter` by jobs of the engine.

    While it runs, nobody else may have a temporary view of the name.
    """

    engine: Engine
    view_name: str = "__sw_compaction"

    def rewrite(
        self,
        parts: Sequence[Part],
        desc: RelationDesc,
        since: Timestamp,
        directory: str,
        files: int,
    ) -> tuple[NewPart, ...]:
        relation = relation_json(parts, desc, advance_to=since)
        query = rewriting_query(
            desc, self.view_name, any(part.has_retractions for part in parts), files
        )
        self.engine.register(self.view_name, desc, relation)
        try:
            written = self.engine.write(query, directory)
        finally:
            self.engine.unregister([self.view_name])
        return tuple(file.part() for file in written if file.rows)


def rewriting_query(desc: RelationDesc, view_name: str, consolidated: bool, files: int) -> str:
    """The updates of the view, sorted by the row in about `files` partitions.

    `consolidated`: equal rows of one time are summed, and few equal rows stay rows of their own.
    """
    columns = [quote_identifier(name) for name in desc.names]
    keys = [quote_identifier(name) for name in sort_columns(desc.arrow_schema())]
    listed = ", ".join([*columns, TIME_COLUMN])
    source = f"SELECT {listed}, {DIFF_COLUMN} FROM {view_name}"
    if consolidated:
        total = f"CAST(SUM({DIFF_COLUMN}) AS BIGINT)"
        units = (
            f"IF({DIFF_COLUMN} BETWEEN 2 AND {UNIT_LIMIT}, "
            f"array_repeat(1L, CAST({DIFF_COLUMN} AS INT)), array({DIFF_COLUMN}))"
        )
        values = ", ".join([*(_one_of_equal(column) for column in desc.columns), TIME_COLUMN])
        groups = ", ".join([*(_comparable_column(column) for column in desc.columns), TIME_COLUMN])
        source = (
            f"SELECT {listed}, EXPLODE({units}) AS {DIFF_COLUMN} FROM "
            f"(SELECT {values}, {total} AS {DIFF_COLUMN} FROM {view_name} "
            f"GROUP BY {groups} HAVING SUM({DIFF_COLUMN}) <> 0)"
        )
    ranges = ", ".join([str(files), *keys])
    hint = f"REPARTITION_BY_RANGE({ranges})" if keys else f"REPARTITION({files})"
    sort = f" SORT BY {', '.join([*keys, TIME_COLUMN])}"
    return f"SELECT /*+ {hint} */ {listed}, {DIFF_COLUMN} FROM ({source}){sort}"


def _one_of_equal(column: Column) -> str:
    name = quote_identifier(column.name)
    return f"FIRST({name}) AS {name}" if '"map"' in column.type_json else name


def _comparable_column(column: Column) -> str:
    name = quote_identifier(column.name)
    return comparable(name, json.loads(column.type_json)) if '"map"' in column.type_json else name


def comparable(value: str, kind: Any, depth: int = 0) -> str:
    """`value` in a form in which equal maps are equal: arrays of entries, sorted by key.

    `kind` is the type as Spark's JSON has it. Spark's own form for grouping makes a zero of a NULL
    among a map's primitive values, in generated code.
    """
    if '"map"' not in json.dumps(kind):
        return value
    element = f"e{depth}"
    if kind["type"] == "map":
        inner = comparable(f"{element}.value", kind["valueType"], depth + 1)
        entry = f"named_struct('key', {element}.key, 'value', {inner})"
        return f"array_sort(transform(map_entries({value}), {element} -> {entry}))"
    if kind["type"] == "array":
        inner = comparable(element, kind["elementType"], depth + 1)
        return f"transform({value}, {element} -> {inner})"
    listed = ", ".join(
        f"{quote_string(field['name'])}, "
        + comparable(f"{value}.{quote_identifier(field['name'])}", field["type"], depth)
        for field in kind["fields"]
    )
    return f"IF({value} IS NULL, NULL, named_struct({listed}))"
