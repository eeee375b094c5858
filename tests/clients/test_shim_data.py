"""Reading and writing collections in a real Spark session, above a coordinator of plain parts."""

from __future__ import annotations

import datetime as dt
import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from parts_coordinator import (
    DIFF,
    TIME,
    Json,
    PartsCoordinator,
    Table,
    from_ipc,
    schema,
)
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import lit

JARS = sorted(
    (Path(__file__).parents[2] / "python/slackwater/jars").glob("slackwater-spark_4.2_*.jar")
)

pytestmark = pytest.mark.spark

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


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartsCoordinator]:
    served = PartsCoordinator(tmp_path_factory.mktemp("environment"))
    yield served
    served.close()


@pytest.fixture(scope="module")
def base(
    coordinator: PartsCoordinator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    assert JARS, "make jar builds it"
    folder = tmp_path_factory.mktemp("spark")
    script = folder / "python"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{coordinator.announcement()}\nEND\n")
    script.chmod(0o755)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", str(JARS[0]))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.slackwater.python", str(script))
        .config("spark.slackwater.location", str(coordinator.location))
        .getOrCreate()
    )
    session.sql("USE slackwater")
    yield session
    session.stop()


@pytest.fixture
def env(coordinator: PartsCoordinator) -> PartsCoordinator:
    coordinator.reset()
    return coordinator


@pytest.fixture
def spark(base: SparkSession, env: PartsCoordinator) -> SparkSession:
    return base


@pytest.fixture
def t(env: PartsCoordinator, tmp_path: Path) -> Table:
    """Three rows in a file at 10, one inline at 20."""
    table = env.create("t", KV)
    table.put_file(tmp_path / "t.parquet", kv((1, "a"), (2, "b"), (None, None)), 10, 1)
    table.put_inline(kv((5, "e")), 20)
    return table


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


# --- reading


def test_reads_files_and_inline_rows(spark: SparkSession, t: Table) -> None:
    assert bag(spark.sql("SELECT * FROM t").collect()) == T_ROWS
    assert bag(spark.table("slackwater.default.t").collect()) == T_ROWS
    assert spark.sql("SELECT count(*) FROM t WHERE k > 1").collect() == [Row(2)]


def test_an_empty_collection(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("e", KV)
    assert spark.sql("SELECT * FROM e").collect() == []
    assert spark.sql("SELECT count(*), max(v) FROM e").collect() == [Row(0, None)]


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


@pytest.mark.parametrize("kind", ["file", "inline", "both", "consolidated", "timed file"])
def test_all_types_equal_plain_spark(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path, kind: str
) -> None:
    table = env.create("types", EVERYTHING)
    path = tmp_path / "types.parquet"
    count = len(VALUES)
    copies = 2 if kind == "both" else 1
    if kind in ("file", "both", "consolidated"):
        table.put_file(path, everything(), 10, 1)
    if kind in ("inline", "both"):
        table.put_inline(everything(), 20)
    if kind == "consolidated":
        table.put_inline(everything(), 20)
        table.put_inline(everything(), 30, -1)
    if kind == "timed file":
        timed = everything().append_column(TIME, pa.array([10] * count, pa.int64()))
        table.put_file(
            path, timed.append_column(DIFF, pa.array([1] * count, pa.int64())), None, None
        )
    plain_path = tmp_path / "plain.parquet"
    other = env.create("plain", EVERYTHING)
    other.put_file(plain_path, everything(), 0, 1)
    plain = spark.read.parquet(str(plain_path)).collect()
    expected = Counter({row: n * copies for row, n in bag(plain).items()})

    found = spark.sql("SELECT * FROM types")
    assert found.schema["i32"].nullable is False
    assert bag(found.collect()) == bag_signless(expected, kind)


def bag_signless(expected: Counter[str], kind: str) -> Counter[str]:
    """Spark's grouping makes 0.0 of -0.0."""
    if kind != "consolidated":
        return expected
    return Counter({row.replace("-0.0", "0.0"): n for row, n in expected.items()})


def test_filters_and_columns_reach_parquet(spark: SparkSession, t: Table) -> None:
    plan = plan_of(spark.sql("SELECT v FROM t WHERE k = 2"))
    assert "PushedFilters: [IsNotNull(k), EqualTo(k,2)]" in plan
    assert "ReadSchema: struct<k:int,v:string>" in plan
    assert "Batched: true" in plan
    plan = plan_of(spark.sql("SELECT v FROM t"))
    assert "ReadSchema: struct<v:string>" in plan


def test_filters_reach_parquet_below_a_consolidation(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    table = env.create("c", KV)
    rows = updates((1, "a", 5, 1), (2, "b", 5, 2), (2, "b", 6, -1), (3, "c", 7, -1), (3, "c", 5, 1))
    table.put_file(tmp_path / "c.parquet", rows, None, None)
    table.retractions = True
    frame = spark.sql("SELECT * FROM c WHERE k = 2")
    assert "EqualTo(k,2)" in plan_of(frame)
    assert bag(frame.collect()) == of((2, "b"))
    assert bag(spark.table("c").collect()) == of((1, "a"), (2, "b"))


def test_explain_shows_the_time_of_each_collection(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    env.create("i", KV).put_inline(kv((5, "x")), 20)
    text = spark.sql("EXPLAIN SELECT * FROM t JOIN i USING (k) AS OF 25").collect()[0][0]
    assert "slackwater.default.t as of 25" in text
    assert "slackwater.default.i as of 25" in text
    assert len(env.seen("/v1/bind")) == 1


def test_inline_rows_need_no_job(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("i", KV).put_inline(kv((1, "x"), (2, "y")), 20)
    found: list[Row] = []
    assert (
        jobs(spark, lambda: found.extend(spark.sql("SELECT k + 1 FROM i WHERE k > 1").collect()))
        == 0
    )
    assert found == [Row(3)]


def test_new_columns_are_null_in_old_parts(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    table = env.create("grown", schema(k="integer", v="string", n="long"))
    table.put_file(tmp_path / "old.parquet", kv((1, "a")), 10, 1)
    table.put_inline(kv((2, "b")), 20)
    assert bag(spark.table("grown").collect()) == of((1, "a", None), (2, "b", None))


# --- consolidation


@pytest.mark.parametrize("in_files", [True, False])
def test_consolidation_keeps_multiplicities(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path, in_files: bool
) -> None:
    table = env.create("m", KV)
    rows = kv(*[(1, "a")] * 3, *[(None, None)] * 2, (2, None), (3, "c"))
    if in_files:
        table.put_file(tmp_path / "m.parquet", rows, 10, 1)
    else:
        table.put_inline(rows, 10)
    table.put_inline(kv((1, "a"), (None, None), (3, "c")), 20, -1)
    table.put_inline(kv((4, "d")), 30)
    expected = of((1, "a"), (1, "a"), (None, None), (2, None), (4, "d"))
    assert bag(spark.table("m").collect()) == expected
    assert spark.sql("SELECT count(*) FROM m").collect() == [Row(5)]
    before = expected - of((4, "d")) + of((1, "a"), (None, None), (3, "c"))
    assert bag(spark.sql("SELECT * FROM m AS OF 15").collect()) == before


def test_few_retractions_leave_files_unshuffled(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    table = env.create("big", schema(k=["long"], v="string"))
    rows = pa.table(
        {"k": pa.array(range(50_000), pa.int64()), "v": [str(k % 7) for k in range(50_000)]},
        schema=pa.schema([pa.field("k", pa.int64(), False), ("v", pa.string())]),
    )
    table.put_file(tmp_path / "big.parquet", rows, 10, 1)
    table.put_inline(rows.slice(100, 5), 20, -1)
    found = spark.sql("SELECT count(*), sum(k), count(DISTINCT k) FROM big").collect()
    gone = sum(range(100, 105))
    assert found == [Row(49_995, sum(range(50_000)) - gone, 49_995)]
    plan = plan_of(spark.table("big"))
    assert "xxhash64" in plan
    assert "PushedFilters: [In(k," in plan.replace("InSet", "In") or "LessThanOrEqual" in plan


def test_values_that_compare_by_more_than_bytes(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    map_type = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    table = env.create("f", schema(d="double", m=map_type))

    def rows(*values: tuple[float | None, list[tuple[str, int]] | None]) -> pa.Table:
        return pa.table(
            {
                "d": pa.array([v[0] for v in values], pa.float64()),
                "m": pa.array([v[1] for v in values], pa.map_(pa.string(), pa.int64())),
            }
        )

    nan = float("nan")
    table.put_file(
        tmp_path / "f.parquet",
        rows((0.0, None), (nan, [("a", 1), ("b", 2)]), (1.0, [("a", 1), ("b", 2)]), (2.0, None)),
        10,
        1,
    )
    table.put_inline(rows((-0.0, None), (nan, [("b", 2), ("a", 1)])), 20, -1)
    found = spark.sql("SELECT d, map_entries(m) FROM f ORDER BY d").collect()
    assert [row[0] for row in found] == [1.0, 2.0]


# --- time


@pytest.mark.parametrize(
    "time",
    [
        "15",
        "'15'",
        "15.0",
        "10 + 5",
        "timestamp '1970-01-01 00:00:00.015+00:00'",
        "'1969-12-31 19:00:00.015'",
    ],
)
def test_as_of_forms(spark: SparkSession, env: PartsCoordinator, t: Table, time: str) -> None:
    assert bag(spark.sql(f"SELECT * FROM t AS OF {time}").collect()) == T_ROWS - of((5, "e"))
    assert [b["as_of"] for b in env.seen("/v1/bind")] == [{"at": 15}]


def test_as_of_at_least(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    assert bag(spark.sql("SELECT * FROM t AS OF AT LEAST 3").collect()) == T_ROWS
    assert env.seen("/v1/bind")[0]["as_of"] == {"at_least": 3}


@pytest.mark.parametrize(
    "time",
    ["now()", "current_timestamp", "k", "nothing", "-1", "1.5", "NULL", "mz_now()", "rand()",
     "'soon'", "(SELECT 1)", "true", "1 / 0"],
)  # fmt: skip
def test_as_of_refuses_what_is_not_one_moment(
    spark: SparkSession, env: PartsCoordinator, t: Table, time: str
) -> None:
    with pytest.raises(AnalysisException) as error:
        spark.sql(f"SELECT * FROM t AS OF {time}").collect()
    assert error.value.getCondition() == "SLACKWATER_INVALID_AS_OF"
    assert error.value.getSqlState() == "22023"
    assert env.seen("/v1/bind") == []


def test_time_travel_of_one_table(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    frame = spark.sql("SELECT a.k FROM t VERSION AS OF 15 a LEFT JOIN t b ON a.k = b.k AS OF 25")
    assert bag(frame.collect()) == of((1,), (2,), (None,))
    [bind] = env.seen("/v1/bind")
    assert bind["as_of"] == {"at": 25}
    assert sorted(json.dumps(r["as_of"]) for r in bind["relations"]) == ["null", '{"at": 15}']


def test_as_of_reaches_subqueries_and_ctes(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    frame = spark.sql(
        "WITH c AS (SELECT max(k) m FROM t) "
        "SELECT (SELECT count(*) FROM t), m, EXISTS (SELECT 1 FROM t WHERE k = 5) FROM c AS OF 15"
    )
    assert frame.collect() == [Row(3, 2, False)]
    [bind] = env.seen("/v1/bind")
    assert len(bind["relations"]) == 3


def test_mz_now_is_the_time_of_the_bind(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    [row] = spark.sql("SELECT mz_now(), (SELECT max(mz_now()) FROM t)").collect()
    assert row[0] == row[1] == env.now
    assert spark.sql("SELECT mz_now() AS OF 77").collect() == [Row(77)]
    assert [len(b["relations"]) for b in env.seen("/v1/bind")] == [1, 0]
    assert spark.sql("SELECT mz_now()").schema[0].dataType.simpleString() == "bigint"


# --- one bind for each execution


def binds(env: PartsCoordinator, action: Callable[[], object]) -> int:
    before = len(env.seen("/v1/bind"))
    action()
    return len(env.seen("/v1/bind")) - before


STATEMENTS = [
    "SELECT * FROM t a JOIN t b USING (k) WHERE a.k > (SELECT min(k) FROM t)",
    "WITH c AS (SELECT * FROM t) SELECT * FROM c JOIN c d USING (k) WHERE EXISTS (SELECT 1 FROM t)",
    "SELECT k FROM t WHERE k IN (SELECT k FROM t) UNION SELECT k FROM t",
    "EXPLAIN SELECT * FROM t",
    "EXPLAIN EXTENDED SELECT * FROM t",
    "CREATE TABLE spark_catalog.default.copy USING parquet AS SELECT * FROM t",
    "INSERT INTO spark_catalog.default.target SELECT * FROM t",
    "INSERT OVERWRITE spark_catalog.default.target SELECT * FROM t",
    "INSERT INTO t SELECT * FROM t WHERE k = 1",
    "UPDATE t SET v = 'x' WHERE k IN (SELECT k FROM t WHERE k = 1)",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM t s WHERE s.k = t.k + 100)",
    "MERGE INTO t USING t s ON t.k = s.k WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING t s ON t.k = s.k + 1000 WHEN NOT MATCHED THEN INSERT *",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_binds_once(
    spark: SparkSession, env: PartsCoordinator, t: Table, statement: str
) -> None:
    spark.sql("DROP TABLE IF EXISTS spark_catalog.default.copy")
    spark.sql("DROP TABLE IF EXISTS spark_catalog.default.target")
    spark.sql("CREATE TABLE spark_catalog.default.target (k INT, v STRING) USING parquet")
    assert binds(env, lambda: spark.sql(statement).collect()) == 1


def test_frames_bind_once_for_each_action(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    frame = spark.sql("SELECT * FROM t WHERE k > :low", {"low": 0})
    assert binds(env, lambda: None) == 0
    assert binds(env, lambda: frame.show()) == 1
    assert binds(env, lambda: frame.toPandas()) == 1
    assert binds(env, lambda: [frame.count() for _ in range(3)]) == 3
    assert binds(env, lambda: spark.table("t").toArrow()) == 1
    assert binds(env, lambda: spark.table("t").rdd.count()) == 1
    frame.createOrReplaceTempView("tv")
    assert binds(env, lambda: spark.sql("SELECT count(*) FROM tv JOIN t USING (k)").collect()) == 1


def test_writes_of_values_do_not_bind(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    assert binds(env, lambda: spark.sql("INSERT INTO t VALUES (7, 'g')").collect()) == 0
    assert binds(env, lambda: spark.sql("DELETE FROM t").collect()) == 0
    assert binds(env, lambda: spark.sql("TRUNCATE TABLE t").collect()) == 0


def test_a_cached_frame_is_not_read_stale(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    frame = spark.table("t")
    frame.cache()
    pinned = spark.sql("SELECT * FROM t AS OF 15")
    pinned.cache()
    try:
        assert frame.count() == 4
        assert pinned.count() == 3
        t.put_inline(kv((6, "f")), 12)
        assert spark.table("t").count() == 5
        assert spark.sql("SELECT * FROM t AS OF 15").count() == 3  # the cached one
        assert "InMemoryTableScan" in plan_of(spark.sql("SELECT * FROM t AS OF 15"))
    finally:
        spark.catalog.clearCache()


def test_an_unbound_relation_is_refused(spark: SparkSession, t: Table) -> None:
    frame = spark.table("t")
    session = spark._jsparkSession
    with pytest.raises(PySparkException) as error:
        session.sessionState().executePlan(
            frame._jdf.queryExecution().analyzed(),
            spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.ALL(),
        ).sparkSession().sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    assert error.value.getCondition() == "SLACKWATER_UNBOUND_RELATION"


def test_streams_are_refused(spark: SparkSession, t: Table) -> None:
    with pytest.raises(AnalysisException) as error:
        spark.readStream.table("slackwater.default.t")
    assert error.value.getCondition() == "SLACKWATER_UNSUPPORTED"


# --- holds


def test_a_hold_ends_with_its_execution(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    spark.sql("SELECT * FROM t").collect()
    assert env.released(env.last_hold)
    with pytest.raises(PySparkException):
        spark.sql("SELECT raise_error(v) FROM t").collect()
    assert env.released(env.last_hold)
    spark.sql("EXPLAIN SELECT * FROM t").collect()
    assert env.released(env.last_hold)


def test_a_lazy_result_keeps_its_hold(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    rdd = spark.table("t").rdd
    assert rdd.count() == 4
    hold = env.last_hold
    spark.sparkContext._jvm.System.gc()
    spark.sql("SELECT count(*) FROM t").collect()
    assert env.released(env.last_hold)
    assert not env.released(hold, limit_s=0)
    del rdd
    gc.collect()
    assert env.wait_while(
        lambda: not env.released(hold, limit_s=0), spark.sparkContext._jvm.System.gc
    )


def test_a_write_takes_its_hold(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    spark.sql("INSERT INTO t SELECT * FROM t")
    assert [w["hold"] for w in env.seen("/v1/write")] == [env.last_hold]
    assert env.seen("/v1/bind")[0]["write_target"] == t.id
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO t SELECT raise_error(v), v FROM t WHERE k = 1")
    assert env.released(env.last_hold)
    with pytest.raises(PySparkException):
        spark.sql("UPDATE t SET v = raise_error(v) WHERE k = 1")
    assert env.released(env.last_hold)
    assert len(env.seen("/v1/write")) == 1


# --- writing


def written(env: PartsCoordinator) -> Json:
    [write] = env.seen("/v1/write")
    return write


def test_insert_values(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    action = lambda: spark.sql("INSERT INTO t (v, k) VALUES ('x', 9), (NULL, 10L)").collect()  # noqa: E731
    assert jobs(spark, action) == 0
    write = written(env)
    assert (write["mode"], write["hold"], write["files"]) == ("append", None, [])
    [stream] = write["inline"]
    assert from_ipc(stream).to_pylist() == [{"k": 9, "v": "x"}, {"k": 10, "v": None}]
    assert from_ipc(stream).schema.types == [pa.int32(), pa.string()]
    assert bag(spark.table("t").collect()) == T_ROWS + of((9, "x"), (10, None))


def test_insert_of_all_types_comes_back(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    env.create("a", EVERYTHING).put_file(tmp_path / "a.parquet", everything(), 10, 1)
    env.create("b", EVERYTHING)
    env.create("c", EVERYTHING)
    spark.sql("INSERT INTO b SELECT * FROM a")
    spark.sql("INSERT INTO c SELECT a.* FROM a CROSS JOIN range(10000)")
    assert bag(spark.table("b").collect()) == bag(spark.table("a").collect())
    assert env.tables["c"].inline == []
    assert len(env.tables["c"].files) >= 1
    expected = bag(spark.table("a").collect())
    assert bag(spark.table("c").collect()) == Counter({r: n * 10000 for r, n in expected.items()})


def test_overwrites(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    spark.sql("INSERT OVERWRITE t VALUES (1, 'only')")
    assert written(env)["mode"] == "overwrite"
    assert bag(spark.table("t").collect()) == of((1, "only"))
    spark.sql("INSERT OVERWRITE t SELECT k + 1, v FROM t")
    assert bag(spark.table("t").collect()) == of((2, "only"))
    spark.sql("TRUNCATE TABLE t")
    assert spark.table("t").collect() == []


def test_frames_write(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    name = "slackwater.default.t"
    frame = spark.createDataFrame([(8, "h")], "k INT, v STRING")
    frame.writeTo(name).append()
    frame.write.insertInto(name)
    frame.write.mode("append").saveAsTable(name)
    assert bag(spark.table("t").collect()) == T_ROWS + of(*[(8, "h")] * 3)
    frame.writeTo(name).overwrite(lit(True))
    assert bag(spark.table("t").collect()) == of((8, "h"))
    frame.write.mode("overwrite").insertInto(name)
    assert bag(spark.table("t").collect()) == of((8, "h"))
    with pytest.raises(PySparkException):
        frame.writeTo(name).overwrite(frame.k == 8)


def test_large_writes_become_files(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    spark.sql("INSERT INTO t SELECT CAST(id AS INT), 'r' || id FROM range(0, 60000, 1, 2)")
    write = written(env)
    assert write["inline"] == []
    assert sum(f["rows"] for f in write["files"]) == 60000
    for file in write["files"]:
        path = Path(file["uri"].removeprefix("file://"))
        assert path.stat().st_size == file["size_bytes"]
        assert int(path.stat().st_mtime * 1000) == file["modified_ms"]
    assert spark.sql("SELECT count(*), count(DISTINCT v) FROM t").collect() == [Row(60004, 60003)]


def test_small_results_of_many_tasks_become_one_file(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    spark.sql("INSERT INTO t SELECT CAST(id AS INT), 'r' FROM range(0, 30000, 1, 3)")
    write = written(env)
    assert (write["inline"], [f["rows"] for f in write["files"]]) == ([], [30000])


def test_not_null_and_defaults_are_sparks(spark: SparkSession, env: PartsCoordinator) -> None:
    columns = schema(k=["integer"], v="string")
    columns["fields"][1]["metadata"] = {"CURRENT_DEFAULT": "'d'", "EXISTS_DEFAULT": "'d'"}
    env.create("n", columns)
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO n VALUES (CAST(NULL AS INT), 'x')")
    assert env.seen("/v1/write") == []
    spark.sql("INSERT INTO n (k) VALUES (1)")
    spark.sql("INSERT INTO n VALUES (2, DEFAULT)")
    assert bag(spark.table("n").collect()) == of((1, "d"), (2, "d"))


def test_each_write_has_its_own_id(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    for _ in range(2):
        spark.sql("INSERT INTO t VALUES (1, 'x')")
    ids = [w["write_id"] for w in env.seen("/v1/write")]
    assert len(set(ids)) == 2


READ_ONLY = [
    "INSERT INTO s VALUES (1, 'a')",
    "INSERT OVERWRITE s VALUES (1, 'a')",
    "UPDATE s SET v = 'x'",
    "DELETE FROM s WHERE k = 1",
    "DELETE FROM s",
    "TRUNCATE TABLE s",
    "MERGE INTO s USING t ON s.k = t.k WHEN MATCHED THEN DELETE",
    "MERGE INTO s USING t ON s.k = t.k WHEN NOT MATCHED THEN INSERT *",
]


@pytest.mark.parametrize("kind", ["source", "materialized-view", "system-table"])
@pytest.mark.parametrize("statement", READ_ONLY)
def test_read_only_relations(
    spark: SparkSession, env: PartsCoordinator, t: Table, kind: str, statement: str
) -> None:
    env.create("s", KV, kind)
    with pytest.raises(AnalysisException) as error:
        spark.sql(statement).collect()
    assert error.value.getCondition() == "SLACKWATER_READ_ONLY_RELATION"
    assert error.value.getSqlState() == "42809"
    with pytest.raises(AnalysisException):
        spark.table("t").writeTo("slackwater.default.s").append()
    assert env.seen("/v1/write") == []


# --- row-level operations


@pytest.fixture
def u(env: PartsCoordinator, tmp_path: Path) -> Table:
    """Duplicates and NULLs, in a file and inline."""
    table = env.create("u", KV)
    table.put_file(tmp_path / "u.parquet", kv((1, "a"), (1, "a"), (2, None), (None, "n")), 10, 1)
    table.put_inline(kv((1, "a"), (3, "c")), 20)
    return table


def test_update(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    assert spark.sql("UPDATE u SET v = v || '!', k = k + 10 WHERE k = 1").collect() == []
    write = written(env)
    assert diffs(write) == Counter({"((1, 'a'), -1)": 3, "((11, 'a!'), 1)": 3})
    assert write["hold"] == env.last_hold
    assert env.seen("/v1/bind")[0]["write_target"] == u.id
    expected = of(*[(11, "a!")] * 3, (2, None), (None, "n"), (3, "c"))
    assert bag(spark.table("u").collect()) == expected


def test_delete(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    spark.sql("DELETE FROM u WHERE k IS NULL OR v IS NULL OR k = 3")
    expected = {"((None, 'n'), -1)": 1, "((2, None), -1)": 1, "((3, 'c'), -1)": 1}
    assert diffs(written(env)) == Counter(expected)
    assert bag(spark.table("u").collect()) == of(*[(1, "a")] * 3)


def test_delete_by_subquery(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    spark.sql("DELETE FROM u WHERE k = (SELECT max(k) FROM u)")
    assert diffs(written(env)) == Counter({"((3, 'c'), -1)": 1})


def test_delete_without_condition(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    spark.sql("DELETE FROM u")
    write = written(env)
    assert (write["mode"], write["inline"], write["files"]) == ("overwrite", [], [])
    assert spark.table("u").collect() == []


def test_merge(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    env.create("s", KV).put_inline(kv((1, "new"), (3, "gone"), (9, "in"), (10, "skip")), 20)
    spark.sql(
        "MERGE INTO u USING s ON u.k = s.k WHEN MATCHED AND s.v = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED AND s.v = 'in' THEN INSERT * "
        "WHEN NOT MATCHED BY SOURCE AND u.k IS NULL THEN UPDATE SET v = 'nobody'"
    )
    assert diffs(written(env)) == Counter(
        {
            "((1, 'a'), -1)": 3,
            "((1, 'new'), 1)": 3,
            "((3, 'c'), -1)": 1,
            "((9, 'in'), 1)": 1,
            "((None, 'n'), -1)": 1,
            "((None, 'nobody'), 1)": 1,
        }
    )
    expected = of(*[(1, "new")] * 3, (2, None), (9, "in"), (None, "nobody"))
    assert bag(spark.table("u").collect()) == expected


def test_merge_refuses_two_sources_for_one_row(
    spark: SparkSession, env: PartsCoordinator, u: Table
) -> None:
    env.create("s", KV).put_inline(kv((3, "x"), (3, "y")), 20)
    with pytest.raises(PySparkException) as error:
        spark.sql("MERGE INTO u USING s ON u.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v")
    assert "MERGE_CARDINALITY_VIOLATION" in str(error.value)
    assert env.seen("/v1/write") == []
    assert env.released(env.last_hold)


def test_merge_that_only_inserts(spark: SparkSession, env: PartsCoordinator, u: Table) -> None:
    env.create("s", KV).put_inline(kv((3, "x"), (4, "y")), 20)
    spark.sql("MERGE INTO u USING s ON u.k = s.k WHEN NOT MATCHED THEN INSERT *")
    write = written(env)
    assert (write["mode"], write["hold"]) == ("append", env.last_hold)
    assert [from_ipc(s).to_pylist() for s in write["inline"]] == [[{"k": 4, "v": "y"}]]


def test_a_large_update_becomes_files(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    table = env.create("big", schema(k="long", v="string"))
    rows = pa.table({"k": pa.array(range(40_000), pa.int64()), "v": ["x"] * 40_000})
    table.put_file(tmp_path / "big.parquet", rows, 10, 1)
    spark.sql("UPDATE big SET v = 'y' WHERE k % 2 = 0")
    write = written(env)
    assert sum(f["rows"] for f in write["files"]) == 40_000
    assert spark.sql("SELECT v, count(*), sum(k) FROM big GROUP BY v ORDER BY v").collect() == [
        Row("x", 20_000, sum(range(1, 40_000, 2))),
        Row("y", 20_000, sum(range(0, 40_000, 2))),
    ]


def test_update_of_all_types(spark: SparkSession, env: PartsCoordinator, tmp_path: Path) -> None:
    env.create("a", EVERYTHING).put_file(tmp_path / "a.parquet", everything(), 10, 1)
    before = spark.table("a").collect()
    spark.sql("UPDATE a SET i64 = 1, st = named_struct('x', 5, 'y', array('q')) WHERE i32 > 7")
    after = {row.i32: row for row in spark.table("a").collect()}
    assert len(after) == len(before)
    for row in before:
        for name in ARROW.names:
            if row.i32 == 7 or name not in ("i64", "st", "d"):
                assert after[row.i32][name] == row[name], name
        if row.i32 > 7:
            assert (after[row.i32].i64, after[row.i32].st) == (1, Row(x=5, y=["q"]))


# --- the bridge


class Bridge:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.scala = spark._jvm.org.apache.spark.sql.slackwater.Bridge

    def strings(self, *values: str) -> Any:
        array = self.spark.sparkContext._gateway.new_array(
            self.spark._jvm.java.lang.String, len(values)
        )
        for i, value in enumerate(values):
            array[i] = value
        return array

    def analyze(self, text: str) -> Json:
        found: Json = json.loads(self.scala.analyze(text, "slackwater", self.strings("default")))
        return found

    def collect(self, text: str) -> pa.Table:
        stream = self.scala.collect(text, "slackwater", self.strings("default"))
        return pa.ipc.open_stream(stream).read_all()

    def register(self, name: str, table: Table, **bounds: int) -> None:
        relation = {
            "id": table.id,
            "files": table.files,
            "inline": table.inline,
            "lower": bounds.get("lower"),
            "upper": bounds.get("upper"),
            "advance_to": bounds.get("advance_to"),
        }
        self.scala.register(name, json.dumps(table.schema), json.dumps(relation))


@pytest.fixture
def bridge(spark: SparkSession) -> Bridge:
    return Bridge(spark)


def test_analyze(bridge: Bridge, env: PartsCoordinator, t: Table) -> None:
    view = env.create("w", schema(k="integer"), "view")
    view.view = {
        "query": "SELECT k FROM t WHERE k > 1",
        "catalog": "slackwater",
        "namespace": ["default"],
    }
    found = bridge.analyze("SELECT w.k, mz_now() n, rand() r FROM w JOIN t USING (k)")
    assert [f["name"] for f in found["schema"]["fields"]] == ["k", "n", "r"]
    assert (found["relations"], found["views"], found["foreign"]) == ([t.id], [view.id], [])
    assert (found["nondeterministic"], found["uses_mz_now"]) == (["rand"], True)
    assert env.seen("/v1/bind") == []
    assert bridge.analyze("SELECT now() FROM range(3)")["nondeterministic"] == ["now"]


def test_analyze_names_foreign_relations(bridge: Bridge, spark: SparkSession, t: Table) -> None:
    spark.sql("CREATE TABLE IF NOT EXISTS spark_catalog.default.other (k INT) USING parquet")
    found = bridge.analyze("SELECT * FROM t JOIN spark_catalog.default.other USING (k)")
    assert [name.split(".")[-1] for name in found["foreign"]] == ["other"]


def test_analyze_gives_sparks_errors(bridge: Bridge, t: Table) -> None:
    error = bridge.analyze("SELECT nothing FROM t")["error"]
    assert error["condition"] == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert error["sqlstate"] == "42703"
    assert error["position"] == {"line": 1, "column": 7}
    assert "SQLSTATE" not in error["message"]
    assert not error["message"].startswith("[")
    assert bridge.analyze("SELECT 1 +")["error"]["sqlstate"] == "42601"


def test_registered_updates(
    bridge: Bridge, env: PartsCoordinator, t: Table, tmp_path: Path
) -> None:
    t.put_file(tmp_path / "more.parquet", updates((7, "g", 11, 1), (7, "g", 21, -1)), None, None)
    bridge.register("every", t)
    bridge.register("some", t, lower=11, upper=21)
    bridge.register("late", t, upper=21, advance_to=15)
    rows = bridge.collect("SELECT * FROM every ORDER BY __time, k NULLS FIRST").to_pylist()
    assert [tuple(r.values()) for r in rows] == [
        (None, None, 10, 1),
        (1, "a", 10, 1),
        (2, "b", 10, 1),
        (7, "g", 11, 1),
        (5, "e", 20, 1),
        (7, "g", 21, -1),
    ]
    some = bridge.collect("SELECT k, __time, __diff FROM some ORDER BY k").to_pylist()
    assert [tuple(r.values()) for r in some] == [(5, 20, 1), (7, 11, 1)]
    late = bridge.collect("SELECT __time, sum(__diff) FROM late GROUP BY 1 ORDER BY 1")
    assert [tuple(r.values()) for r in late.to_pylist()] == [(15, 4), (20, 1)]
    both = bridge.collect("SELECT count(*) c FROM every a JOIN every b ON a.k = b.k")
    assert both.to_pylist() == [{"c": 7}]
    assert env.seen("/v1/bind") == []
    bridge.scala.unregister(bridge.strings("every", "some", "late"))
    with pytest.raises(PySparkException):
        bridge.collect("SELECT * FROM every")


def test_collect_reads_collections_and_releases(
    bridge: Bridge, env: PartsCoordinator, t: Table
) -> None:
    table = bridge.collect("SELECT count(*) c FROM t AS OF 15")
    assert table.to_pylist() == [{"c": 3}]
    assert env.released(env.last_hold)


def test_write_describes_its_files(
    bridge: Bridge, env: PartsCoordinator, t: Table, tmp_path: Path
) -> None:
    t.put_inline(kv((5, "e")), 30, -1)
    bridge.register("all_of_t", t)
    found = json.loads(
        bridge.scala.write(
            "SELECT /*+ COALESCE(1) */ * FROM all_of_t",
            "slackwater",
            bridge.strings("default"),
            (tmp_path / "out").as_uri(),
        )
    )
    [file] = found
    assert (file["rows"], file["min_time"], file["max_time"]) == (5, 10, 30)
    assert file["has_retractions"] is True
    assert Path(file["uri"].removeprefix("file://")).stat().st_size == file["size_bytes"]
