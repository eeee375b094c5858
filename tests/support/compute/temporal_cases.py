"""Small histories and views with which a temporal filter has to do with what is special.

Table e: when a row begins (`s`) and ends (`e`) to be valid, in the milliseconds of its history.
"""

from __future__ import annotations

from slackwater.repr.frontier import TIMESTAMP_MAX
from slackwater.repr.relation import RelationDesc

LAST = 12
TABLES = {"e": RelationDesc.of(k="integer", v="long", s="long", e="long")}
DUCK = {"e": "(k INTEGER, v BIGINT, s BIGINT, e BIGINT)"}

HISTORY = [
    # Valid from the beginning, later, never, always; twice; without an end, or a begin.
    ((0, 1, 0, 5), 1, 1),
    ((0, 2, 4, 9), 1, 2),
    ((1, 3, 6, 6), 1, 1),
    ((1, 4, 7, 3), 1, 1),
    ((1, 5, -(2**63), TIMESTAMP_MAX), 1, 1),
    ((2, 6, None, 7), 1, 1),
    ((2, 7, 3, None), 1, 1),
    ((2, 8, TIMESTAMP_MAX, TIMESTAMP_MAX), 1, 1),
    ((2, 9, -1, -(2**63)), 1, 1),
    # It begins and ends in the past.
    ((3, 10, 1, 2), 3, 1),
    # It goes before it begins, while it is valid, when it ends, after that.
    ((4, 11, 6, 9), 2, 1),
    ((4, 11, 6, 9), 4, -1),
    ((4, 12, 2, 9), 2, 1),
    ((4, 12, 2, 9), 5, -1),
    ((4, 13, 2, 6), 2, 1),
    ((4, 13, 2, 6), 6, -1),
    ((4, 14, 2, 5), 2, 1),
    ((4, 14, 2, 5), 8, -1),
    # One of two goes, and comes back.
    ((0, 2, 4, 9), 6, -1),
    ((0, 2, 4, 9), 7, 1),
    # An update moves the end.
    ((5, 15, 3, 6), 3, 1),
    ((5, 15, 3, 6), 5, -1),
    ((5, 15, 3, 11), 5, 1),
    # It comes and goes at one time.
    ((6, 16, 8, 10), 8, 1),
    ((6, 16, 8, 10), 8, -1),
    # A long time off.
    ((7, 17, 2, 10**15), 2, 1),
    ((7, 18, 10**15, 10**16), 2, 1),
    (((None), 19, 9, 11), 9, 1),
]
HISTORIES = {"e": HISTORY}

_VALID = "mz_now() >= s AND mz_now() < e"

QUERIES = {
    "one bound": [
        "SELECT k, v FROM e WHERE mz_now() < e",
        "SELECT k, v FROM e WHERE e >= mz_now()",
        "SELECT k, v FROM e WHERE mz_now() > s",
        "SELECT k, v FROM e WHERE s <= mz_now()",
        "SELECT k, v FROM e WHERE mz_now() = s",
        "SELECT v FROM e WHERE mz_now() <= k",
        "SELECT k, v FROM e WHERE mz_now() < 6",
        "SELECT k, v FROM e WHERE NOT (mz_now() >= e)",
    ],
    "two bounds": [
        f"SELECT k, v, s FROM e WHERE {_VALID}",
        "SELECT k, v FROM e WHERE mz_now() BETWEEN s AND e",
        "SELECT k, v FROM e WHERE s BETWEEN mz_now() AND 8",
        "SELECT k, v FROM e WHERE mz_now() > s AND mz_now() <= e AND mz_now() <= k + 6 AND v > 1",
        "SELECT k, v FROM (SELECT *, mz_now() AS n FROM e) q WHERE n < e AND k < 5",
    ],
    "a condition and its opposite": ["SELECT k, v FROM e WHERE mz_now() > s AND mz_now() <= s"],
    "above and below groups": [
        f"SELECT k, count(*) AS n, sum(v) AS v FROM e WHERE {_VALID} GROUP BY k",
        f"SELECT count(*) AS n, max(v) AS v FROM e WHERE {_VALID}",
        "SELECT k, max(e) AS e FROM e WHERE e < 1000 GROUP BY k HAVING mz_now() < max(e)",
        "SELECT k, count(*) AS n FROM e GROUP BY k HAVING mz_now() > 2 * count(*)",
        f"SELECT DISTINCT k FROM e WHERE {_VALID}",
        "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM e WHERE mz_now() < e"
        " GROUP BY k) q WHERE mz_now() >= n GROUP BY n",
    ],
    "joins": [
        "SELECT x.v, y.v AS w FROM e x JOIN e y ON x.k = y.k AND mz_now() < least(x.e, y.e)",
        "SELECT x.v, y.v AS w FROM e x, e y WHERE x.k = y.k AND mz_now() >= x.s AND mz_now() < y.e",
        "SELECT x.v, z.v AS w FROM e x JOIN e y ON x.k = y.k AND mz_now() < greatest(x.e, y.s)"
        " JOIN e z ON z.k = y.k AND mz_now() > z.s",
        f"SELECT x.v, y.v AS w FROM e x LEFT JOIN (SELECT * FROM e WHERE {_VALID}) y ON x.k = y.k",
        "SELECT x.v, y.v AS w FROM e x LEFT JOIN e y ON x.k = y.k AND mz_now() < y.e",
        f"SELECT v FROM e x WHERE EXISTS (SELECT 1 FROM e y WHERE y.k = x.k AND {_VALID})",
        f"SELECT v FROM e WHERE k NOT IN (SELECT k FROM e WHERE {_VALID} AND k IS NOT NULL)",
        f"SELECT v, (SELECT count(*) FROM e WHERE {_VALID}) AS n FROM e",
        f"SELECT v FROM e WHERE {_VALID} UNION ALL SELECT v FROM e WHERE mz_now() = e",
    ],
    "windows": [
        f"SELECT k, v FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS n"
        f" FROM e WHERE {_VALID}) q WHERE n = 1",
        "SELECT v, n FROM (SELECT v, e, count(*) OVER (PARTITION BY k) AS n FROM e) q"
        " WHERE mz_now() < e",
        f"SELECT v FROM e WHERE {_VALID} ORDER BY e, v LIMIT 2",
    ],
}
"""For each kind of place in which a temporal filter may stand, views with it."""

MISUSED = {
    "SELECT k, mz_now() AS n FROM e": "mz_now()",
    "SELECT k FROM e WHERE mz_now() < e OR v = 1": "mz_now()",
    "SELECT k FROM e WHERE mz_now() <> e": "mz_now()",
    "SELECT k FROM e WHERE mz_now() - 1000 <= e": "mz_now()",
    "SELECT k FROM e WHERE mz_now() < e + mz_now()": "mz_now()",
    "SELECT k FROM e WHERE mz_now() IN (1, 2)": "mz_now()",
    "SELECT k FROM e WHERE mz_now() < CAST(e AS DECIMAL(20, 2))": "mz_now()",
    "SELECT k FROM e WHERE mz_now() < CAST(e AS DOUBLE)": "mz_now()",
    "SELECT k FROM e WHERE coalesce(mz_now() < e, true)": "mz_now()",
    "SELECT k FROM e WHERE (mz_now() < e) = (v = 1)": "mz_now()",
    "SELECT count(*) FILTER (WHERE mz_now() < e) AS n FROM e": "mz_now()",
    "SELECT mz_now() % 10 AS n, count(*) AS c FROM e GROUP BY 1": "mz_now()",
    "SELECT x.k FROM e x LEFT JOIN e y ON x.k = y.k AND mz_now() < x.e": "mz_now()",
    "SELECT x.k FROM e x WHERE EXISTS (SELECT 1 FROM e y WHERE mz_now() < x.e + y.s)": "mz_now()",
    "SELECT k, row_number() OVER (ORDER BY mz_now() - e, v) AS n FROM e": "mz_now()",
}
"""Views with other uses of ``mz_now()``, and what the refusal has to name."""


def in_duck(query: str, time: int) -> str:
    """The query for DuckDB, at a time."""
    return query.replace("mz_now()", f"CAST({time} AS BIGINT)")
