"""How far a view that is being hydrated has come can be read meanwhile."""

from __future__ import annotations

import contextlib
import json

import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.applications.gate import Gate
from tests.support.otlp import receiver
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

ROWS, FILE_ROWS = 300_000, 100_000
"""More than are computed without executors, and how many are in a file."""
PROGRESS = "SELECT rows_read, rows_known, elapsed_ms FROM mz_internal.mz_hydration_progress"
"""Without a job of executors, which are busy."""

BY_TASKS = """
from pyspark import TaskContext

def stand(k):
    if k % {file_rows} == 0:
        gate = {gates!r}.get(TaskContext.get().partitionId())
        if gate is not None:
            open(gate).close()
    return k

spark.udf.register("stand", stand, "bigint")
result = None
"""
"""A function that waits in some tasks, until the gate of the task is open."""

OFTEN = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
"""Spans are sent so often, in milliseconds."""

WATCHED = """
from slackwater.spark import notices
spark._jvm.org.apache.spark.sql.slackwater.process.Notices.listen(notices.Warner(), True)
result = None
"""
"""Somebody sees what this program writes to standard error, which the log of the test has."""


def made_of(events, name):
    """The columns of which those of a view are made, as the last event on it says."""
    lines = events.read_text().splitlines() if events.exists() else []
    outputs = [each for line in lines for each in json.loads(line)["outputs"]]
    found = [each for each in outputs if each["name"] == f"slackwater.default.{name}"]
    if not found:
        return None
    return {
        column: [f"{r['field']} {r['transformations'][0]['subtype']}" for r in reads["inputFields"]]
        for column, reads in found[-1]["facets"]["columnLineage"]["fields"].items()
    }


@pytest.mark.nightly
def test_progress_is_told_in_rows_until_the_view_is_dropped(tmp_path):
    # A task for each file, one after the other: Spark tells what one has read when it ends.
    conf = {"spark.sql.files.maxPartitionBytes": "500k", "spark.sql.files.openCostInBytes": "0"}
    events = tmp_path / "lineage.jsonl"
    variables = {
        "OPENLINEAGE__TRANSPORT__TYPE": "file",
        "OPENLINEAGE__TRANSPORT__LOG_FILE_PATH": str(events),
        "OPENLINEAGE__TRANSPORT__APPEND": "true",
    }
    with (
        contextlib.closing(Gate(tmp_path / "first")) as first,
        contextlib.closing(Gate(tmp_path / "second")) as second,
        receiver() as received,
        Application(
            tmp_path / "environment",
            conf=conf,
            variables={**variables, "OTEL_EXPORTER_OTLP_ENDPOINT": received.address, **OFTEN},
        ) as place,
    ):
        place.sql("USE slackwater")
        place.sql("CREATE TABLE t (k BIGINT)")
        for begin in range(0, ROWS, FILE_ROWS):
            place.sql(f"INSERT INTO t SELECT id FROM range({begin}, {begin + FILE_ROWS})")
        gates = {1: str(first.path), 2: str(second.path)}
        place.python(BY_TASKS.format(gates=gates, file_rows=FILE_ROWS))
        place.sql("CREATE MATERIALIZED VIEW slow AS SELECT k, stand(k) AS s FROM t")
        seen = []

        def has_read_more_than(rows):
            seen.extend(place.rows(PROGRESS))
            return bool(seen) and seen[-1][0] > rows

        wait_until(lambda: has_read_more_than(0), what="the first task has ended")
        first.open()
        wait_until(lambda: has_read_more_than(FILE_ROWS), what="the second task has ended")
        read, _, elapsed = zip(*seen, strict=True)
        assert set(read) - {0} == {FILE_ROWS, 2 * FILE_ROWS}
        assert list(read) == sorted(read)
        assert list(elapsed) == sorted(elapsed)
        assert {known for _, known, _ in seen} == {ROWS}
        ((_, _, state, progress, *_),) = place.rows("SHOW MATERIALIZED VIEWS")
        assert (state, progress) == ("hydrating", "66 %: 200,000 of 300,000 rows")
        place.python(WATCHED)
        reader = place.start("SELECT count(*) FROM slackwater.default.slow", session="reader")
        told = "slackwater.default.slow is hydrating, 66 %: 200,000 of 300,000 rows."
        wait_until(lambda: told in place.log.read_text(), what="the line of who waits")
        wait_until(lambda: made_of(events, "slow"), what="its lineage was told")
        assert made_of(events, "slow") == {"k": ["k IDENTITY"], "s": ["k TRANSFORMATION"]}
        place.sql("DROP MATERIALIZED VIEW slow")
        with pytest.raises(SqlError, match="SLACKWATER_DEPENDENCY_DROPPED"):
            reader.result(PATIENCE)
        wait_until(lambda: not place.rows(PROGRESS), what="its hydration has ended")
        _is_a_trace_with_links_to_ticks(place, received)


def _is_a_trace_with_links_to_ticks(place, received):
    """A read of a view that has to follow a write first, and what was sent of it."""
    place.sql("CREATE MATERIALIZED VIEW few AS SELECT k FROM t WHERE k < 0")
    (view,) = (e[0] for e in place.rows("SELECT id FROM mz_catalog.mz_objects WHERE name = 'few'"))
    written = []

    def has_waited():
        written.append(-1 - len(written))
        place.sql(f"INSERT INTO t VALUES ({written[-1]})")
        assert len(place.rows("SELECT k FROM few")) == len(written)
        return any(each.links for each in received.spans("wait", object=view))

    wait_until(has_waited, what="a read has waited for a tick")
    wait = next(each for each in received.spans("wait", object=view) if each.links)

    def read():
        whole = (each for each in received.spans("select") if each.trace == wait.trace)
        return next(whole, None)

    wait_until(lambda: read() and received.linked(wait), what="the spans around it have come")
    below = {each.name: each for each in received.below(read())}
    assert below.keys() == {"bind", "spark execution"}
    spark = below["spark execution"]
    assert wait.parent == below["bind"].id
    number = read().attributes["spark_execution_id"]
    assert spark.attributes["spark_execution_id"] == number
    assert spark.attributes["rows_returned"] == read().attributes["rows_returned"] > 0
    assert spark.began_ns < spark.ended_ns <= read().ended_ns
    for tick in received.linked(wait):
        assert (tick.name, tick.attributes["dataflow"]) == ("tick", view)
        assert tick.attributes["lower"] <= wait.attributes["timestamp"]
        assert tick.trace != wait.trace
