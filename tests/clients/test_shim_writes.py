"""Writing collections: each statement sends exactly the right rows or diffs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.functions import lit
from tests.support.applications.parts_coordinator import (
    Json,
    PartsCoordinator,
    Table,
    from_ipc,
    schema,
)
from tests.support.applications.parts_values import (
    ARROW,
    EVERYTHING,
    KV,
    T_ROWS,
    bag,
    diffs,
    everything,
    jobs,
    kv,
    of,
)

pytestmark = pytest.mark.spark


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


def test_a_definition_travels_with_the_rows(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    spark.sql("CREATE TABLE made COMMENT 'c' TBLPROPERTIES ('p' = 'q') AS SELECT k FROM t")
    [stage], write = env.seen("/v1/catalog/stage_table"), written(env)
    stated = write["definition"]
    assert {key: stage[key] for key in ("name", "mode", "properties", "comment")} == {
        "name": "made",
        "mode": "create",
        "properties": {"p": "q"},
        "comment": "c",
    }
    assert {key: stated[key] for key in ("name", "mode", "schema", "as_select")} == {
        "name": "made",
        "mode": "create",
        "schema": stage["schema"],
        "as_select": True,
    }
    [bind] = env.seen("/v1/bind")
    assert bind["write_targets"] == [stated["target"]["id"]]
    assert (write["table"], write["shard"]) == (None, stated["target"]["shard"])
    assert write["hold"] == env.last_hold
    assert bag(spark.table("made").collect()) == bag(spark.sql("SELECT k FROM t").collect())
    assert env.seen("/v1/catalog/create_table") == []


def test_a_replacement_reads_what_it_replaces(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    spark.table("t").write.mode("overwrite").saveAsTable("slackwater.default.t")
    write, [bind] = written(env), env.seen("/v1/bind")
    assert (write["mode"], write["table"], write["shard"]) == ("overwrite", t.id, None)
    assert (bind["write_targets"], write["hold"]) == ([t.id], env.last_hold)
    assert bag(spark.table("t").collect()) == T_ROWS
    env.forget()
    spark.sql("CREATE OR REPLACE TABLE t (k INT, v STRING)")
    write = written(env)
    assert (write["inline"], write["files"], write["hold"]) == ([], [], None)
    assert write["definition"]["as_select"] is False
    assert spark.table("t").collect() == []


def test_a_replacement_that_fails_writes_nothing(
    spark: SparkSession, env: PartsCoordinator, t: Table
) -> None:
    with pytest.raises(PySparkException):
        spark.sql("CREATE OR REPLACE TABLE t AS SELECT k, v FROM t WHERE 1 / (k - k) = 1").collect()
    assert env.seen("/v1/write") == []
    assert env.released(env.last_hold)
    assert bag(spark.table("t").collect()) == T_ROWS


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
    assert env.seen("/v1/bind")[0]["write_targets"] == [u.id]
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
