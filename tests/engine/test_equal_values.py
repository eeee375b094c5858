"""What is the same to a collection, and what is not: to reads, ticks, compaction and DML alike."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.support.applications.many_relations import INTERPRETED
from tests.support.compute.equal_values import PAIRS
from tests.support.compute.incremental import Bench, table_of
from tests.support.persist.persistence import EAGER

from slackwater.compute.compaction import EngineRewriter
from slackwater.compute.engine import Contents, ViewContents
from slackwater.compute.relations import relation_json
from slackwater.persist.compaction import Compactor, Merge
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp

pytestmark = pytest.mark.spark

LAST = 4
NAMES = {pair.name: f"t{number}" for number, pair in enumerate(PAIRS)}


def history(pair):
    """Both come; `right` goes, and then what is left."""
    left, right = (pair.left,), (pair.right,)
    rest = right if pair.same else left
    return [(left, 1, 1), (right, 1, 1), (right, 2, -1), (rest, 3, -1)]


def shown(value):
    """A value that compares by what it is."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, tuple | list):
        entries = [shown(each) for each in value]
        is_map = bool(value) and isinstance(value[0], tuple)
        return sorted(entries, key=repr) if is_map else entries
    if isinstance(value, dict):
        # Names may be those of files, which end in positions.
        fields = {name.partition("_")[0]: each for name, each in value.items()}
        return {name: shown(each) for name, each in fields.items() if each is not None} or "struct"
    return value


def expected(pair, time):
    rows = [pair.left, pair.right][: max(0, 4 - time - 1)] if time else []
    return sorted(map(repr, map(shown, rows)))


@pytest.fixture(scope="module")
def bench(declared, tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("equal"), declared)
    for pair in PAIRS:
        made.table(NAMES[pair.name], pair.desc)
        made.view(f"v_{NAMES[pair.name]}", f"SELECT v FROM {NAMES[pair.name]}")
    for time in range(1, LAST):
        updates = {NAMES[pair.name]: [u for u in history(pair) if u[1] == time] for pair in PAIRS}
        made.commit(time + 1, updates)
        for pair in PAIRS:
            made.wait(f"v_{NAMES[pair.name]}", time)
    yield made
    made.close()
    assert made.fatal == []


def read(bench, name, time):
    """As a query of a session reads it."""
    return sorted(repr(shown(v)) for v in rows_of(bench, f"SELECT v FROM {name}", time, name))


def held(bench, name, time):
    """As the coordinator adds updates up."""
    rows = bench.snapshot(name, time).to_pylist()
    return sorted(repr(shown(row["v"])) for row in rows)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
@pytest.mark.sampled(4)
def test_reads_ticks_and_compaction_agree(bench, pair):
    name = NAMES[pair.name]
    for time in range(LAST):
        assert read(bench, name, time) == expected(pair, time), time
        assert held(bench, name, time) == expected(pair, time), time
        assert held(bench, f"v_{name}", time) == expected(pair, time), time
        assert read(bench, f"v_{name}", time) == expected(pair, time), time
    _, shard, _ = bench.relations[f"v_{name}"]
    compacted(bench, shard, None)
    assert held(bench, f"v_{name}", 2) == expected(pair, 2)
    _, shard, _ = bench.relations[name]
    compacted(bench, shard, EngineRewriter(bench.engine))
    assert held(bench, name, 2) == expected(pair, 2)
    assert read(bench, name, 2) == expected(pair, 2)
    assert read(bench, name, 3) == []


def test_a_row_that_is_there_very_often_is_never_there_at_once(declared, tmp_path):
    """Three milliards of one row: as an array they would need gigabytes, as an int be negative."""
    bench = Bench(tmp_path, declared)
    bench.table("many", PAIRS[0].desc)
    updates = [((7,), 1, 3_000_000_000), ((8,), 1, 1), ((9,), 2, 1), ((9,), 3, -1)]
    bench.commit(4, {"many": updates})
    assert rows_of(bench, "SELECT v FROM many LIMIT 3", 3, "many") == [7, 7, 7]
    first = "SELECT v FROM (SELECT v, v > 7 AS large FROM many) ORDER BY large DESC, v LIMIT 3"
    assert rows_of(bench, first, 3, "many") == [8, 7, 7]
    each = "SELECT v FROM many QUALIFY row_number() OVER (PARTITION BY v ORDER BY v) < 3"
    assert rows_of(bench, each, 3, "many") == [7, 7, 8]
    assert rows_of(bench, "SELECT v FROM many WHERE v <> 7", 3, "many") == [8]
    bench.close()


def test_a_negative_multiplicity_is_a_broken_invariant(declared, tmp_path):
    bench = Bench(tmp_path, declared)
    bench.table("few", PAIRS[0].desc)
    bench.commit(2, {"few": [((7,), 1, 1), ((8,), 1, -1)]})
    for query in ("SELECT v FROM few", "SELECT count(*) AS v FROM few GROUP BY few.v"):
        with pytest.raises(
            SlackwaterError, match=r"failed: .* has a negative multiplicity"
        ) as told:
            rows_of(bench, query, 1, "few")
        assert (told.value.condition, told.value.sqlstate) == ("SLACKWATER_INTERNAL", "XX000")
    bench.close()


def rows_of(bench, query, time, name):
    """What a query answers over one table at a time, each row as often as it is there."""
    global_id, shard, desc = bench.relations[name]
    parts = bench.client.reads.parts_at(shard, Timestamp(time))
    contents = Contents(desc, relation_json(parts, desc, as_of=Timestamp(time)))
    kept = planned(bench, query).kept
    view = ViewContents(kept, desc, Timestamp(time), {global_id: contents})
    rows = bench.engine.collect_view(view).to_pylist()
    return [row["v"] for row in rows for _ in range(row["__diff"])]


@cache
def planned(bench, query):
    """One plan for all times, as a view has it."""
    return bench.plan(query)


def compacted(bench, shard, rewriter):
    """Merges all parts at time 2, in memory or by a job."""
    settings = EAGER if rewriter is None else replace(EAGER, memory_rows=0)
    bench.client.maintenance.set_since({shard: Timestamp(2)})
    parts = bench.client.reads.parts(shard)
    merge = Merge(parts, parts)
    assert Compactor(bench.client, settings, rewriter).compact(shard, merge, Timestamp(2))


@pytest.mark.nightly
def test_dml_changes_what_is_not_the_same(declared):
    """MERGE puts the right value in the place of the left one; then the row is deleted."""
    session = declared.new_session()
    session.sql("USE slackwater.default")
    session.conf.set("spark.sql.caseSensitive", "true")
    for setting in INTERPRETED:
        session.sql(f"SET {setting}")
    for pair in PAIRS:
        name = f"dml_{NAMES[pair.name]}"
        frame(session, pair, pair.left).writeTo(name).create()
        session.sql(f"CREATE MATERIALIZED VIEW v_{name} AS SELECT v FROM {name}")
        frame(session, pair, pair.right).createOrReplaceTempView("new")
        session.sql(f"MERGE INTO {name} USING new ON true WHEN MATCHED THEN UPDATE SET v = new.v")
        for relation in (name, f"v_{name}"):
            rows = session.table(relation).toArrow().to_pylist()
            assert [shown(row["v"]) for row in rows] == [shown(pair.right)], (pair.name, relation)
        session.sql(f"DELETE FROM {name}")
        for relation in (name, f"v_{name}"):
            assert session.table(relation).count() == 0, (pair.name, relation)


def frame(session, pair, value):
    """The value as the only row."""
    rows = table_of(pair.desc, [((value,), 0, 1)]).select(["v"])
    if isinstance(pair.kind, dict) and pair.kind["type"] == "struct" and pair.kind["fields"]:
        # Spark finds fields by the names that they are declared with.
        inner = rows.column("v").combine_chunks()
        fields = [
            f.with_name(d["name"]) for f, d in zip(inner.type, pair.kind["fields"], strict=True)
        ]
        named = pa.StructArray.from_arrays(inner.flatten(), fields=fields, mask=inner.is_null())
        rows = pa.table({"v": named})
    return session.createDataFrame(rows, StructType.fromJson(json.loads(pair.desc.to_json())))
