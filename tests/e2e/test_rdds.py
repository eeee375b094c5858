"""RDDs of DataFrames: each is of one time and readable for as long as it lives."""

from __future__ import annotations

import pytest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

ACTIONS = """
spark.sql("USE slackwater.{schema}")
spark.sql("CREATE TABLE t (k INT)")
spark.sql("INSERT INTO t VALUES (1)")

def visited(frame):
    found = spark.sparkContext.accumulator(0)
    frame.foreachPartition(lambda rows: found.add(sum(1 for _ in rows)))
    return found.value

def each(frame):
    found = spark.sparkContext.accumulator(0)
    frame.foreach(lambda row: found.add(1))
    return found.value

uses = {{
    "iterator": lambda frame: len(list(frame.toLocalIterator())),
    "partitions": visited,
    "foreach": each,
    "rdd": lambda frame: frame.rdd.count(),
    "collect": lambda frame: len(frame.collect()),
    "count": lambda frame: frame.count(),
}}
queries = [
    "SELECT k FROM t",
    "SELECT a.k FROM t a JOIN t b ON a.k = b.k WHERE a.k >= (SELECT min(k) FROM t)",
]
rows = 1
result = []
for query in queries:
    for first in ("rdd", "iterator", "collect"):
        frame = spark.sql(query)
        made = rows if first == "rdd" else None
        seen = [uses[first](frame) - rows]
        for name, use in uses.items():
            rows += 1
            spark.sql("INSERT INTO t VALUES (" + str(rows) + ")")
            if name in ("rdd", "foreach", "partitions"):
                made = made or rows
            seen.append(use(frame) - (made if name in ("rdd", "foreach", "partitions") else rows))
        result.append([query, first, seen])
"""

# So much that the rows are in files: rows that are in the RDD itself need no hold.
ONE_TIME = """
import gc
spark.sql("USE slackwater.{schema}")
spark.sql("CREATE TABLE t (k INT, word STRING)")
spark.sql("INSERT INTO t SELECT id, repeat('word', 200) FROM range(20000)")
frame = spark.table("t")
kept = {make}
first = [kept.count(), kept.count()]
spark.sql("DELETE FROM t WHERE k < 19000")
for number in range(20):
    spark.sql("INSERT INTO t VALUES (" + str(-number) + ", 'w')")
del frame
gc.collect()
spark._jvm.System.gc()
"""

MAKERS = {
    "python": "frame.rdd",
    "derived": "frame.rdd.map(lambda row: row.k)",
    "shuffled": "frame.groupBy('k').count().rdd",
    "scala": "frame._jdf.rdd()",
    "checkpoint": "frame.localCheckpoint(eager=False)",
}

HOLDS = """
SELECT count(*) FROM mz_internal.mz_read_holds h JOIN mz_catalog.mz_tables t ON h.object_id = t.id
JOIN mz_catalog.mz_schemas s ON t.schema_id = s.id
WHERE s.name = '{schema}' AND h.kind = 'statement'
"""


def test_each_action_is_of_its_own_time_and_the_rdd_of_one(workplace):
    """PySpark keeps the RDD of a frame, and has foreach and foreachPartition go through it."""
    found = workplace.application.python(ACTIONS.format(schema=workplace.schema), timeout_s=400)
    assert [each for each in found if any(each[2])] == []


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.sampled(4)
def test_what_an_rdd_reads_is_held_as_long_as_it_lives(workplace, maker):
    application = workplace.application
    workplace.use("other")
    make = ONE_TIME.format(schema=workplace.schema, make=MAKERS[maker])
    code = make + "import builtins; builtins.kept = kept; result = first"
    assert application.python(code) == [20000, 20000]
    # Rows that are in a checkpoint are not read from their table again.
    assert held(workplace) == 1 or maker == "checkpoint"
    assert application.python("result = kept.count()") == 20000
    forget = "import builtins, gc; del builtins.kept; gc.collect()"
    application.python(forget)
    wait_until(lambda: collected(workplace), what="the end of the hold")


def held(workplace):
    """How many statements keep the table readable."""
    return workplace.value(HOLDS.format(schema=workplace.schema), session="other")


def collected(workplace):
    workplace.application.python("spark._jvm.System.gc()")
    return held(workplace) == 0
