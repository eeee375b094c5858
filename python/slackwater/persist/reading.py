"""Reading parts through PyArrow, whoever wrote them.

Files of Spark differ from ours in small ways: names and nullability inside nested types, INT96
timestamps, narrower decimals, no time and diff in a uniform part. Parts from before a column was
added lack it. All of that is brought to the relation's update schema here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.persist.blobs import Blobs
from slackwater.persist.ipc import from_stream
from slackwater.persist.nested import as_type
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


def read_where(
    parts: Iterable[Part | NewPart],
    desc: RelationDesc,
    column: str,
    wanted: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    *,
    blobs: Blobs,
) -> pa.Table:
    """The updates whose value in `column` is `wanted`, which answers true or false for each value.

    Of a file, all columns are read only where a row group has such values. Else as `read`.
    """
    schema = desc.update_schema()
    tables = [table for part in parts for table in _read_where(part, schema, column, wanted, blobs)]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def read_column(part: Part | NewPart, desc: RelationDesc, column: str, *, blobs: Blobs) -> pa.Array:
    """The values of the column in the part."""
    schema = pa.schema([desc.update_schema().field(column)])
    return _read_part(part, schema, blobs).column(0)


def read_in_groups(part: Part | NewPart, desc: RelationDesc, *, blobs: Blobs) -> Iterator[pa.Table]:
    """All updates of the part, of a file a row group at a time. Checksums in the file are checked.

    Else as `read`.
    """
    schema = desc.update_schema()
    if not isinstance(part.body, FileBody):
        yield _read_part(part, schema, blobs)
        return
    with _opened(part.body.uri, blobs, is_verified=True) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=_present(file, schema))
            if part.body.uniform is not None:
                rows = file.metadata.row_group(group).num_rows
                table = _with_uniform(table, rows, part.body.uniform)
            yield _conformed(table, schema)


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
            return _conformed(from_stream(ipc), schema)
        case FileBody(uri, _, _, uniform):
            return _conformed(_read_file(uri, schema, uniform, blobs), schema)


def _read_file(uri: str, schema: pa.Schema, uniform: Uniform | None, blobs: Blobs) -> pa.Table:
    with _opened(uri, blobs) as file:
        table = file.read(columns=_present(file, schema))
        rows = file.metadata.num_rows
    return table if uniform is None else _with_uniform(table, rows, uniform)


@contextmanager
def _opened(uri: str, blobs: Blobs, *, is_verified: bool = False) -> Iterator[pq.ParquetFile]:
    """The file. `is_verified`: what is read of it has to have the checksums in it, if any."""
    try:
        with (
            blobs.open(uri) as source,
            pq.ParquetFile(
                source,
                coerce_int96_timestamp_unit="us",
                pre_buffer=True,
                page_checksum_verification=is_verified,
            ) as file,
        ):
            yield file
    except (OSError, pa.ArrowException) as error:
        outage = blobs.outage(uri, error) if isinstance(error, OSError) else None
        if outage is not None:
            raise outage from None
        raise FatalError(f"the part {uri} cannot be read: {error}") from error


def _present(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    present = set(file.schema_arrow.names)
    return [name for name in schema.names if name in present]


def _read_where(
    part: Part | NewPart,
    schema: pa.Schema,
    column: str,
    wanted: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    blobs: Blobs,
) -> Iterator[pa.Table]:
    if not isinstance(part.body, FileBody):
        table = _read_part(part, schema, blobs)
        yield table.filter(wanted(table.column(column)))
        return
    only = pa.schema([schema.field(column)])
    with _opened(part.body.uri, blobs) as file:
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            # A column that the file lacks is NULL in all rows.
            found = file.read_row_group(group, columns=_present(file, only))
            values = _conformed(found, only) if found.num_columns else _nulls(only, rows)
            mask = wanted(values.column(0))
            if pc.any(mask).as_py():
                table = file.read_row_group(group, columns=_present(file, schema))
                if part.body.uniform is not None:
                    table = _with_uniform(table, rows, part.body.uniform)
                yield _conformed(table, schema).filter(mask)


def _nulls(schema: pa.Schema, rows: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


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
    chunks = [as_type(chunk, field.type) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


def _within(updates: pa.Table, lower: Timestamp | None, upper: Timestamp | None) -> pa.Table:
    times = updates.column(TIME_COLUMN)
    if lower is not None:
        updates = updates.filter(pc.greater_equal(times, lower))
        times = updates.column(TIME_COLUMN)
    # Behind the last time there is none: a collection that is closed is read at that time.
    if upper is None or upper > TIMESTAMP_MAX:
        return updates
    return updates.filter(pc.less(times, upper))
