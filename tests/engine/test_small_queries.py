"""Queries over rows in memory give what the same queries give as jobs, also when run again."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slackwater.compute.engine import NamedUpdates
from slackwater.compute.relations import relation_json
from slackwater.persist import blobs
from slackwater.persist.rows import committed_part
from slackwater.repr.relation import Column, RelationDesc
from slackwater.spark.bridge import SparkBridge
from slackwater.spark.session import configure

pytestmark = pytest.mark.spark

A = RelationDesc.of(k="integer", s="string")
B = RelationDesc.of(k="integer", w="decimal(12,2)")
C = RelationDesc((Column("n", '"integer"', nullable=False), Column("k", '"integer"')))

WITHOUT_JOBS = [
    "SELECT k, s, __time, __diff FROM a",
    "SELECT a.k, b.w, a.__diff * b.__diff AS d FROM a CROSS JOIN b WHERE a.k = b.k",
    "SELECT a.k, b.w FROM a CROSS JOIN b WHERE a.k < b.k",
    "SELECT a.k, x.s, b.w FROM a, a x, b WHERE a.k <=> x.k AND b.k = a.k + 1",
    "SELECT a.k, b.w FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT a.k, b.w FROM a FULL JOIN b ON a.k = b.k",
    "SELECT k FROM a LEFT SEMI JOIN (SELECT k FROM b GROUP BY k) g ON a.k <=> g.k",
    "SELECT s, count(*) AS n, sum(k) AS t FROM a GROUP BY s HAVING sum(__diff) <> 0",
    "SELECT sum(w) AS t FROM b WHERE k > 100",
    "SELECT k, sum(n) OVER (PARTITION BY k ORDER BY w) AS n FROM"
    " (SELECT k, w, 1 AS n FROM b UNION ALL SELECT a.k, b.w, 2 FROM a CROSS JOIN b WHERE a.k = b.k"
    " UNION ALL SELECT k, NULL, sum(__diff) FROM a GROUP BY k) u",
    "SELECT k, s FROM a WHERE k IN (SELECT k FROM b)",
    "SELECT count(*) AS n, sum(__diff) AS d FROM a",
    "SELECT x.k, y.s FROM a x CROSS JOIN a y WHERE x.k = y.k AND x.__time <= y.__time",
    "SELECT n, k, __diff FROM c WHERE n IS NULL",
    "SELECT n IS NULL AS z, n = n AS y, count(*) AS r FROM c GROUP BY 1, 2",
    "SELECT k, n.f IS NULL AS z FROM (SELECT k, named_struct('f', n) AS n FROM c) WHERE n IS NULL",
    "SELECT b.k, x.m FROM b CROSS JOIN (SELECT max(e) AS m FROM (SELECT 1 AS e) WHERE false) x",
    "SELECT count(*) AS r, max(k) AS m FROM (SELECT k FROM b WHERE false)",
]
WITH_JOBS = [
    "SELECT k FROM a WHERE k > (SELECT min(k) FROM b)",
    "SELECT a.k, b.w FROM a LEFT JOIN b ON a.k < b.k",
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("environment"))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = configure(builder, location=folder).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def bridge(spark):
    gateway = spark.sparkContext._gateway
    names = {
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
    }
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        made = SparkBridge()
        made.warm()
        yield made
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def part(number, desc, rows, path=None):
    schema = desc.update_schema()
    columns = list(zip(*rows, strict=True))
    arrays = [
        pa.array(column).cast(field.type) for column, field in zip(columns, schema, strict=True)
    ]
    table = pa.Table.from_arrays(arrays, schema=schema)
    new = (
        blobs.inline_part(table)
        if path is None
        else blobs.file_part(blobs.LocalBlobs(path), table, blobs.file_uri(path))
    )
    return committed_part(new, number, 1, 0, 100)


def views(tmp_path, first_id):
    parts = (
        part(first_id, A, [(1, "x", 1, 1), (2, "y", 2, 1), (2, "y", 3, 1), (None, "n", 3, 1)]),
        part(first_id + 1, A, [(1, "x", 5, -1), (3, None, 5, 2), (9, "late", 50, 1)]),
        part(first_id + 2, A, [(4, "file", 4, 1), (2, "y", 6, -1)], tmp_path),
    )
    others = (part(first_id + 3, B, [(k, Decimal("1.50"), 1, 1) for k in (1, 2, 2, 4, None)]),)
    certain = (part(first_id + 5, C, [(0, 1, 1, 1), (3, None, 2, 1), (5, 2, 3, 1)]),)
    return [
        NamedUpdates("a", A, parts, upper=50),
        NamedUpdates("b", B, others, advance_to=7),
        NamedUpdates("c", C, certain),
    ]


def as_job(bridge, query, named):
    for view in named:
        relation = relation_json(
            view.parts, view.desc, lower=view.lower, upper=view.upper, advance_to=view.advance_to
        )
        bridge.register(view.name, view.desc, relation)
    try:
        return rows_of(bridge.collect(query))
    finally:
        bridge.unregister([view.name for view in named])


def rows_of(table):
    return Counter(tuple(row.values()) for row in table.to_pylist())


def jobs(spark):
    return len(spark.sparkContext._jsc.sc().statusTracker().getJobIdsForGroup(None))


@pytest.mark.parametrize("query", WITHOUT_JOBS + WITH_JOBS)
def test_same_rows_as_a_job(spark, bridge, tmp_path, query):
    number = 1000 * (1 + (WITHOUT_JOBS + WITH_JOBS).index(query))
    named = views(tmp_path, number)
    assert rows_of(bridge.collect_small(query, named)) == as_job(bridge, query, named)
    # The plan is there now; other rows, other bounds.
    more = part(number + 4, A, [(2, "more", 8, 1), (4, "file", 8, -1)])
    named = [replace(named[0], parts=(*named[0].parts, more), lower=2), *named[1:]]
    expected = as_job(bridge, query, named)
    before = jobs(spark)
    assert rows_of(bridge.collect_small(query, named)) == expected
    assert (jobs(spark) > before) == (query in WITH_JOBS)


def test_rows_that_the_driver_did_not_keep_are_sent_again(bridge, tmp_path):
    named = views(tmp_path, 90_000)
    query = WITHOUT_JOBS[0]
    bridge._sent.update((p.part_id, query) for v in named for p in v.parts)
    assert rows_of(bridge.collect_small(query, named)) == as_job(bridge, query, named)


def test_an_error_in_the_data_has_sparks_condition(bridge, tmp_path):
    # In this process pyspark has translated the exception already.
    with pytest.raises(PySparkException) as raised:
        bridge.collect_small("SELECT 1 / (k - 2) AS v FROM a", views(tmp_path, 91_000))
    assert (raised.value.getCondition(), raised.value.getSqlState()) == ("DIVIDE_BY_ZERO", "22012")
    assert rows_of(bridge.collect_small("SELECT k FROM b", views(tmp_path, 92_000)))


def test_what_does_not_fit_into_memory_is_left_to_a_job(bridge, tmp_path):
    named = views(tmp_path, 93_000)
    huge = replace(named[0].parts[2], rows=2**40)
    large = [replace(named[0], parts=(huge,)), named[1]]
    assert bridge.collect_small("SELECT k FROM a", large) is None
    assert bridge.collect_small("SELECT k FROM b", large[1:]) is not None
