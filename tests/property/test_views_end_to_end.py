"""Random histories over the whole product: each view, AS OF every time, is its query.

The tables' contents at every step are kept in Python as well; DuckDB answers the same queries over
them, so that the comparison does not rest on the product alone.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import duckdb
import pytest
from tests.property.histories import PLANS, TRIED
from tests.support.applications.many_relations import interpret, read_at_once

pytestmark = pytest.mark.spark

STEPS = 8
READER = "reader"
KEYS = (1, 2, 3, None)
COLUMNS = {"a": ("id", "k", "x"), "b": ("id", "k", "x"), "c": ("id", "k", "x")}

VIEWS = {
    "filtered": "SELECT id, k, x * 2 AS x FROM a WHERE x > 2 OR x IS NULL",
    "joined": "SELECT a.id AS i, b.id AS j, a.x + b.x AS x FROM a JOIN b ON a.k = b.k",
    "grouped": "SELECT k, count(*) AS n, count(x) AS m, sum(x) AS x FROM a GROUP BY k",
    "global_sum": "SELECT count(*) AS n, sum(x) AS x FROM b",
    "total": "SELECT count(*) AS n, sum(x) AS x, max(x) AS hi, count(DISTINCT k) AS ks FROM c",
    "total_of_few": "SELECT max(x) AS hi, min(k) AS lo FROM a WHERE x > 3",
    "total_if": "SELECT count(*) AS n, max(x) AS hi FROM b HAVING count(*) = 0 OR max(x) > 2",
    "total_filtered": (
        "SELECT count(*) FILTER (WHERE x > 2) AS n, max(x) FILTER (WHERE k = 1) AS hi FROM c"
    ),
    "some_keys": "SELECT id, x FROM a WHERE k IN (1, 3)",
    "no_key": "SELECT id, k FROM a WHERE id IS NULL",
    "distinct_keys": "SELECT DISTINCT k FROM a",
    "together": "SELECT k, x FROM a UNION ALL SELECT k, x FROM b",
    "three": (
        "SELECT a.k, count(*) AS n FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k GROUP BY a.k"
    ),
    "chain": "SELECT n, count(*) AS groups, sum(x) AS x FROM grouped GROUP BY n",
    "diamond": "SELECT g.k, g.n, d.x FROM grouped g JOIN filtered d ON g.k = d.k",
    "having_many": "SELECT k, sum(x) AS x FROM c GROUP BY k HAVING count(*) > 1",
    "extremes": "SELECT k, min(x) AS lo, max(x) AS hi FROM c GROUP BY k",
    "outer_join": "SELECT a.id AS i, c.id AS j FROM a LEFT JOIN c ON a.k = c.k AND a.x = c.x",
    "missing": "SELECT k FROM a EXCEPT SELECT k FROM b",
    "total_of_groups": "SELECT count(*) AS n, max(hi) AS hi, min(lo) AS lo FROM extremes",
    "total_of_totals": "SELECT count(*) AS c, max(n) AS n, max(hi) AS hi FROM total",
    "total_beside_keys": "SELECT g.k, g.n, t.hi FROM grouped g CROSS JOIN total t",
    "keys_beside_total": "SELECT t.n, t.hi, e.k FROM total t LEFT JOIN extremes e ON t.hi = e.hi",
    "totals_together": (
        "SELECT n FROM total UNION ALL SELECT max(n) FROM grouped UNION ALL SELECT min(x) FROM a"
    ),
    "total_in_cte": (
        "WITH t AS (SELECT max(x) AS hi FROM b) SELECT a.id, t.hi FROM t LEFT JOIN a ON a.x = t.hi"
    ),
    "never": "SELECT k, n FROM grouped WHERE n IS NULL",
    "ranked": (
        "SELECT id, row_number() OVER (PARTITION BY k ORDER BY x NULLS FIRST, id) AS r FROM b"
    ),
}


class History:
    """Random DML against the product and against lists of rows."""

    def __init__(self, place, seed):
        self._place = place
        self._random = random.Random(seed)
        self._next_id = 1
        self.contents = {name: [] for name in COLUMNS}

    def step(self):
        """One statement, or one transaction, that may change any table."""
        action = self._random.choice(
            [
                *["insert", "insert", "insert", "copy", "update", "delete", "merge", "transaction"],
                *["clear", "clear"],
            ]
        )
        table = self._random.choice(list(COLUMNS))
        if action == "transaction":
            self._place.sql("BEGIN")
            for name in COLUMNS:
                self._insert(name)
            self._place.sql("COMMIT")
        else:
            getattr(self, f"_{action}")(table)

    def _row(self):
        row = (self._next_id, self._random.choice(KEYS), self._random.choice([0, 1, 2, 3, 5, None]))
        self._next_id += 1
        return row

    def _insert(self, table):
        rows = [self._row() for _ in range(self._random.randint(1, 4))]
        if self._random.random() < 0.3:
            rows.append(rows[0])
        self.contents[table] += rows
        self._place.sql(f"INSERT INTO {table} VALUES {', '.join(map(_literal, rows))}")

    def _copy(self, table):
        """Duplicates: rows of another table, at one time with the write."""
        source = self._random.choice(list(COLUMNS))
        self.contents[table] += [row for row in self.contents[source] if row[1] == 1]
        self._place.sql(f"INSERT INTO {table} SELECT * FROM {source} WHERE k = 1")

    def _update(self, table):
        key, value = self._random.choice(KEYS[:3]), self._random.randint(0, 5)
        self.contents[table] = [
            (i, k, value) if k == key else (i, k, x) for i, k, x in self.contents[table]
        ]
        self._place.sql(f"UPDATE {table} SET x = {value} WHERE k = {key}")

    def _delete(self, table):
        value = self._random.randint(0, 5)
        self.contents[table] = [row for row in self.contents[table] if row[2] != value]
        self._place.sql(f"DELETE FROM {table} WHERE x = {value}")

    def _clear(self, table):
        self.contents[table] = []
        self._place.sql(f"DELETE FROM {table}")

    def _merge(self, table):
        """Moves one key to another, or adds a row where there is none."""
        key, row = self._random.choice(KEYS[:3]), self._row()
        found = [r for r in self.contents[table] if r[1] == key]
        if found:
            self.contents[table] = [
                (i, None, x) if k == key else (i, k, x) for i, k, x in self.contents[table]
            ]
        else:
            self.contents[table].append((row[0], key, row[2]))
        self._place.sql(
            f"MERGE INTO {table} t USING (SELECT {row[0]} AS id, {key} AS k, "
            f"cast({_sql(row[2])} AS INT) AS x) s ON t.k = s.k "
            "WHEN MATCHED THEN UPDATE SET t.k = NULL "
            "WHEN NOT MATCHED THEN INSERT (id, k, x) VALUES (s.id, s.k, s.x)"
        )


def _sql(value):
    return "NULL" if value is None else str(value)


def _literal(row):
    return "(" + ", ".join(map(_sql, row)) + ")"


def expected(contents):
    """Every view's rows by DuckDB, which sees nothing of the product."""
    engine = duckdb.connect()
    for table, rows in contents.items():
        engine.execute(f"CREATE TABLE {table} (id INT, k INT, x INT)")
        if rows:
            engine.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
    found = {}
    for name, query in VIEWS.items():
        found[name] = Counter(
            tuple(None if value is None else int(value) for value in row)
            for row in engine.execute(query).fetchall()
        )
        engine.execute(f"CREATE VIEW {name} AS {query}")
    engine.close()
    return found


def read(place, time_ms):
    """What is in each view, and what its query answers."""
    asked = {f"{name}?": query for name, query in VIEWS.items()}
    asked |= {name: f"SELECT * FROM {name}" for name in VIEWS}
    found = read_at_once(place, asked, session=READER, at=time_ms)
    rows = {
        name: Counter({tuple(json.loads(row).values()): n for row, n in each.items()})
        for name, each in found.items()
    }
    return {name: rows[name] for name in VIEWS}, {name: rows[f"{name}?"] for name in VIEWS}


@pytest.mark.parametrize(
    "seed", range(1, 1 + PLANS["test_views_are_their_queries_at_every_time"].size)
)
@pytest.mark.nightly
def test_views_are_their_queries_at_every_time(workplace, seed, record_property):
    record_property(TRIED, 1)
    workplace.use(READER)
    interpret(workplace, READER)
    for table in COLUMNS:
        workplace.sql(
            f"CREATE TABLE {table} (id INT NOT NULL, k INT, x INT) "
            "WITH (RETAIN HISTORY FOR '1 hour')"
        )
    history = History(workplace, seed)
    history.step()
    for name, query in VIEWS.items():
        workplace.sql(
            f"CREATE MATERIALIZED VIEW {name} WITH (RETAIN HISTORY FOR '1 hour') AS {query}"
        )
    moments = []
    for _ in range(STEPS):
        history.step()
        time_ms = workplace.value("SELECT mz_now() FROM (SELECT count(*) FROM a, b, c)")
        moments.append((time_ms, {name: list(rows) for name, rows in history.contents.items()}))
    for time_ms, contents in moments:
        wanted = expected(contents)
        kept, asked = read(workplace, time_ms)
        for name in VIEWS:
            assert kept[name] == asked[name], (name, time_ms)
            assert kept[name] == wanted[name], (name, time_ms)
    check_every_change(workplace, moments[0][0])


def check_every_change(place, start_ms):
    """Also at the times between: the sum of the differences of all views at each update is none."""
    end_ms = (
        place.value("SELECT mz_now() FROM a LIMIT 1") if place.rows("SELECT 1 FROM a") else None
    )
    times = set()
    for table in COLUMNS:
        bound = f" UP TO {end_ms}" if end_ms else f" UP TO {start_ms + 1}"
        rows = place.rows(f"SUBSCRIBE {table} AS OF {start_ms}{bound}")
        times |= {row[0] for row in rows}
    for time_ms in sorted(times):
        kept, asked = read(place, time_ms - 1)
        assert kept == asked, time_ms - 1
