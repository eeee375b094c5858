"""What the search found, as small as it could be made."""

from __future__ import annotations

import pytest
from tests.fuzz.cases import Case, Run, View
from tests.fuzz.running import failure_of

from slackwater.compute.limits import Limits

pytestmark = pytest.mark.spark

ONE_BY_ONE = Run(boundaries=(3, 6, 10), limits=Limits(), workers=1, kills=())


def views(*queries: str) -> dict[str, View]:
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    return {f"v{n}": View(query, query, settings) for n, query in enumerate(queries)}


def test_zeros_are_one_however_a_view_is_computed(declared):
    """What was filled with -0.0 was taken away as 0.0 by a program, and as -0.0 by a job."""
    query = "SELECT -0.0{} AS z, x.c0 AS k, max(x.c1) AS m FROM t0 AS x GROUP BY x.c0"
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    by_jobs = Limits(few_rows=0, inline_rows=0, incremental_below_rows=3)
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "integer"}},
        histories={
            "t0": (
                *(((k, 1), 1, 1) for k in range(6)),
                *(((k, 1), 6, -1) for k in range(6)),
                ((7, 1), 8, 1),
            )
        },
        views={"v0": View(query.format("D"), query.format("::DOUBLE"), settings)},
        as_of=0,
        runs=[ONE_BY_ONE, Run(boundaries=(6, 10), limits=by_jobs, workers=1, kills=())],
    )
    assert failure_of(declared, case) is None


def test_not_in_beside_other_conditions_of_a_join_knows_null(declared):
    """Spark 4.2 asks there whether an equal value exists; DuckDB asks what SQL does."""
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "integer"}, "t1": {"c0": "integer"}},
        histories={
            "t0": (((None, 1), 2, 2), ((1, 1), 2, 1), ((2, 1), 5, 1)),
            "t1": (((1,), 4, 1), ((None,), 7, 1), ((None,), 9, -1)),
        },
        views=views(
            *(
                f"SELECT x.c0 AS a, y.c0 AS b FROM t0 AS x {join} JOIN t0 AS y"
                f" ON x.c1 = y.c1 AND {side}.c0 NOT IN (SELECT z.c0 FROM t1 AS z)"
                for join, side in (("RIGHT", "y"), ("LEFT", "x"), ("LEFT", "y"))
            )
        ),
        as_of=0,
        runs=[ONE_BY_ONE],
    )
    assert failure_of(declared, case) is None


def test_a_group_by_a_map_is_taken_away_as_it_was_filled(declared):
    row = (1, (("x", None), ("y", 2)))
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "map"}},
        histories={"t0": ((row, 5, 1), (row, 8, -1))},
        views=views("SELECT x.c1 AS c0, count(x.c1) AS n FROM t0 AS x GROUP BY x.c1"),
        as_of=0,
        runs=[Run(boundaries=(7, 10), limits=Limits(), workers=1, kills=(2, 8, 19))],
    )
    assert failure_of(declared, case) is None


def test_an_offset_below_selected_columns_is_by_the_order_of_its_limit(declared):
    """LIMIT was by the selected columns where several projections were between it and OFFSET."""
    query = "SELECT x.c0 AS a FROM t0 AS x ORDER BY x.c1 LIMIT 3 OFFSET 1"
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "integer"}},
        histories={"t0": tuple(((c0, c1), 2, 1) for c0, c1 in ((9, 1), (8, 2), (1, 4), (7, 3)))},
        views=views(query, f"SELECT y.a, y.a AS b FROM ({query}) AS y"),
        as_of=0,
        runs=[ONE_BY_ONE],
    )
    assert failure_of(declared, case) is None
