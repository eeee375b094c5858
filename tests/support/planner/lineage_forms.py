"""Queries, and the columns of which theirs are made."""

from __future__ import annotations

TABLES = {"t": "k INT, v STRING", "u": "k INT, w STRING, x INT"}
VIEW = "CREATE VIEW p AS SELECT k AS one, v AS two FROM t"
"""A plain view, whose columns have other names."""

COLUMNS = {
    # What becomes of columns: a sum takes what it sums, a count of rows takes none.
    "SELECT k AS a, upper(v) AS b, 1 AS c FROM t": (["t.k IDENTITY"], ["t.v TRANSFORMATION"], []),
    "SELECT v, sum(k + 1) AS s, count(*) AS n FROM t GROUP BY v": (
        ["t.v IDENTITY"],
        ["t.k AGGREGATION"],
        [],
    ),
    "SELECT t.v, u.w FROM t JOIN u ON t.k = u.k WHERE u.x > 3": (
        ["t.v IDENTITY"],
        ["u.w IDENTITY"],
    ),
    "SELECT k FROM t UNION ALL SELECT x + 1 FROM u": (["t.k IDENTITY", "u.x TRANSFORMATION"],),
    "SELECT k, row_number() OVER (PARTITION BY v ORDER BY k) AS n, max(k) OVER () AS m FROM t": (
        ["t.k IDENTITY"],
        [],
        ["t.k TRANSFORMATION"],
    ),
    # Through a plain view, with columns of other names.
    "SELECT one FROM p WHERE two IN (SELECT w FROM u)": (["t.k IDENTITY"],),
    "SELECT e FROM (SELECT array(k, k + 1) AS es FROM t) LATERAL VIEW explode(es) AS e": (
        ["t.k TRANSFORMATION"],
    ),
    "SELECT count(DISTINCT v) AS a, sum(k) AS b FROM t": (["t.v AGGREGATION"], ["t.k AGGREGATION"]),
    "SELECT * FROM VALUES (1, 2)": ([], []),
}
ROWS = {
    "SELECT v, sum(k + 1) AS s, count(*) AS n FROM t GROUP BY v": {"t.v GROUP_BY"},
    "SELECT t.v, u.w FROM t JOIN u ON t.k = u.k WHERE u.x > 3": {
        "t.k JOIN",
        "u.k JOIN",
        "u.x FILTER",
    },
    "SELECT k, row_number() OVER (PARTITION BY v ORDER BY k) AS n, max(k) OVER () AS m FROM t": {
        "t.v WINDOW",
        "t.k WINDOW",
    },
    "SELECT one FROM p WHERE two IN (SELECT w FROM u)": {"t.v JOIN", "u.w JOIN"},
    "SELECT * FROM VALUES (1, 2)": set(),
}
