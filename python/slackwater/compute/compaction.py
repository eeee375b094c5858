"""Merging parts of large shards by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.compute.engine import Engine
from slackwater.compute.relations import relation_json
from slackwater.persist.compaction import UNIT_LIMIT, sort_columns
from slackwater.persist.parts import NewPart, Part
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc, quote_identifier


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
        consolidated = any(part.has_retractions for part in parts)
        query = rewriting_query(desc, self.view_name, consolidated, files)
        self.engine.register(self.view_name, desc, relation, consolidated=consolidated)
        try:
            written = self.engine.write(query, directory)
        finally:
            self.engine.unregister([self.view_name])
        return tuple(file.part() for file in written if file.rows)


def rewriting_query(desc: RelationDesc, view_name: str, consolidated: bool, files: int) -> str:
    """The updates of the view, sorted by the row in about `files` partitions.

    `consolidated`: the view has each row once at each time; few equal rows become rows again.
    """
    columns = [quote_identifier(name) for name in desc.stored_names]
    keys = [quote_identifier(name) for name in sort_columns(desc.arrow_schema())]
    listed = ", ".join([*columns, TIME_COLUMN])
    source = f"SELECT {listed}, {DIFF_COLUMN} FROM {view_name}"
    if consolidated:
        units = (
            f"IF({DIFF_COLUMN} BETWEEN 2 AND {UNIT_LIMIT}, "
            f"array_repeat(1L, CAST({DIFF_COLUMN} AS INT)), array({DIFF_COLUMN}))"
        )
        source = f"SELECT {listed}, EXPLODE({units}) AS {DIFF_COLUMN} FROM {view_name}"
    ranges = ", ".join([str(files), *keys])
    hint = f"REPARTITION_BY_RANGE({ranges})" if keys else f"REPARTITION({files})"
    sort = f" SORT BY {', '.join([*keys, TIME_COLUMN])}"
    return f"SELECT /*+ {hint} */ {listed}, {DIFF_COLUMN} FROM ({source}){sort}"
