"""Values that the tests of the shim's data half share."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from tests.support.applications.parts_coordinator import (
    DIFF,
    TIME,
    Json,
    from_ipc,
    schema,
)

KV = schema(k="integer", v="string")


def kv(*rows: tuple[int | None, str | None]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.int32()),
            "v": pa.array([r[1] for r in rows], pa.string()),
        }
    )


def updates(*rows: tuple[int | None, str | None, int, int]) -> pa.Table:
    """Rows with their times and diffs."""
    return (
        kv(*[(k, v) for k, v, _, _ in rows])
        .append_column(TIME, pa.array([r[2] for r in rows], pa.int64()))
        .append_column(DIFF, pa.array([r[3] for r in rows], pa.int64()))
    )


def bag(rows: list[Row]) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in rows)


def of(*rows: tuple[Any, ...]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


def diffs(write: Json) -> Counter[str]:
    assert write["mode"] == "diff"
    counted: Counter[str] = Counter()
    for stream in write["inline"]:
        for row in from_ipc(stream).to_pylist():
            diff = row.pop(DIFF)
            counted[repr((tuple(row.values()), diff))] += 1
    return counted


T_ROWS = of((1, "a"), (2, "b"), (None, None), (5, "e"))


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def jobs(spark: SparkSession, action: Callable[[], object]) -> int:
    spark.sparkContext.setJobGroup("counted", "counted")
    try:
        before = len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
        action()
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted")) - before
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


EVERYTHING = schema(
    b="boolean",
    i8="byte",
    i16="short",
    i32=["integer"],
    i64="long",
    f="float",
    d="double",
    s="string",
    bin="binary",
    day="date",
    ts="timestamp",
    ntz="timestamp_ntz",
    dec="decimal(12,3)",
    wide="decimal(38,10)",
    vc="varchar(10)",
    ch="char(4)",
    arr={"type": "array", "elementType": "integer", "containsNull": True},
    m={"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    st={
        "type": "struct",
        "fields": [
            {"name": "x", "type": "integer", "nullable": True, "metadata": {}},
            {
                "name": "y",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            },
        ],
    },
)
ARROW = pa.schema(
    [
        ("b", pa.bool_()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        pa.field("i32", pa.int32(), False),
        ("i64", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("ntz", pa.timestamp("us")),
        ("dec", pa.decimal128(12, 3)),
        ("wide", pa.decimal128(38, 10)),
        ("vc", pa.string()),
        ("ch", pa.string()),
        ("arr", pa.list_(pa.field("element", pa.int32()))),
        ("m", pa.map_(pa.string(), pa.int64())),
        (
            "st",
            pa.struct([("x", pa.int32()), ("y", pa.list_(pa.field("element", pa.string())))]),
        ),
    ]
)
MOMENT = dt.datetime(2024, 3, 10, 2, 30, 0, 123456)
VALUES: list[Json] = [
    {
        "b": True,
        "i8": -8,
        "i16": 16,
        "i32": 32,
        "i64": 2**62,
        "f": 1.5,
        "d": float("nan"),
        "s": "ü",
        "bin": b"\x00\xff",
        "day": dt.date(1969, 12, 31),
        "ts": MOMENT.replace(tzinfo=dt.timezone.utc),
        "ntz": MOMENT,
        "dec": Decimal("-1.250"),
        "wide": Decimal("12345678901234567890.0123456789"),
        "vc": "abc",
        "ch": "x   ",
        "arr": [1, None, 3],
        "m": [("a", 1), ("b", None)],
        "st": {"x": 1, "y": ["p", None]},
    },
    {name: (7 if name == "i32" else None) for name in ARROW.names},
    {
        **dict.fromkeys(ARROW.names),
        "i32": 8,
        "d": -0.0,
        "arr": [],
        "m": [],
        "st": {"x": None, "y": None},
    },
]


def everything() -> pa.Table:
    return pa.Table.from_pylist(VALUES, ARROW)
