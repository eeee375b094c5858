"""What Spark's cache keeps of relations of ours, and what is left in it afterwards."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

CODE = """
entries = spark._jsparkSession.sharedState().cacheManager().numCachedEntries
spark.sql("USE slackwater.{schema}")
before = entries()

def rows(text):
    return [row[0] for row in spark.sql(text).collect()]

def cached(name):
    return [spark.catalog.isCached(name), entries() - before]

result = []
for how in {hows!r}:
    cache, uncache = how
    spark.sql("CREATE TABLE t (k INT)")
    spark.sql("CREATE VIEW v AS SELECT k FROM t")
    spark.sql("INSERT INTO t VALUES (1)")
    name = "w" if " w " in cache else "v" if cache.endswith("v") else "t"
    run = lambda text: eval(text) if text.startswith("spark.") else spark.sql(text)
    run(cache)
    seen = [cached(name), rows("SELECT k FROM " + name)]
    spark.sql("INSERT INTO t VALUES (2)")
    seen += [rows("SELECT count(*) FROM " + name)]
    seen += [rows("SELECT sum(a.k) FROM t a JOIN t b ON a.k = b.k")]
    seen += [cached(name)]
    run(uncache)
    seen += [cached(name)]
    result.append([cache, uncache, seen])
    spark.sql("DROP VIEW IF EXISTS w")
    spark.sql("DROP VIEW v")
    spark.sql("DROP TABLE t")
"""

HOWS = [
    ("CACHE TABLE t", "UNCACHE TABLE t"),
    ("CACHE LAZY TABLE t", "UNCACHE TABLE t"),
    ("CACHE TABLE t", "spark.catalog.uncacheTable('t')"),
    ("CACHE TABLE v", "UNCACHE TABLE v"),
    ("CACHE TABLE w AS SELECT k FROM t", "UNCACHE TABLE w"),
    ("spark.catalog.cacheTable('t')", "spark.catalog.uncacheTable('t')"),
    ("spark.catalog.cacheTable('t')", "UNCACHE TABLE t"),
]


def test_uncache_leaves_nothing_behind(workplace):
    code = CODE.format(schema=workplace.schema, hows=HOWS)
    for cache, uncache, seen in workplace.application.python(code):
        assert seen == [[True, 1], [1], [2], [3], [True, 1], [False, 0]], (cache, uncache)


FRAME = """
entries = spark._jsparkSession.sharedState().cacheManager().numCachedEntries
spark.sql("USE slackwater.{schema}")
spark.sql("CREATE TABLE t (k INT)")
before = entries()
frame = spark.table("t").select("k")
frame.cache()
result = [entries() - before, frame.count()]
spark.sql("INSERT INTO t VALUES (1)")
result += [frame.count(), len(frame.collect())]
frame.unpersist()
result += [entries() - before]
"""


def test_unpersist_leaves_nothing_behind(workplace):
    seen = workplace.application.python(FRAME.format(schema=workplace.schema))
    assert seen == [1, 0, 1, 1, 0]
