"""The grammar of ``INTO DELTA`` and ``INTO ICEBERG``, and its canonical text.

Source: surface 4, docs/decisions 0076.
"""

from __future__ import annotations

from slackwater.planner.parser.durations import format_duration
from slackwater.planner.parser.lake_sink import (
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
from slackwater.planner.parser.options import OptionValue, positive_duration
from slackwater.planner.parser.statements import Envelope
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_identifier, quote_string

COMMIT_INTERVAL = "COMMIT INTERVAL"


def read_commit_interval(cursor: TokenCursor, option: str) -> OptionValue:
    """The value of COMMIT INTERVAL, in milliseconds."""
    return positive_duration(cursor, option)


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
    if sink.commit_interval_ms is None:
        return ()
    return (f"{COMMIT_INTERVAL} {quote_string(format_duration(sink.commit_interval_ms))}",)
