"""Reading parts through PyArrow, whoever wrote them.

Files of Spark differ from ours in small ways: names and nullability inside nested types, INT96
timestamps, narrower decimals, no time and diff in a uniform part. Parts from before a column was
added lack it. All of that is brought to the relation's update schema here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.persist.blobs import Blobs
from slackwater.persist.nested import as_lists
from slackwater.persist.parts import FileBody, InlineBody, NewPart, Part, Uniform
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc


def read(
    parts: Iterable[Part | NewPart],
    desc: RelationDesc,
    *,
    blobs: Blobs,
    lower: Timestamp | None = None,
    upper: Timestamp | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The updates of the parts with ``lower <= __time < upper``, not consolidated.

    Columns: those of `desc` (or of `columns`, in their order), then ``__time`` and ``__diff``. A
    column that a part lacks is NULL. Raises `FatalError` when a file is missing or damaged, and
    SLACKWATER_STORAGE_UNREADABLE when the store of `blobs` does not answer.
    """
    schema = _projected(desc.update_schema(), columns)
    tables = [_within(_read_part(part, schema, blobs), lower, upper) for part in parts]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def conformed(updates: pa.Table, desc: RelationDesc) -> pa.Table:
    """The updates with the columns and types of `desc`; a column that they lack is NULL."""
    return _conformed(updates, desc.update_schema())


def _projected(schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    if columns is None:
        return schema
    return pa.schema([schema.field(name) for name in (*columns, TIME_COLUMN, DIFF_COLUMN)])


def _read_part(part: Part | NewPart, schema: pa.Schema, blobs: Blobs) -> pa.Table:
    match part.body:
        case InlineBody(ipc):
            with pa.ipc.open_stream(ipc) as reader:
                return _conformed(reader.read_all(), schema)
        case FileBody(uri, _, _, uniform):
            return _conformed(_read_file(uri, schema, uniform, blobs), schema)


def _read_file(uri: str, schema: pa.Schema, uniform: Uniform | None, blobs: Blobs) -> pa.Table:
    try:
        with (
            blobs.open(uri) as source,
            pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True) as file,
        ):
            present = set(file.schema_arrow.names)
            table = file.read(columns=[name for name in schema.names if name in present])
            rows = file.metadata.num_rows
    except (OSError, pa.ArrowException) as error:
        outage = blobs.outage(uri, error) if isinstance(error, OSError) else None
        if outage is not None:
            raise outage from None
        raise FatalError(f"the part {uri} cannot be read: {error}") from error
    return table if uniform is None else _with_uniform(table, rows, uniform)


def _with_uniform(table: pa.Table, rows: int, uniform: Uniform) -> pa.Table:
    times = pa.repeat(pa.scalar(uniform.time, pa.int64()), rows)
    diffs = pa.repeat(pa.scalar(uniform.diff, pa.int64()), rows)
    return pa.table(
        [*table.columns, times, diffs], names=[*table.column_names, TIME_COLUMN, DIFF_COLUMN]
    )


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    if table.schema.equals(schema):
        return table
    return pa.Table.from_arrays([_column(table, field) for field in schema], schema=schema)


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    index = table.schema.get_field_index(field.name)
    if index < 0:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(index)
    chunks = [_as_type(chunk, field.type) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _as_type(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The values in the target type. Nested types are rebuilt, since a cast is too strict there."""
    if values.type.equals(target):
        return values
    if pa.types.is_struct(target):
        fields = {
            field.name: child for field, child in zip(values.type, values.flatten(), strict=True)
        }
        children = [
            _as_type(fields[field.name], field.type)
            if field.name in fields
            else pa.nulls(len(values), field.type)
            for field in target
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())
    if pa.types.is_map(target):
        values = as_lists(values)
        entries = values.flatten()
        keys = _as_type(entries.field(0), target.key_type)
        items = _as_type(entries.field(1), target.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target)
    if pa.types.is_list(target):
        elements = _as_type(values.flatten(), target.value_type)
        return pa.ListArray.from_arrays(_offsets(values), elements, type=target)
    return values.cast(target)


def _offsets(values: pa.Array) -> pa.Array:
    """Offsets into the flattened values; a NULL list has a NULL offset."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    absent = pa.concat_arrays([values.is_null(), pa.array([False])])
    return pc.if_else(absent, pa.scalar(None, pa.int32()), offsets)


def _within(updates: pa.Table, lower: Timestamp | None, upper: Timestamp | None) -> pa.Table:
    times = updates.column(TIME_COLUMN)
    if lower is not None:
        updates = updates.filter(pc.greater_equal(times, lower))
        times = updates.column(TIME_COLUMN)
    # Behind the last time there is none: a collection that is closed is read at that time.
    if upper is None or upper > TIMESTAMP_MAX:
        return updates
    return updates.filter(pc.less(times, upper))
