"""Random histories, bounds and tick boundaries of temporal filters, compared with a model."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.compute.incremental import Bench, contents_of
from tests.support.compute.temporal_cases import LAST, TABLES

from slackwater.repr.frontier import TIMESTAMP_MAX

pytestmark = pytest.mark.spark

LEAST = -(2**63)

COMPARISONS = {
    "<": lambda now, value: now < value,
    "<=": lambda now, value: now <= value,
    ">": lambda now, value: now > value,
    ">=": lambda now, value: now >= value,
    "=": lambda now, value: now == value,
}

times = st.one_of(
    st.integers(-1, LAST + 2),
    st.sampled_from([None, LEAST, LEAST + 1, 10**15, TIMESTAMP_MAX - 1, TIMESTAMP_MAX]),
)
rows = st.tuples(st.one_of(st.none(), st.integers(0, 1)), st.integers(0, 2), times, times)
bounds = st.lists(
    st.tuples(st.sampled_from(sorted(COMPARISONS)), st.sampled_from(["s", "e", "v"])),
    min_size=1,
    max_size=3,
)


@st.composite
def updates(draw):
    """Inserts and deletes of rows that are there, at random times."""
    present: Counter = Counter()
    made = []
    for time in draw(st.lists(st.integers(1, LAST), max_size=14).map(sorted)):
        here = [row for row, count in present.items() if count]
        if here and draw(st.integers(0, 2)) == 0:
            row, diff = draw(st.sampled_from(here)), -1
        else:
            row, diff = draw(rows), draw(st.sampled_from([1, 1, 2]))
        present[row] += diff
        made.append((row, time, diff))
    return made


boundaries = st.lists(st.integers(1, LAST), max_size=5).map(lambda b: [*sorted({*b}), LAST + 1])


@dataclass(frozen=True, slots=True)
class Case:
    """`restart`: after so many of the boundaries another worker takes over."""

    history: list
    bounds: list
    boundaries: list
    as_of: int
    restart: int


cases = st.builds(Case, updates(), bounds, boundaries, st.integers(0, 4), st.integers(0, 4))


def valid(case, time):
    """The rows that are there and valid at a time."""
    names = ("k", "v", "s", "e")

    def holds(row):
        values = dict(zip(names, row, strict=True))
        return all(
            values[name] is not None and COMPARISONS[comparison](time, values[name])
            for comparison, name in case.bounds
        )

    return [row for row in contents_of(case.history, time) if holds(row)]


def expected(case, time):
    """The contents of the three views."""
    here = valid(case, time)
    return (
        Counter(here),
        Counter(Counter(row[0] for row in here).items()),
        Counter((x[1], y[1]) for x in here for y in here if x[0] is not None and x[0] == y[0]),
    )


def _condition(case, prefix):
    return " AND ".join(f"mz_now() {comparison} {prefix}{name}" for comparison, name in case.bounds)


def maintained(declared, case):
    """The same, at every time, as they are maintained."""
    where = _condition(case, "")
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), declared)
        try:
            bench.table("e", TABLES["e"])
            bench.view("valid", f"SELECT k, v, s, e FROM e WHERE {where}", case.as_of)
            bench.view(
                "counted", f"SELECT k, count(*) AS n FROM e WHERE {where} GROUP BY k", case.as_of
            )
            bench.view(
                "joined",
                "SELECT x.v, y.v AS w FROM valid AS x JOIN e AS y ON x.k = y.k"
                f" WHERE {_condition(case, 'y.')}",
                case.as_of,
            )
            for number, upper in enumerate(case.boundaries):
                if number == case.restart:
                    bench.worker.stop()
                    bench.worker = bench.new_worker("again")
                    for flow in bench.flows.values():
                        bench.worker.add(flow)
                lower = bench.client.reads.tables_upper()
                bench.commit(upper, {"e": [u for u in case.history if lower <= u[1] < upper]})
                if upper > case.as_of:
                    for name in bench.flows:
                        bench.wait(name, upper - 1)
            return {
                time: tuple(bench.rows(name, time) for name in bench.flows)
                for time in range(case.as_of, LAST + 1)
            }
        finally:
            bench.close()
            assert bench.fatal == []


@histories(suppress_health_check=list(HealthCheck))
@given(cases)
def test_rows_are_there_while_they_are_valid_at_every_time(declared, case):
    found = maintained(declared, case)
    assert found == {time: expected(case, time) for time in found}
