"""The trace of a statement, as far as the history knows it: a function of its end."""

from __future__ import annotations

from slackwater.adapter.history.events import Ended
from slackwater.repr.spans import PastSpan

SPARK = "spark execution"
"""Spark's work for a statement, from its start, or else from the bind, to its end."""


def spans_of(ended: Ended) -> tuple[PastSpan, tuple[PastSpan, ...]]:
    """The span of a statement, and those of what Spark has done for it."""
    number = ended.spark_execution_id
    named: dict[str, str | int | None] = {
        "session": ended.key.session_id,
        "statement": ended.key.statement_id,
        "spark_execution_id": number,
        "status": ended.status.value,
        "timestamp": ended.timestamp,
        "rows_returned": ended.rows_returned,
        "rows_written": ended.rows_written,
    }
    condition = None if ended.failure is None else ended.failure.condition
    whole = PastSpan(ended.kind, ended.began_ms, ended.ended_ms, named, condition)
    parts = (
        PastSpan(
            SPARK,
            read.began_ms,
            read.ended_ms,
            {"spark_execution_id": number, "rows_returned": read.rows},
            None if read.failure is None else read.failure.condition,
        )
        for read in ended.reads
    )
    return whole, tuple(parts)
