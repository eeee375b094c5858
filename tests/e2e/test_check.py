"""`slackwater check` beside a leader that writes meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from slackwater.cli import app

pytestmark = pytest.mark.spark


def test_a_living_environment_is_in_order(workplace):
    """All that tests before have left in it is verified as well."""
    workplace.sql("CREATE TABLE t (k BIGINT, s STRING)")
    workplace.sql("CREATE MATERIALIZED VIEW v AS SELECT k % 7 AS r, sum(k) AS n FROM t GROUP BY 1")
    workplace.sql("CREATE MATERIALIZED VIEW broken AS SELECT 1 / (k - 5) AS x FROM t")
    workplace.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '50 milliseconds')")
    location = Path(workplace.application.location)
    before = set(location.rglob("*.parquet"))
    workplace.sql("INSERT INTO t SELECT id, repeat(id, 300) FROM range(0, 20000, 1, 2)")
    of_executors = next(iter(set(location.rglob("*.parquet")) - before))
    enough, written = threading.Event(), []

    def write():
        while not enough.is_set():
            workplace.sql("INSERT INTO t SELECT id, 'x' FROM range(50)")
            workplace.sql("DELETE FROM t WHERE k % 3 = 0 AND s = 'x'")
            written.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            result = CliRunner().invoke(app, ["check", "--location", str(location), "--deep"])
            assert (result.exit_code, "FAIL" in result.stdout) == (0, False), result.stdout
    finally:
        enough.set()
        writer.join()
    assert written
    # Files that executors write have checksums too.
    damaged = bytearray(of_executors.read_bytes())
    column = pq.ParquetFile(of_executors).metadata.row_group(0).column(1)
    damaged[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    copy = workplace.folder / "damaged.parquet"
    copy.write_bytes(damaged)
    with pytest.raises(OSError, match=r"CRC|checksum"):
        pq.ParquetFile(copy, page_checksum_verification=True).read()
