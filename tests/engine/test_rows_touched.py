"""What a tick touches follows what has changed, whatever the inputs hold: for each operator."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.compute.incremental import Bench

from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, RelationDesc

pytestmark = pytest.mark.spark

R = RelationDesc.of(k="integer", v="long", g="integer")
PER_KEY = 4
SIZES = (1_000, 8_000)
MOST = 100
"""So many rows may be touched for each row that comes or goes, in the inputs or in the output."""

QUERIES = {
    "map and filter": "SELECT k + 1 AS k, v FROM r WHERE v % 3 < 2",
    "generate": "SELECT k, e FROM r LATERAL VIEW explode(array(v, v + 1)) AS e",
    "expand": "SELECT k, g, count(*) AS n FROM r GROUP BY GROUPING SETS ((k), (g), ())",
    "union": "SELECT k, v FROM r UNION ALL SELECT k, v FROM q",
    "union of distinct rows": "SELECT k, v FROM r UNION SELECT k, v FROM q",
    "inner join": "SELECT r.k, q.v FROM r JOIN q ON r.k = q.k",
    "three joins": "SELECT a.k, c.v FROM r AS a JOIN q AS b ON a.k = b.k JOIN r AS c ON b.v = c.v",
    "left join": "SELECT r.k, q.v FROM r LEFT JOIN q ON r.k = q.k AND q.v > r.v",
    "full join": "SELECT r.k, q.v FROM r FULL JOIN q ON r.k = q.k",
    "semi join": "SELECT k, v FROM r WHERE EXISTS (SELECT 1 FROM q WHERE q.k = r.k)",
    "anti join": "SELECT k, v FROM r WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.k = r.k)",
    "semi join with anything": "SELECT k, v FROM r WHERE EXISTS (SELECT 1 FROM q WHERE v >= 0)",
    "not in": "SELECT k, v FROM r WHERE k NOT IN (SELECT k FROM q WHERE v % 8 = 0)",
    "existence": "SELECT k, v FROM r WHERE v < 0 OR k IN (SELECT k FROM q)",
    "except all": "SELECT k FROM r EXCEPT ALL SELECT k FROM q",
    "intersect all": "SELECT k FROM r INTERSECT ALL SELECT k FROM q",
    "except": "SELECT k FROM r EXCEPT SELECT k FROM q",
    "sums by groups": "SELECT k, sum(v) AS s, avg(v) AS a, count(*) AS n FROM r GROUP BY k",
    "sums of all": "SELECT sum(v) AS s, count(*) AS n, stddev(v) AS d, corr(k, v) AS c FROM r",
    "distinct": "SELECT DISTINCT k FROM r",
    "extremes by groups": "SELECT g, min(v) AS lo, max(v) AS hi FROM r GROUP BY g",
    "extremes of all": "SELECT min(v) AS lo, max(v) AS hi FROM r",
    "distinct values": "SELECT count(DISTINCT k) AS n, sum(v) AS s FROM r",
    "mixed": "SELECT g, max(v) AS m, count(DISTINCT k) AS n, sum(v) AS s FROM r GROUP BY g",
    "by whole groups": "SELECT k, max_by(v, g) AS b, median(v) AS m, mode(v) AS o FROM r "
    "GROUP BY k",
    "windows": "SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM r",
    "the first of each": "SELECT k, v FROM r QUALIFY row_number() OVER "
    "(PARTITION BY k ORDER BY v DESC) = 1",
    "the first of all": "SELECT k, v FROM r ORDER BY v DESC LIMIT 1",
    "some of all": "SELECT k, v FROM r LIMIT 2",
    "the last of peers": "SELECT k, last_value(v) OVER (PARTITION BY k ORDER BY g) AS l FROM r",
    "in one order": "SELECT k, histogram_numeric(v, 2) AS h FROM r GROUP BY k",
    "sessions": "SELECT k, session_window(timestamp_seconds(v), '1 second') AS w, count(*) AS n"
    " FROM r GROUP BY ALL",
    "unpivot": "SELECT * FROM (SELECT k, v, v + 1 AS w FROM r) UNPIVOT (x FOR c IN (v, w))",
    "a scalar subquery": "SELECT k, v, (SELECT max(v) FROM q WHERE q.k = r.k) AS m FROM r",
    "lateral": "SELECT r.k, x.n FROM r, LATERAL (SELECT count(*) AS n FROM q WHERE q.k = r.k) AS x",
    "pivot": "SELECT * FROM (SELECT k, v % 2 AS o, v FROM r) PIVOT (sum(v) FOR o IN (0, 1))",
    "a temporal filter": "SELECT k, v FROM r WHERE mz_now() < v",
}


def rows(size):
    return [(i // PER_KEY, i, i // (size // 2)) for i in range(size)]


def updates(changes, at):
    columns = list(zip(*changes, strict=True))
    schema = R.update_schema()
    arrays = [pa.array(column, schema.field(i).type) for i, column in enumerate(columns)]
    assert schema.names[-2:] == [TIME_COLUMN, DIFF_COLUMN]
    times = pa.array([at] * len(changes), pa.int64())
    return pa.Table.from_arrays([*arrays[:-1], times, arrays[-1]], schema=schema)


@pytest.mark.parametrize("size", [pytest.param(SIZES[0], marks=pytest.mark.nightly), SIZES[1]])
def test_ticks_touch_what_changes(declared, tmp_path, size):
    bench = Bench(tmp_path, declared)
    try:
        for name in ("r", "q"):
            bench.table(name, R)
        content = rows(size)
        loaded = updates([(*row, 1) for row in content], 1)
        bench.write(2, {"r": loaded, "q": loaded})
        for name, query in QUERIES.items():
            bench.view(name, query, 1, is_read=False)
        # The first change hydrates the program; the greatest row goes, one comes, one is between;
        # then those of the other table, at the right side of joins and in subqueries.
        last, middle = content[-1], content[size // 2]
        changes = (
            ("r", [(*middle, -1)]),
            ("r", [(*last, -1)]),
            ("r", [(*middle, 1), (last[0], last[1] + 7, last[2], 1)]),
            ("q", [(*middle, -1)]),
            ("q", [(*last, -1), (*middle, 1)]),
        )
        for number, (table, changed) in enumerate(changes):
            at = 2 + number
            bench.write(at + 1, {table: updates(changed, at)})
            for name, query in QUERIES.items():
                if table == "q" and " q" not in query:
                    continue
                tick = bench.ticked(name, at)
                assert tick.by_program, name
                if number > 0:
                    touched = tick.scanned + tick.looked_up + sum(s.emitted for s in tick.steps)
                    assert touched <= MOST * (len(changed) + tick.emitted), (name, tick)
    finally:
        bench.close()


def test_a_change_of_columns_that_nobody_reads_is_none(declared, tmp_path):
    bench = Bench(tmp_path, declared)
    try:
        for name in ("r", "q"):
            bench.table(name, R)
        loaded = updates([(1, 10, 0, 1)], 1)
        bench.write(2, {"r": loaded, "q": loaded})
        bench.view("joined", QUERIES["inner join"], 1)
        for at, (old, new) in enumerate([(0, 5), (5, 6)], start=2):
            bench.write(at + 1, {"r": updates([(1, 10, old, -1), (1, 10, new, 1)], at)})
            tick = bench.ticked("joined", at)
            assert tick.by_program
            assert (tick.looked_up, sum(s.emitted for s in tick.steps)) == (0, 0)
    finally:
        bench.close()


def test_of_partners_that_are_only_counted_there_is_one_number_for_each_key(declared, tmp_path):
    """All rows of the other side have one key: none of them is looked up when one more comes."""
    bench = Bench(tmp_path, declared)
    try:
        for name in ("r", "q"):
            bench.table(name, R)
        many = updates([(1, v, 0, 1) for v in range(SIZES[0])], 1)
        bench.write(2, {"r": updates([(1, 0, 0, 1), (2, 0, 0, 1)], 1), "q": many})
        for kind in ("left join", "full join", "semi join", "anti join"):
            bench.view(kind, QUERIES[kind].replace(" AND q.v > r.v", ""), 1, is_read=False)
        for at in (2, 3, 4):
            bench.write(at + 1, {"q": updates([(1, -at, 0, 1)], at)})
            for kind in ("left join", "full join", "semi join", "anti join"):
                tick = bench.ticked(kind, at)
                assert tick.by_program, kind
                assert at == 2 or tick.looked_up <= 20, (kind, tick)
    finally:
        bench.close()
