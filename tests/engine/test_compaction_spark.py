"""Large merges by Spark give what merges in memory give, over all kinds of parts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.persist.persistence import EAGER, new_environment, new_shard

from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.relations import relation_json
from slackwater.persist.blobs import inline_part, uniform_file
from slackwater.persist.client import Append
from slackwater.persist.compaction import Compactor, Merge
from slackwater.persist.parts import FileBody, NewPart, Uniform
from slackwater.persist.uris import local_path
from slackwater.repr.relation import Column, RelationDesc
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.session import configure

pytestmark = pytest.mark.spark

BEFORE = RelationDesc.of(k="integer", d="double")
MAP = json.dumps(
    {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
)
DESC = RelationDesc((*BEFORE.columns, Column("m", MAP)))


@pytest.fixture(scope="module")
def bridge(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("environment"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = configure(builder, location=folder).getOrCreate()
    gateway = session.sparkContext._gateway.gateway_parameters
    names = {
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.auth_token,
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, value in names.items():
            patched.setenv(name, value)
        yield SparkBridge()
    session.stop()


@pytest.fixture
def filled(tmp_path):
    """A shard with a file of executors, a negation, inline rows, and a column that came later."""
    env = new_environment(f"sqlite:///{tmp_path}/m.db", tmp_path / "e")
    client = env.lead()
    shard = new_shard(client, BEFORE, 0)

    def uniform(time, keys):
        rows = pa.table({"k": pa.array(keys, pa.int32()), "d": [float(k) for k in keys]})
        directory = client.files.staging_directory(shard, f"w{time}")
        body = uniform_file(client.blobs, rows, directory, Uniform(time, 1))
        return NewPart(body, len(keys), time, time, False)

    def inline(desc, *rows):
        names = desc.update_schema().names
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return inline_part(pa.Table.from_pylist(made, schema=desc.update_schema()))

    def commit(time, *parts):
        client.commits.commit([Append(shard, time, time + 1, parts)])

    commit(0, uniform(0, range(200, 0, -1)))
    commit(1, uniform(1, [1, 1, 1]))
    commit(2, *client.reads.negation(shard, 2).at(2))
    commit(3, uniform(3, range(300, 0, -1)))
    client.transactions.transact(
        lambda conn: client.definitions.set_desc(conn, shard, DESC, BEFORE)
    )
    nan, entries = float("nan"), [("a", 1), ("b", None)]
    commit(4, inline(DESC, (7, 7.0, None, 4, -1), (None, nan, entries, 4, 1)))
    commit(5, inline(DESC, (None, nan, entries[::-1], 5, 1), (8, 8.0, None, 5, -1)))
    commit(6, inline(DESC, (8, 8.0, None, 6, 3), (9, -0.0, [], 6, 1)))
    yield client, shard
    env.engine.dispose()


def contents(client, shard, time):
    rows = client.reads.snapshot(shard, time).to_pylist()
    # Equal rows may differ in bytes, as zeros and the order of entries do.
    return Counter(repr((r["k"], r["d"] + 0.0, r["m"] and sorted(r["m"]))) for r in rows)


@pytest.mark.nightly
def test_a_large_merge_is_a_job(bridge, filled):
    client, shard = filled
    before = {time: contents(client, shard, time) for time in (5, 6)}
    parts = client.reads.parts(shard)
    settings = replace(EAGER, memory_rows=10, target_bytes=4_000)
    merge = Merge(parts, parts)
    assert not Compactor(client, settings).compact(shard, merge, 5)
    assert Compactor(client, settings, EngineRewriter(bridge)).compact(shard, merge, 5)
    assert {time: contents(client, shard, time) for time in (5, 6)} == before
    made = client.reads.parts(shard)
    assert len(made) > 1
    keys = []
    for part in sorted(made, key=lambda part: part.rows):
        assert isinstance(part.body, FileBody)
        assert part.body.uri.startswith(client.files.shard_directory(shard) + "/")
        table = pq.read_table(local_path(part.body.uri))
        column = [k for k in table["k"].to_pylist() if k is not None]
        assert column == sorted(column)
        keys += column
    # Of 300 rows 7 is gone; 8, which went and came three times, is three rows without a diff.
    assert Counter(keys)[7] == 0
    assert Counter(keys)[8] == 3
    assert {part.min_time for part in made} | {part.max_time for part in made} == {5, 6}
    assert not any(part.has_retractions for part in made)


def test_spark_reads_null_where_files_lack_the_column(bridge, filled):
    client, shard = filled
    parts = client.reads.parts(shard)
    bridge.register("older", DESC, relation_json(parts, DESC, upper=5))
    rows = bridge.collect(
        "SELECT count(*) AS n, count(m) AS m, sum(__diff) AS d FROM older"
    ).to_pylist()
    bridge.unregister(["older"])
    expected = client.reads.read(parts, DESC, upper=5)
    assert rows == [
        {
            "n": expected.num_rows,
            "m": expected.num_rows - expected["m"].null_count,
            "d": sum(expected["__diff"].to_pylist()),
        }
    ]


ARRAY = json.dumps({"type": "array", "elementType": json.loads(MAP), "containsNull": True})
STRUCT = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "m", "type": json.loads(MAP), "nullable": True, "metadata": {}},
            {"name": "n", "type": "integer", "nullable": True, "metadata": {}},
        ],
    }
)


@pytest.mark.parametrize(
    ("kind", "within"),
    [
        (MAP, lambda entries: entries),
        (ARRAY, lambda entries: [entries, None]),
        (STRUCT, lambda entries: {"m": entries, "n": 2}),
    ],
    ids=["map", "array", "struct"],
)
def test_equal_maps_are_one_row_and_keep_their_nulls(bridge, kind, within):
    desc = RelationDesc((Column("v", kind),))
    one, zero = [("a", 1), ("b", None)], [("a", 1), ("b", 0)]
    updates = [
        (within(one), 1, 1),
        (within(one[::-1]), 1, 1),
        (within(one), 2, 1),
        (within(zero), 1, 1),
        (None, 1, 3),
        (within([]), 1, 1),
        (within([]), 1, -1),
    ]
    names = desc.update_schema().names
    rows = [dict(zip(names, update, strict=True)) for update in updates]
    part = inline_part(pa.Table.from_pylist(rows, schema=desc.update_schema()))
    bridge.register("maps", desc, relation_json([part], desc), consolidated=True)
    text = "to_json(named_struct('v', v), map('ignoreNullFields', 'false'))"
    found = bridge.collect(
        f"SELECT {text} AS v, __time, __diff FROM"
        " (SELECT v, __time, __diff FROM maps) ORDER BY __time, __diff, v"
    ).to_pylist()
    bridge.unregister(["maps"])
    sums = [(row["__time"], row["__diff"]) for row in found]
    assert sums == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert ['"b":null' in row["v"] for row in found] == [False, True, False, True]
    assert ['"b":0' in row["v"] for row in found] == [True, False, False, False]


def test_columns_with_names_of_ours_are_merged(bridge, tmp_path):
    """By a job and in memory, in inline parts and in a file whose rows are all of one time."""
    desc = RelationDesc.of(
        **{"__time": "long", "__DIFF": "integer", "__diff'": "string", "a`b": "integer"}
    )
    env = new_environment(f"sqlite:///{tmp_path}/m.db", tmp_path / "e")
    client = env.lead()
    shard = new_shard(client, desc, 0)
    made = [[k, -k, f"v{k}", k % 3] for k in range(60)]

    def rows(numbers):
        columns = zip(*(made[number] for number in numbers), strict=True)
        table = pa.table(list(map(pa.array, columns)), names=list(desc.stored_names))
        return table.cast(desc.arrow_schema())

    def commit(time, *parts):
        client.commits.commit([Append(shard, time, time + 1, parts)])

    folder = client.files.staging_directory(shard, "w")
    body = uniform_file(client.blobs, rows(range(50)), folder, Uniform(0, 1))
    commit(0, NewPart(body, 50, 0, 0, False))
    for time, diff, numbers in ((1, 1, range(40, 60)), (2, -1, range(10))):
        updates = rows(numbers)
        for value in (time, diff):
            column = pa.array([value] * len(numbers), pa.int64())
            updates = updates.append_column(desc.update_schema().field(updates.num_columns), column)
        commit(time, inline_part(updates))
    expected = sorted(made[k] for k in range(10, 60) for _ in range(2 if 40 <= k < 50 else 1))
    for rewriter in (EngineRewriter(bridge), None):
        parts = client.reads.parts(shard)
        limit = 1_000 if rewriter is None else 10
        settings = replace(EAGER, memory_rows=limit, target_bytes=1_000)
        merge = Merge(parts, parts)
        assert Compactor(client, settings, rewriter).compact(shard, merge, 2)
        snapshot = client.reads.snapshot(shard, 2)
        assert snapshot.schema.names[: len(desc.names)] == list(desc.stored_names)
        found = [list(each.values())[: len(desc.names)] for each in snapshot.to_pylist()]
        assert sorted(found) == expected
        assert not any(part.has_retractions for part in client.reads.parts(shard))
    env.engine.dispose()
