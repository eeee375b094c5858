"""TPC-H's tables in an environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MASTER = "local[2]"
LARGE_MEMORY = {"spark.driver.memory": "6g"}
LOAD_S = 1200
TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")


def load(application, folder, scale, tables=TABLES):
    """Generates them at a scale factor and makes tables of them in `slackwater.default`."""
    data = folder / "data"
    tool = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([tool, "parquet", "-s", scale, f"--output-dir={data}"], check=True)
    application.sql("USE slackwater.default")
    application.sql("SET statement_timeout = '20 minutes'")
    for table in tables:
        application.sql(
            f"CREATE TABLE {table} AS SELECT * FROM parquet.`{data}/{table}.parquet`",
            timeout_s=LOAD_S,
        )
