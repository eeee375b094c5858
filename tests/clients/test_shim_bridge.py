"""What the coordinator calls in the driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.applications.parts_coordinator import (
    Json,
    PartsCoordinator,
    Table,
    schema,
)
from tests.support.applications.parts_values import (
    kv,
    updates,
)

pytestmark = pytest.mark.spark


# --- the bridge


class Bridge:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.scala = spark._jvm.org.apache.spark.sql.slackwater.bridge.Bridge.under("", "", "", 1)

    def strings(self, *values: str) -> Any:
        array = self.spark.sparkContext._gateway.new_array(
            self.spark._jvm.java.lang.String, len(values)
        )
        for i, value in enumerate(values):
            array[i] = value
        return array

    def analyze(self, text: str) -> Json:
        found: Json = json.loads(
            self.scala.analyze(text, "slackwater", self.strings("default"), "[]", "g")
        )
        return found

    def collect(self, text: str) -> pa.Table:
        stream = self.scala.collect(text, "slackwater", self.strings("default"), "g")
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
        self.scala.register(name, json.dumps(table.schema), json.dumps(relation), False)


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
            "g",
        )
    )
    [file] = found
    assert (file["rows"], file["min_time"], file["max_time"]) == (5, 10, 30)
    assert file["has_retractions"] is True
    assert Path(file["uri"].removeprefix("file://")).stat().st_size == file["size_bytes"]


def test_settings_are_those_that_are_named_and_spark_defaults(
    bridge: Bridge, spark: SparkSession
) -> None:
    lenient = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"}
    zone = "SELECT current_timezone() AS zone, CAST(TIMESTAMP_SECONDS(0) AS STRING) AS shown"
    assert bridge.collect(zone).to_pylist() == [{"zone": "UTC", "shown": "1970-01-01 00:00:00"}]
    with pytest.raises(PySparkException):
        bridge.collect("SELECT CAST('x' AS INT)")

    other = Bridge(spark)
    scala = spark._jvm.org.apache.spark.sql.slackwater.bridge.Bridge
    other.scala = scala.under(json.dumps(lenient), "", "", 1)
    assert other.collect(zone).to_pylist() == [
        {"zone": "Asia/Tokyo", "shown": "1970-01-01 09:00:00"}
    ]
    assert other.collect("SELECT CAST('x' AS INT) AS n").to_pylist() == [{"n": None}]

    # The application has America/New_York.
    other.scala = scala.under("{}", "", "", 1)
    own = str(spark._jvm.java.util.TimeZone.getDefault().getID())
    assert other.collect(zone).column("zone").to_pylist() == [own]


# --- replicas


def test_replicas_share_memory_by_their_weights(spark: SparkSession) -> None:
    shim = spark._jvm.org.apache.spark.sql.slackwater
    bridge = shim.bridge.Bridge

    def budget(name: str, weight: int) -> Any:
        flows = bridge.under("{}", "somewhere", name, weight).dataflows()
        return flows.replica().arrangements().budget()

    def limit(budget: Any) -> int:
        with pytest.raises(Py4JJavaError) as refused:
            shim.arrangements.Allotment(budget, "a test").allocate(1 << 60)
        return int(refused.value.java_exception.limitBytes())

    first = budget("a", 1)
    whole = limit(first)
    second = budget("b", 3)
    assert (limit(first), limit(second)) == (
        pytest.approx(whole / 4, abs=2),
        pytest.approx(whole * 3 / 4, abs=2),
    )
    bridge.weigh("somewhere", "a", 9)
    assert limit(second) == pytest.approx(whole / 4, abs=2)
    assert json.loads(bridge.arrangements("somewhere", "a")) == []
    memory, files = json.loads(bridge.arrangementMemory("somewhere", "a"))
    assert (memory["where"], memory["used"], files["where"], files["used"]) == (
        "memory",
        0,
        "files",
        0,
    )
    assert memory["limit"] + files["limit"] == limit(first)
    assert json.loads(bridge.arrangementMemory("elsewhere", "a")) == []
    bridge.endReplica("somewhere", "a")
    assert limit(second) == pytest.approx(whole, abs=2)
    bridge.endReplica("somewhere", "a")
    bridge.endReplica("somewhere", "b")
