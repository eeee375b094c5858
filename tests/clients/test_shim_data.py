"""Reading collections in a real Spark session, above a coordinator of plain parts."""

from __future__ import annotations

import gc
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession
from tests.support.applications.parts_coordinator import (
    DIFF,
    TIME,
    Json,
    PartsCoordinator,
    Table,
    schema,
)
from tests.support.applications.parts_values import (
    EVERYTHING,
    KV,
    T_ROWS,
    VALUES,
    bag,
    everything,
    jobs,
    kv,
    of,
    plan_of,
    updates,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


# --- reading


def test_reads_files_and_inline_rows(spark: SparkSession, t: Table) -> None:
    assert bag(spark.sql("SELECT * FROM t").collect()) == T_ROWS
    assert bag(spark.table("slackwater.default.t").collect()) == T_ROWS
    assert spark.sql("SELECT count(*) FROM t WHERE k > 1").collect() == [Row(2)]


def test_an_empty_collection(spark: SparkSession, env: PartsCoordinator) -> None:
    env.create("e", KV)
    assert spark.sql("SELECT * FROM e").collect() == []
    assert spark.sql("SELECT count(*), max(v) FROM e").collect() == [Row(0, None)]


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
    frame = spark.sql("SELECT k + 1 FROM i WHERE k > 1")
    found: list[Row] = []
    assert jobs(spark, lambda: found.extend(frame.collect())) == 0
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


@pytest.mark.parametrize(("files", "exchanges"), [(4, False), (5, True)])
@pytest.mark.parametrize("inside", [True, False])
def test_little_is_consolidated_in_one_task(
    spark: SparkSession,
    env: PartsCoordinator,
    tmp_path: Path,
    files: int,
    exchanges: bool,
    inside: bool,
) -> None:
    table = env.create("little", KV)
    table.retractions = True
    for n in range(files):
        path = tmp_path / f"{n}.parquet"
        if inside:
            table.put_file(path, updates((n, "a", 5, 1), (9, "b", 5 + n, (-1) ** n)), None, None)
        else:
            table.put_file(path, kv((n, "a"), (9, "b")), 5 + n, 1)
            table.put_inline(kv((9, "b")), 5 + n, -1)
    assert ("Exchange" in plan_of(spark.table("little"))) == exchanges
    expected = of(*((n, "a") for n in range(files)), *[(9, "b")] * (files % 2 if inside else 0))
    assert bag(spark.table("little").collect()) == expected
    assert spark.sql("SELECT v FROM little WHERE k = 1").collect() == [Row("a")]


def test_many_rows_in_few_bytes_are_not_little(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    table = env.create("packed", KV)
    table.retractions = True
    table.put_file(tmp_path / "packed.parquet", kv(*[(1, "a")] * 200_000), 5, 1)
    assert (tmp_path / "packed.parquet").stat().st_size < 10_000
    table.put_inline(kv((1, "a")), 6, -1)
    assert "Exchange" in plan_of(spark.table("packed"))
    assert spark.table("packed").count() == 199_999


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("inline", marks=pytest.mark.nightly),
        "file",
        pytest.param("times inside", marks=pytest.mark.nightly),
    ],
)
def test_a_consolidation_reads_the_wanted_columns_and_one_that_prunes(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path, kind: str
) -> None:
    columns = schema(k=["long"], v="string", f="double")
    table = env.create("wide", columns)
    count = 200_000

    def rows(numbers: range) -> pa.Table:
        return pa.table(
            {
                "k": pa.array(numbers, pa.int64()),
                "v": [None if k % 3 == 0 else str(k % 3) for k in numbers],
                "f": pa.array([k / 4 for k in numbers], pa.float64()),
            },
            schema=pa.schema(
                [pa.field("k", pa.int64(), False), ("v", pa.string()), ("f", pa.float64())]
            ),
        )

    gone, fresh = range(100, 105), range(count, count + 2)
    table.put_file(tmp_path / "rows.parquet", rows(range(count)), 10, 1)
    match kind:
        case "inline":
            table.put_inline(rows(gone), 20, -1)
        case "file":
            table.put_file(tmp_path / "gone.parquet", rows(gone), 20, -1)
        case _:
            timed = rows(gone).append_column(TIME, pa.array([20] * 5, pa.int64()))
            timed = timed.append_column(DIFF, pa.array([-1] * 5, pa.int64()))
            table.put_file(tmp_path / "gone.parquet", timed, None, None)
    table.retractions = True
    table.put_inline(rows(fresh), 30)
    left = [k for k in range(count + 2) if k not in gone]
    for query, read, expected in (
        ("SELECT count(*) FROM wide", set(), [Row(len(left))]),
        (
            "SELECT v, count(*) FROM wide GROUP BY v ORDER BY v",
            {"v"},
            [Row(v, sum(k % 3 == i for k in left)) for i, v in enumerate((None, "1", "2"))],
        ),
        (
            "SELECT count(*), max(k) FROM wide WHERE v = '1'",
            {"k", "v"},
            [Row(sum(k % 3 == 1 for k in left), max(k for k in left if k % 3 == 1))],
        ),
        ("SELECT count(*) FROM (SELECT v FROM wide LIMIT 7)", set(), [Row(7)]),
        ("SELECT count(*) FROM wide a JOIN wide b USING (k)", {"k"}, [Row(len(left))]),
    ):
        frame = spark.sql(query)
        schemas = re.findall(r"ReadSchema: struct<([^>]*)>", plan_of(frame))
        names = {part.partition(":")[0] for text in schemas for part in text.split(",")}
        assert schemas, query
        # By k the rows are found that a retraction may concern.
        assert names - {"", TIME, DIFF, "k"} == read - {"k"}, query
        assert frame.collect() == expected, query
    everything = spark.sql("SELECT k, v, f FROM wide WHERE k > 98 AND k < 107").collect()
    assert sorted(row.k for row in everything) == [99, 105, 106]


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


def test_maps_inside_other_values_consolidate(
    spark: SparkSession, env: PartsCoordinator, tmp_path: Path
) -> None:
    inner = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
    outer = {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}
    listed = {"type": "array", "elementType": inner, "containsNull": True}
    held = {
        "type": "struct",
        "fields": [{"name": "m", "type": inner, "nullable": True, "metadata": {}}],
    }
    table = env.create("deep", schema(o=outer, l=listed, s=held))
    arrow_inner = pa.map_(pa.string(), pa.int64())
    arrow = pa.schema(
        [
            ("o", pa.map_(pa.string(), arrow_inner)),
            ("l", pa.list_(pa.field("element", arrow_inner))),
            ("s", pa.struct([("m", arrow_inner)])),
        ]
    )

    def row(*entries: tuple[str, int | None]) -> Json:
        pairs = list(entries)
        return {"o": [("x", pairs), ("y", None)], "l": [pairs, None], "s": {"m": pairs}}

    ab, ba = row(("a", 1), ("b", None)), row(("b", None), ("a", 1))
    zero = row(("a", 1), ("b", 0))
    nothing = {"o": None, "l": None, "s": None}
    rows = [ab, ba, zero, nothing, nothing]
    table.put_file(tmp_path / "deep.parquet", pa.Table.from_pylist(rows, arrow), 10, 1)
    table.put_inline(pa.Table.from_pylist([ab, nothing], arrow), 20, -1)
    found = Counter(json.dumps(r.asDict(recursive=True)) for r in spark.table("deep").collect())
    left = [{"a": 1, "b": None}, {"a": 1, "b": 0}]
    expected = [{"o": {"x": m, "y": None}, "l": [m, None], "s": {"m": m}} for m in left]
    assert found == Counter(json.dumps(r) for r in [*expected, nothing])


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
    "CREATE TABLE made AS SELECT * FROM t",
    "CREATE OR REPLACE TABLE t AS SELECT DISTINCT * FROM t WHERE k > (SELECT min(k) FROM t)",
    "CREATE OR REPLACE TABLE t AS SELECT k FROM t",
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


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k FROM t",
        "WITH c AS (SELECT k, count(*) FROM t GROUP BY k) SELECT k FROM c ORDER BY k LIMIT 100",
        "SELECT k FROM t WHERE k IN (SELECT k FROM t WHERE mz_now() > 0) OR k IS NULL",
    ],
)
def test_a_frame_reads_again_with_each_action(
    spark: SparkSession, env: PartsCoordinator, t: Table, query: str, adaptive: str
) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        frame = spark.sql(query)
        actions = [
            lambda: len(frame.collect()),
            lambda: len(frame.collect()),
            lambda: len(frame.toPandas()),
            lambda: len(frame.toPandas()),
            lambda: frame.toArrow().num_rows,
            lambda: frame.rdd.count(),
            lambda: len(frame.tail(100)),
            lambda: len(frame.collect()),
        ]
        for number, action in enumerate(actions[: 8 if adaptive == "true" else 4]):
            before = len(env.seen("/v1/bind"))
            assert (number, action()) == (number, 4 + number)
            assert (number, len(env.seen("/v1/bind"))) == (number, before + 1)
            t.put_inline(kv((100 + number, "new")), env.now + 1)
        assert env.released(env.last_hold)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")


def test_what_a_plan_was_shown_with_is_not_what_it_reads(
    spark: SparkSession, env: PartsCoordinator, t: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.table("t")
    frame.explain()
    assert "SlackwaterScan slackwater.default.t as of" in capsys.readouterr().out
    assert env.released(env.last_hold)
    t.put_inline(kv((6, "f")), env.now + 1)
    assert len(frame.collect()) == 5


def test_a_pinned_frame_reads_its_time_again_under_a_new_hold(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    frame = spark.sql("SELECT k, mz_now() AS now FROM t AS OF 20")
    first = frame.collect()
    t.put_inline(kv((6, "f")), env.now + 1)
    hold = env.last_hold
    assert bag(frame.collect()) == bag(first)
    assert env.last_hold != hold
    assert env.released(env.last_hold)


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


def test_only_what_a_cache_serves_is_held(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    def number() -> int:
        return int(env.last_hold.removeprefix("hold-"))

    first = number() + 1
    frame = spark.table("t")
    frame.cache()
    assert len(frame.collect()) == 4
    frame.unpersist()
    assert all(env.released(f"hold-{n}") for n in range(first, number() + 1))

    first = number() + 1
    pinned = spark.sql("SELECT k FROM t AS OF 25")
    pinned.cache()
    try:
        filling = number()
        assert len(pinned.collect()) == 4
        assert all(env.released(f"hold-{n}") for n in range(first, number() + 1) if n != filling)
        spark.sparkContext._jvm.System.gc()
        assert not env.is_released(f"hold-{filling}")
    finally:
        pinned.unpersist()
    del pinned
    gc.collect()
    wait_until(lambda: collected(spark) and env.is_released(f"hold-{filling}"))


def collected(spark: SparkSession) -> bool:
    """Lets the JVM forget what nobody refers to."""
    spark.sparkContext._jvm.System.gc()
    return True


def test_an_unbound_relation_is_refused(spark: SparkSession, t: Table) -> None:
    frame = spark.table("t")
    session = spark._jsparkSession
    state = session.sessionState()
    with pytest.raises(PySparkException) as error:
        state.planner().plan(
            state.optimizer().execute(frame._jdf.queryExecution().analyzed())
        ).next()
    assert error.value.getCondition() == "SLACKWATER_UNBOUND_RELATION"


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
    assert not env.is_released(hold)
    del rdd
    gc.collect()
    wait_until(lambda: collected(spark) and env.is_released(hold))


def test_rows_that_are_still_pulled_keep_their_hold(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    rows = spark.table("t").toLocalIterator()
    next(rows)
    hold = env.last_hold
    spark.sql("SELECT count(*) FROM t").collect()
    assert env.released(env.last_hold)
    assert not env.is_released(hold)
    assert len(list(rows)) == 3


def test_a_write_takes_its_hold(spark: SparkSession, env: PartsCoordinator, t: Table) -> None:
    spark.sql("INSERT INTO t SELECT * FROM t")
    assert [w["hold"] for w in env.seen("/v1/write")] == [env.last_hold]
    assert env.seen("/v1/bind")[0]["write_targets"] == [t.id]
    with pytest.raises(PySparkException):
        spark.sql("INSERT INTO t SELECT raise_error(v), v FROM t WHERE k = 1")
    assert env.released(env.last_hold)
    with pytest.raises(PySparkException):
        spark.sql("UPDATE t SET v = raise_error(v) WHERE k = 1")
    assert env.released(env.last_hold)
    assert len(env.seen("/v1/write")) == 1
