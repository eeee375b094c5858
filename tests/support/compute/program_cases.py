"""Small histories and queries with which each operator of a program has to do with what is special.

They follow the grammar of ``view_histories``: tables r and q, columns k, v, d, comments for ties.
"""

from __future__ import annotations

from decimal import Decimal


def _row(k, v, d=None):
    return (k, v, None if d is None else Decimal(d))


HISTORIES = {
    "r": [
        # Some rows at once, one of them twice, with NULL as a key and as a value.
        (_row(0, 1, "1.00"), 1, 1),
        (_row(0, 1, "2.00"), 1, 1),
        (_row(0, 3, "1.00"), 1, 2),
        (_row(1, None, "0.50"), 1, 1),
        (_row(None, 2), 1, 1),
        # An update, and one of two equal rows that goes.
        (_row(0, 1, "2.00"), 2, -1),
        (_row(0, 5, "2.00"), 2, 1),
        (_row(0, 3, "1.00"), 3, -1),
        # Gone and back in one interval, at times of its own.
        (_row(1, None, "0.50"), 4, -1),
        (_row(1, None, "0.50"), 5, 1),
        # What comes to nothing at one time.
        (_row(2, 9, "9.00"), 6, 1),
        (_row(2, 9, "9.00"), 6, -1),
        # The least and the greatest of a group go, then all.
        (_row(0, 1, "1.00"), 7, -1),
        (_row(0, 5, "2.00"), 8, -1),
        (_row(0, 3, "1.00"), 9, -1),
        (_row(1, None, "0.50"), 9, -1),
        (_row(None, 2), 9, -1),
        # From nothing again.
        (_row(1, 1, "1.00"), 11, 3),
        (_row(None, None), 11, 1),
    ],
    "q": [
        (_row(0, 1, "1.00"), 1, 1),
        (_row(1, 2, "1.00"), 3, 1),
        (_row(0, 1, "1.00"), 4, -1),
        (_row(None, None), 5, 1),
        (_row(None, None), 6, -1),
        (_row(2, 3, "1.00"), 6, 1),
        (_row(1, 2, "1.00"), 8, -1),
        (_row(2, 3, "1.00"), 10, -1),
    ],
}

_OPEN = "PARTITION BY k ORDER BY v NULLS FIRST/*, d NULLS FIRST*/"
_WINDOWS = (
    f"row_number() OVER ({_OPEN})",
    f"coalesce(lag(v) OVER ({_OPEN}), -1)",
    f"sum(v) OVER ({_OPEN} ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "rank() OVER (PARTITION BY k ORDER BY v NULLS FIRST)",
    "sum(v) OVER (PARTITION BY k ORDER BY v NULLS FIRST)",
    f"100 * rank() OVER (PARTITION BY k ORDER BY v NULLS FIRST) + row_number() OVER ({_OPEN})",
    "row_number() OVER (ORDER BY k NULLS FIRST, v NULLS FIRST/*, d NULLS FIRST*/)",
    "count(*) OVER (PARTITION BY k) + sum(v) OVER ()",
    "first_value(v) OVER (PARTITION BY k ORDER BY d NULLS FIRST/*, v NULLS FIRST*/)",
)

QUERIES = {
    "joins without equal columns": [
        "SELECT k, v, d FROM r WHERE k NOT IN (SELECT k FROM q)",
        "SELECT k, v, d FROM r WHERE v NOT IN (SELECT v FROM q WHERE k > 0)",
        "SELECT k, v, d FROM q WHERE k NOT IN (SELECT k FROM r) OR v = 1",
        "SELECT k, v, d FROM r WHERE (k, v) NOT IN (SELECT k, v FROM q)",
        "SELECT k, v, d FROM r WHERE EXISTS (SELECT 1 FROM q WHERE q.v > r.v)",
        "SELECT k, v, d FROM r WHERE NOT EXISTS (SELECT 1 FROM q WHERE q.v > r.v)",
        "SELECT x.k, y.v, x.d FROM r AS x LEFT JOIN q AS y ON x.v < y.v",
        "SELECT x.k, y.v, y.d FROM r AS x FULL JOIN q AS y ON y.d > 1",
    ],
    "scalar subqueries": [
        "SELECT k, (SELECT v FROM q WHERE d > 0 AND k = 2) AS v, d FROM r",
        "SELECT k, v, d FROM r WHERE v > (SELECT k FROM q WHERE k = 0)",
        "SELECT k, (SELECT v FROM r ORDER BY v NULLS LAST LIMIT 1) AS v, d FROM q",
    ],
    "windows": [f"SELECT k, d, CAST({each} AS BIGINT) AS v FROM r" for each in _WINDOWS],
    "aggregates": [
        f"SELECT k, {values} FROM r GROUP BY k" if keyed else f"SELECT {values} FROM r"
        for values in (
            "CAST(sum(v) AS BIGINT) AS v, min(d) AS d",
            "max(v) AS v, CAST(count(DISTINCT d) AS DECIMAL(10, 2)) AS d",
            "CAST(sum(DISTINCT v) + count(*) + max(v) AS BIGINT) AS v, min(d) AS d",
            "min(v) FILTER (WHERE d > 1) AS v, CAST(count(DISTINCT v) FILTER (WHERE d > 1)"
            " + count(DISTINCT d) AS DECIMAL(10, 2)) AS d",
            "bit_or(v) AS v, CAST(max(CAST(v AS DOUBLE)) AS DECIMAL(10, 2)) AS d",
        )
        for keyed in (True, False)
    ]
    + [
        "SELECT k, CAST(2 * median(v) AS BIGINT) AS v, CAST(count(*) AS DECIMAL(10, 2)) AS d"
        " FROM r GROUP BY k",
        "SELECT k, max_by(v, /*row(*/d/*, v)*/) FILTER (WHERE v > 0 AND d > 0) AS v,"
        " min_by(d, /*row(*/v/*, d)*/) FILTER (WHERE v > 0 AND d > 0) AS d FROM r GROUP BY k",
    ]
    + ["SELECT k, v, d FROM (SELECT k, v, min(d) AS d, count(*) AS n FROM r GROUP BY k, v)"],
    "the first of all": [
        f"SELECT k, v, d FROM r ORDER BY v {order}, k NULLS FIRST/*, d NULLS FIRST*/ {limit}"
        for order, limit in (
            ("NULLS FIRST", "LIMIT 1"),
            ("DESC NULLS LAST", "LIMIT 3"),
            ("NULLS FIRST", "LIMIT 2 OFFSET 1"),
            ("NULLS FIRST", "OFFSET 2"),
            ("NULLS FIRST", "LIMIT 0"),
        )
    ],
    "the first of each": [
        f"SELECT k, v, d FROM (SELECT *, row_number() OVER ({_OPEN}) AS n FROM r) AS x"
        f" WHERE n <= {count}"
        for count in (1, 2)
    ],
}
"""For each kind of operator views that programs maintain, not more than there are in RELATIONS."""
