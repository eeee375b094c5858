"""Random tables, histories, views and tick boundaries, compared at every time with DuckDB."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from tests.property.histories import histories
from tests.support.compute.incremental import Bench
from tests.support.compute.no_memory import WithoutMemory
from tests.support.compute.program_cases import HISTORIES, QUERIES
from tests.support.compute.view_histories import LAST, TABLES, Case, cases_in_order, recomputed

from slackwater.compute.cost_model import CostModel

pytestmark = pytest.mark.spark


TOP = "SELECT k, count(*) AS n, sum(v) AS v FROM v0 GROUP BY k"


def maintained(declared, case, boundaries, top=TOP, engine=None):
    """The contents of each view, and of a view on it, at every time."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), declared, engine=engine)
        try:
            for name, desc in TABLES.items():
                bench.table(name, desc)
            for i, query in enumerate(case.views):
                bench.view(f"v{i}", query, case.as_of)
            if top:
                bench.view("top", top, case.as_of)
            for upper in boundaries:
                lower = bench.client.reads.tables_upper()
                bench.commit(
                    upper,
                    {n: [u for u in h if lower <= u[1] < upper] for n, h in case.histories.items()},
                )
                if upper > case.as_of:
                    for name in bench.flows:
                        bench.wait(name, upper - 1)
            times = range(case.as_of, LAST + 1)
            return {name: [bench.rows(name, time) for time in times] for name in bench.flows}
        finally:
            bench.close()
            assert bench.fatal == []


@histories(suppress_health_check=list(HealthCheck))
@given(cases_in_order)
def test_views_equal_a_recomputation_at_every_time(declared, case):
    expected = recomputed(case)
    for boundaries in {case.boundaries, case.others}:
        assert maintained(declared, case, boundaries) == expected


@pytest.mark.parametrize(
    "boundaries",
    [pytest.param((LAST + 1,), marks=pytest.mark.nightly), (2, 4, 7, LAST + 1)],
)
@pytest.mark.parametrize("operator", QUERIES)
def test_worked_cases_of_operators(declared, operator, boundaries):
    queries = QUERIES[operator]
    case = Case(HISTORIES, queries, boundaries, boundaries, 0)
    expected = recomputed(case, top=None)
    assert maintained(declared, case, boundaries, top=None) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("operator", QUERIES)
def test_worked_cases_without_memory_for_arrangements(declared, tmp_path, monkeypatch, operator):
    """Also where to compute these few rows anew takes less time."""
    monkeypatch.setattr(CostModel, "recompute_and_not_read", lambda self: False)
    case = Case(HISTORIES, QUERIES[operator], (), (), 0)
    engine = WithoutMemory(declared.engine(str(tmp_path)))
    found = maintained(declared, case, (2, 7, LAST + 1), top=None, engine=engine)
    assert found == recomputed(case, top=None)
