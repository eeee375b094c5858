"""The recomputation that the demo compares with: plain Spark over the same CSV files.

It reads none of Slackwater's collections. The changes that the tour makes to the reference tables
are written here a second time, as expressions over the CSV files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slackwater.demo.scripts import fill, read_script

FLIGHTS = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
SCHEMAS = {
    "airlines": "carrier STRING, name STRING",
    "airports": (
        "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING"
    ),
    "planes": (
        "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, "
        "seats INT, speed INT, engine STRING"
    ),
    "weather": (
        "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
        "humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, "
        "pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
    ),
}
CHANGED = {
    "airlines": (
        "SELECT carrier, CASE WHEN carrier = 'US' THEN '{airline}' ELSE name END AS name "
        "FROM {csv} UNION ALL SELECT 'SW', 'Slackwater Air'"
    ),
    "planes": (
        "SELECT tailnum, manufacturer, CASE WHEN tailnum = 'N14228' THEN 150 ELSE seats END "
        "AS seats FROM {csv} WHERE year IS NULL OR year >= 1980 "
        "UNION ALL SELECT 'N99999', 'CESSNA', 4 UNION ALL SELECT 'N0TIDE', 'AIRBUS', 180"
    ),
}


def read_csv(spark: Any, path: Path, schema: str) -> Any:
    """A DataFrame over a CSV file or a folder of them, as the demo's data writes them."""
    return spark.read.csv(str(path), schema=schema, header=True, nullValue="NA", mode="FAILFAST")


class Plain:
    """Answers the views' queries from the CSV files alone. `feed` is the folder of flights."""

    def __init__(self, spark: Any, references: Path, feed: Path) -> None:
        self._spark = spark
        self._names = {"flights": "plain_flights"}
        self._queries = read_script("queries")
        self._feed = feed
        for name, schema in SCHEMAS.items():
            read_csv(spark, references / f"{name}.csv", schema).createOrReplaceTempView(
                f"plain_{name}"
            )
            self._names[name] = f"plain_{name}"

    def change(self, airline: str) -> None:
        """Makes to the reference data the changes that the tour's statements made."""
        for name, query in CHANGED.items():
            changed = query.format(csv=f"plain_{name}", airline=airline)
            self._spark.sql(changed).createOrReplaceTempView(f"changed_{name}")
            self._names[name] = f"changed_{name}"

    def rows(self, view: str) -> Sequence[tuple[Any, ...]]:
        """The rows that the view of this name must have, sorted."""
        # Spark lists a folder when the DataFrame is made: a new one sees the files of now.
        read_csv(self._spark, self._feed, FLIGHTS).createOrReplaceTempView("plain_flights")
        days = f"({fill(self._queries['carrier_days'], **self._names)})"
        text = fill(self._queries[view], **self._names, carrier_days=days)
        return sorted_rows(self._spark.sql(text).collect())


def sorted_rows(rows: Sequence[Any]) -> Sequence[tuple[Any, ...]]:
    """Rows as tuples in an order that does not depend on how they were made; NULLs first."""
    return sorted(
        (tuple(row) for row in rows),
        key=lambda row: [(value is not None, str(value)) for value in row],
    )
