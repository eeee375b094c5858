"""TPC-H's queries as maintained views under refresh streams, and how each is maintained.

``--write-plans`` writes the file with the latter anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.compute.incremental import Bench
from tests.support.compute.tpch import QUERIES, REFRESHES, Warehouse, differences
from tests.support.waiting import wait_until

from slackwater.planner.delta.explain import explain_program, explain_recomputed
from slackwater.storage.tpch import TABLES

pytestmark = pytest.mark.spark

EXPLAINED = Path(__file__).parent / "plans" / "tpch_incremental.txt"
SCALE_FACTOR = "0.01"


@pytest.fixture(scope="module")
def bench(declared, tmp_path_factory):
    made = Bench(tmp_path_factory.mktemp("tpch"), declared)
    for name, desc in TABLES.items():
        made.table(name, desc)
    yield made
    made.close()
    assert made.fatal == []


def test_every_query_is_maintained_in_steps(bench, request):
    names = {bench.relations[name][0]: name for name in TABLES}
    explained = {name: _explained(bench.plan(query), names) for name, query in QUERIES.items()}
    assert len(explained) == 22
    found = "\n\n".join(f"-- {name}\n{_text(rows)}" for name, rows in explained.items()) + "\n"
    if request.config.getoption("--write-plans"):
        EXPLAINED.write_text(found)
    assert EXPLAINED.read_text() == found
    kinds = {row.maintenance for rows in explained.values() for row in rows}
    assert kinds == {"linear", "bilinear", "accumulable", "keyed"}


def _explained(plan, names):
    if plan.program is None:
        return explain_recomputed(plan.kept.plan, names, plan.reason)
    return explain_program(plan.kept.plan, names)


def _text(rows):
    depths = {}
    lines = []
    for row in rows:
        depth = depths[row.id] = 0 if row.parent is None else depths[row.parent] + 1
        reason = f": {row.reason}" if row.reason else ""
        lines.append(f"{'  ' * depth}{row.operator} ({row.maintenance}){reason}")
    return "\n".join(lines)


@pytest.mark.nightly
def test_views_equal_duckdb_at_every_refresh(bench, tmp_path):
    warehouse = Warehouse(tmp_path, SCALE_FACTOR)
    try:
        bench.write(2, warehouse.load(1))
        for name, query in QUERIES.items():
            bench.view(name, query, as_of=1)
        answers = [_compared(bench, warehouse, 1, "the load")]
        for time, (stream, changes) in enumerate(REFRESHES.items(), start=2):
            bench.write(time + 1, warehouse.refresh(changes, time))
            answers.append(_compared(bench, warehouse, time, stream))
    finally:
        warehouse.close()
    still = {name for name in QUERIES if len({repr(each[name]) for each in answers}) == 1}
    assert still == set(), "no refresh changes these"
    views = {flow.global_id for flow in bench.flows.values()}
    # The record of a tick is made after its commit.
    wait_until(
        lambda: {r.global_id for r in bench.worker.records.all() if r.by_program} == views,
        what="each view is maintained by a program",
    )


def _compared(bench, warehouse, time, stream):
    """What DuckDB answers, which is what the views hold."""
    answers = {}
    for name, query in QUERIES.items():
        bench.wait(name, time)
        answers[name] = sorted(warehouse.answer(query), key=repr)
        found = [tuple(row.values()) for row in bench.snapshot(name, time).to_pylist()]
        assert differences(found, answers[name]) == [], (name, stream)
    return answers
