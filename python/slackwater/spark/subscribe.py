"""The changes of a relation as a Python iterator, over plain Spark SQL in any front end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa


def subscribe(
    spark: Any,
    relation: str,
    *,
    snapshot: bool = True,
    progress: bool = False,
    as_of: int | None = None,
    up_to: int | None = None,
    timeout_ms: int = 1000,
) -> Iterator[pa.RecordBatch]:
    """The updates of `relation`, a name or a query in parentheses, as they happen.

    Yields non-empty record batches with the columns `mz_timestamp`, `mz_progressed` if `progress`,
    `mz_diff`, then the relation's; times in milliseconds, never decreasing. Begins with the
    contents as of `as_of` (default: now) unless `snapshot` is False, and ends before `up_to`;
    without `up_to` it ends when the generator is closed. One round trip waits at most `timeout_ms`
    for the next change. `spark` is a session of any kind, a Connect session included.

    Raises Spark's exception types with the conditions of SUBSCRIBE.
    """
    cursor = f"subscription_{uuid.uuid4().hex}"
    options = f"SNAPSHOT = {str(snapshot).lower()}, PROGRESS = {str(progress).lower()}"
    text = f"DECLARE {cursor} CURSOR FOR SUBSCRIBE {relation} WITH ({options})"
    if as_of is not None:
        text += f" AS OF {int(as_of)}"
    if up_to is not None:
        text += f" UP TO {int(up_to)}"
    spark.sql(text).collect()
    try:
        while True:
            fetched = spark.sql(
                f"FETCH ALL {cursor} WITH (timeout = '{int(timeout_ms)}ms')"
            ).toArrow()
            if fetched.num_rows:
                yield from (batch for batch in fetched.to_batches() if batch.num_rows)
            elif _has_ended(spark, cursor):
                return
    finally:
        spark.sql(f"CLOSE {cursor}").collect()


def _has_ended(spark: Any, cursor: str) -> bool:
    rows = spark.sql(
        f"SELECT 1 FROM slackwater.mz_internal.mz_subscriptions WHERE id = '{cursor}'"
    ).collect()
    return not rows
