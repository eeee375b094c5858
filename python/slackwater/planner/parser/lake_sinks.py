"""The grammar of ``INTO DELTA`` and ``INTO ICEBERG``, and its canonical text.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from slackwater.planner.parser.durations import format_duration
from slackwater.planner.parser.lake_sink import (
    DeletesBy,
    DeltaSinkConnector,
    IcebergSinkConnector,
    LakeSinkConnector,
)
from slackwater.planner.parser.lake_tables import (
    delta_table_sql,
    iceberg_table_sql,
    read_delta_table,
    read_iceberg_table,
)
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    choice,
    integer,
    positive_duration,
)
from slackwater.planner.parser.statements import Envelope
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_identifier, quote_string

_COMMIT_INTERVAL = "COMMIT INTERVAL"
_DELETES = "DELETES"
_COMPACT_EVERY = "COMPACT EVERY"


def lake_options(sink: LakeSinkConnector) -> Mapping[str, ReadValue]:
    """The options in WITH beside SNAPSHOT."""
    of_iceberg: Mapping[str, ReadValue] = {
        _DELETES: choice("EQUALITY", "REWRITE"),
        _COMPACT_EVERY: integer,
    }
    more = of_iceberg if isinstance(sink, IcebergSinkConnector) else {}
    return {_COMMIT_INTERVAL: positive_duration, **more}


def with_lake_options(
    cursor: TokenCursor,
    sink: LakeSinkConnector,
    envelope: Envelope,
    options: Mapping[str, OptionValue],
) -> LakeSinkConnector:
    """The sink with the options that were read. Raises SLACKWATER_SYNTAX_ERROR."""
    interval = cast("int | None", options.get(_COMMIT_INTERVAL))
    if isinstance(sink, DeltaSinkConnector):
        return replace(sink, commit_interval_ms=interval)
    if _DELETES in options and not envelope.key:
        raise cursor.syntax_error("MODE UPSERT with DELETES")
    word = cast("str | None", options.get(_DELETES))
    deletes = None if word is None else cast("DeletesBy", word.lower())
    every = cast("int | None", options.get(_COMPACT_EVERY))
    return replace(sink, commit_interval_ms=interval, deletes=deletes, compact_every=every)


def read_lake_sink(cursor: TokenCursor) -> tuple[LakeSinkConnector, Envelope]:
    """Reads the statement's rest after INTO, up to WITH: DELTA or ICEBERG."""
    if cursor.accept("DELTA"):
        return _delta(cursor)
    cursor.expect("ICEBERG")
    return _iceberg(cursor)


def _delta(cursor: TokenCursor) -> tuple[DeltaSinkConnector, Envelope]:
    table, _ = read_delta_table(cursor, {})
    envelope, is_enforced = _mode(cursor)
    return DeltaSinkConnector(table, is_enforced), envelope


def _iceberg(cursor: TokenCursor) -> tuple[IcebergSinkConnector, Envelope]:
    table = read_iceberg_table(cursor)
    envelope, is_enforced = _mode(cursor)
    return IcebergSinkConnector(table, is_enforced), envelope


def _mode(cursor: TokenCursor) -> tuple[Envelope, bool]:
    """``KEY (a) NOT ENFORCED MODE UPSERT``: the envelope, and whether the key is enforced."""
    key: tuple[str, ...] = ()
    is_enforced = True
    if cursor.accept("KEY"):
        key = cursor.identifiers()
        is_enforced = not cursor.accept("NOT", "ENFORCED")
    elif cursor.looking_at("ENVELOPE"):
        raise cursor.syntax_error("MODE APPEND or MODE UPSERT")
    at = cursor.token
    cursor.expect("MODE")
    if cursor.accept("UPSERT"):
        if not key:
            raise cursor.syntax_error("KEY (columns) before MODE UPSERT", at)
        return Envelope("UPSERT", key), is_enforced
    if not cursor.accept("APPEND"):
        raise cursor.syntax_error("APPEND or UPSERT")
    if key:
        raise cursor.syntax_error("MODE UPSERT behind KEY", at)
    return Envelope("DIFF"), is_enforced


def lake_sink_sql(sink: LakeSinkConnector, envelope: Envelope) -> str:
    """The canonical text from DELTA or ICEBERG to the mode."""
    match sink:
        case DeltaSinkConnector(table=delta):
            words = [delta_table_sql(delta)]
        case IcebergSinkConnector(table=table):
            words = [iceberg_table_sql(table)]
    if envelope.key:
        columns = ", ".join(map(quote_identifier, envelope.key))
        words.append(f"KEY ({columns})" + ("" if sink.is_enforced else " NOT ENFORCED"))
    words.append("MODE UPSERT" if envelope.key else "MODE APPEND")
    return " ".join(words)


def lake_options_sql(sink: LakeSinkConnector) -> tuple[str, ...]:
    """The options in WITH beside SNAPSHOT."""
    words = []
    if sink.commit_interval_ms is not None:
        interval = quote_string(format_duration(sink.commit_interval_ms))
        words.append(f"{_COMMIT_INTERVAL} {interval}")
    if isinstance(sink, IcebergSinkConnector) and sink.deletes is not None:
        words.append(f"{_DELETES} {quote_string(sink.deletes)}")
    if isinstance(sink, IcebergSinkConnector) and sink.compact_every is not None:
        words.append(f"{_COMPACT_EVERY} {sink.compact_every}")
    return tuple(words)
