"""Keys whose equal values differ: texts with a collation, and maps."""

from __future__ import annotations

import json

import pytest
from tests.support.compute.incremental import Bench

from slackwater.repr.relation import Column, RelationDesc

pytestmark = pytest.mark.spark

MAP = '{"keyType":"string","type":"map","valueContainsNull":true,"valueType":"integer"}'
TEXTS = RelationDesc(
    (
        Column("k", '"integer"'),
        Column("s", '"string"', True, json.dumps({"__COLLATIONS": {"s": "spark.UTF8_LCASE"}})),
        Column("m", MAP),
    )
)
ONE, NONE = (("x", 1),), (("x", None),)
HISTORY = [
    ((1, "ab", ONE), 1, 1),
    ((2, "Ab", ONE), 2, 1),
    ((3, "aB", NONE), 2, 1),
    ((4, None, None), 3, 2),
    ((5, "b", (("x", 1), ("y", 2))), 3, 1),
    # the one that stood for the group goes, and comes back
    ((2, "Ab", ONE), 5, -1),
    ((1, "ab", ONE), 6, -1),
    ((1, "ab", (("y", 2), ("x", 1))), 6, 1),
    ((2, "Ab", NONE), 8, 1),
    ((4, None, None), 9, -2),
]
LAST = 10
VIEWS = {
    "groups": "SELECT s, count(*) AS n, min(k) AS k FROM texts GROUP BY s",
    "once": "SELECT DISTINCT s FROM texts",
    "maps": "SELECT m, count(*) AS n FROM texts GROUP BY m",
    "nested": "SELECT named_struct('s', s, 'k', k % 2) AS g, sum(k) AS n FROM texts GROUP BY 1",
    "known": "SELECT count(DISTINCT s) AS n FROM texts",
    "extremes": "SELECT min(s) AS lo, max(s) AS hi, max_by(s, k) AS last, min_by(k, s) AS k "
    "FROM texts",
    "lists": "SELECT k % 2 AS g, collect_list(s) AS all FROM texts GROUP BY 1",
    "numbered": "SELECT k, s, row_number() OVER (PARTITION BY s ORDER BY k) AS n FROM texts",
    "pairs": "SELECT a.k, b.k AS other, a.s FROM texts AS a JOIN texts AS b ON a.s = b.s",
    "but": "SELECT s FROM texts WHERE k % 2 = 0 EXCEPT SELECT s FROM texts WHERE k = 3",
    "both": "SELECT s FROM texts WHERE k = 1 INTERSECT SELECT s FROM texts WHERE k > 1",
    "found": "SELECT k FROM texts WHERE s NOT IN (SELECT s FROM texts WHERE k > 4)",
}


def contents(time):
    """The rows at a time, as (k, s, m); maps by their keys."""
    rows = []
    for (k, s, m), at, diff in HISTORY:
        if at <= time:
            row = (k, s, None if m is None else tuple(sorted(m)))
            rows = rows + [row] * diff if diff > 0 else [r for r in rows if r != row]
    return rows


def model(name, time):
    """What some of the views hold, sorted."""
    rows = contents(time)
    texts = {None if s is None else s.lower() for _, s, _ in rows}
    spelt = {t: [s for _, s, _ in rows if s is not None and s.lower() == t] for t in texts}
    least = {t: min(spelt[t], key=str.encode) if t is not None else None for t in texts}
    of_text = {t: [k for k, s, _ in rows if s in spelt[t] or (s is t is None)] for t in texts}
    made = {
        "groups": [(least[t], len(of_text[t]), min(of_text[t])) for t in texts],
        "once": [(least[t],) for t in texts],
        "maps": [(m, [r[2] for r in rows].count(m)) for m in {r[2] for r in rows}],
        "known": [(len(texts - {None}),)],
        "numbered": [
            (k, s, 1 + sum(other < k for other in of_text[s and s.lower()]))
            for k, s, _ in rows
            if s is not None
        ],
    }
    return sorted(made[name], key=repr)


@pytest.mark.parametrize("query", VIEWS.values(), ids=VIEWS)
def test_they_are_followed(declared, tmp_path, query):
    bench = Bench(tmp_path, declared)
    try:
        bench.table("texts", TEXTS)
        plan = bench.plan(query)
        assert plan.program is not None, plan.reason
    finally:
        bench.close()


def maintained(declared, directory, boundaries):
    bench = Bench(directory, declared)
    try:
        bench.table("texts", TEXTS)
        for name, query in VIEWS.items():
            bench.view(name, query)
        for upper in boundaries:
            lower = bench.client.reads.tables_upper()
            bench.commit(upper, {"texts": [u for u in HISTORY if lower <= u[1] < upper]})
            for name in VIEWS:
                bench.wait(name, upper - 1)
        rows = {
            (name, time): sorted(
                (tuple(map(plain, row.values())) for row in bench.snapshot(name, time).to_pylist()),
                key=repr,
            )
            for name in VIEWS
            for time in range(LAST)
        }
        return rows, {name: bench.updates(name) for name in VIEWS}
    finally:
        bench.close()


def plain(value):
    """Maps as tuples of entries."""
    is_map = isinstance(value, list) and value and isinstance(value[0], tuple)
    return tuple(value) if is_map else value


@pytest.mark.nightly
def test_other_boundaries_of_ticks_leave_the_same(declared, tmp_path):
    rows, updates = maintained(declared, tmp_path / "one", (LAST,))
    others, again = maintained(declared, tmp_path / "many", (2, 3, 4, 6, 7, 9, LAST))
    assert updates == again
    assert rows == others
    for name in ("groups", "once", "maps", "known", "numbered"):
        for time in range(LAST):
            found = rows[name, time]
            if name == "numbered":
                found = [row for row in found if row[1] is not None]
            assert found == model(name, time), (name, time)
