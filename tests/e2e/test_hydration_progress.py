"""How far a view that is being filled has come can be read while it is filled."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ROWS = 3_000_000
PROGRESS = "SELECT rows_read, rows_known, elapsed_ms FROM mz_internal.mz_hydration_progress"
"""Without a job of executors, which are busy."""


def test_progress_is_told_in_rows_until_the_view_is_dropped(tmp_path):
    # In many tasks: Spark tells what they have read when they end.
    conf = {"spark.sql.files.maxPartitionBytes": "100k", "spark.sql.files.openCostInBytes": "0"}
    with Application(tmp_path / "environment", master="local[2]", conf=conf) as place:
        place.sql("USE slackwater")
        place.sql(f"CREATE TABLE t AS SELECT id AS k FROM range(0, {ROWS}, 1, 24)")
        # It takes minutes, so that what is read is seen to grow; it is not waited for.
        sums = "aggregate(sequence(1, 400 + k % 2), 0L, (s, n) -> s + n)"
        place.sql(f"CREATE MATERIALIZED VIEW slow AS SELECT k, {sums} AS s FROM t")
        seen = []

        def has_read_more():
            seen.extend(place.rows(PROGRESS))
            return len({read for read, _, _ in seen if read > 0}) > 1

        wait_until(has_read_more)
        read, _, elapsed = zip(*seen, strict=True)
        assert list(read) == sorted(read)
        assert list(elapsed) == sorted(elapsed)
        assert read[-1] < ROWS
        assert {known for _, known, _ in seen} == {ROWS}
        place.sql("DROP MATERIALIZED VIEW slow")
        wait_until(lambda: not place.rows(PROGRESS))
