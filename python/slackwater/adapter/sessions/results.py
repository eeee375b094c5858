"""Results of statements as Arrow tables with Spark's schema beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.repr.errors import user_error
from slackwater.repr.relation import RelationDesc

NO_COLUMNS = RelationDesc(())


@dataclass(frozen=True, slots=True)
class Result:
    """Rows, and the description of their columns."""

    desc: RelationDesc
    table: pa.Table

    def to_ipc(self) -> bytes:
        """The rows as an Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.desc.arrow_schema()) as writer:
            writer.write_table(self.table)
        return bytes(sink.getvalue())


def check_size(size_bytes: int, limit_bytes: int) -> None:
    """Raises SLACKWATER_RESULT_SIZE for what is larger than the limit."""
    if size_bytes > limit_bytes:
        raise user_error("SLACKWATER_RESULT_SIZE", limit=str(limit_bytes))


def done() -> Result:
    """The answer of a command without rows."""
    return rows(NO_COLUMNS, ())


def rows(desc: RelationDesc, values: Sequence[Sequence[object]]) -> Result:
    """A result from Python values, row by row."""
    schema = desc.arrow_schema()
    columns = [
        pa.array([row[index] for row in values], type=field.type)
        for index, field in enumerate(schema)
    ]
    return Result(desc, pa.Table.from_arrays(columns, schema=schema))


def strings(*names: str, **others: str) -> RelationDesc:
    """A description of STRING columns, then others by Spark type name."""
    kinds: Mapping[str, str] = {**dict.fromkeys(names, "string"), **others}
    return RelationDesc.of(**kinds)
