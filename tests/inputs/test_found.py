"""What once was not as its query, or was refused for no reason."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.inputs.twin import Twin

from slackwater.repr.errors import SlackwaterError

TABLES = {
    "scores": "VALUES ('a', 1, 'x'), ('b', 4, 'x'), ('c', 2, 'y'), (NULL, 3, 'y'), ('d', NULL, 'z')"
    " AS t(name, score, team)",
    "maps": "VALUES (1, map('k', 1)), (2, map('k', 2)), (2, map('k', 2)) AS t(id, m)",
    "events": "VALUES ('a', '2024-01-01 00:00:00'), ('a', '2024-01-01 00:04:30'),"
    " ('a', '2024-01-01 00:10:00'), ('b', NULL) AS t(who, at)",
    "ones": "VALUES (1) AS t(next)",
    "texts": "(SELECT name, team COLLATE UTF8_LCASE AS t, score AS k FROM scores)",
}
PROGRAMS = [
    "SELECT max_by(name, score, 3) FROM scores",
    "SELECT team, min_by(score, name, 2), max_by(score, name, 2) FROM scores GROUP BY team",
    "SELECT team, max_by(name, score, 2) OVER (PARTITION BY team) FROM scores",
    "SELECT aes_encrypt(name, '0000111122223333', 'ECB') FROM scores",
    "SELECT mode(team), percentile_disc(0.5) WITHIN GROUP (ORDER BY score) FROM scores",
    "SELECT max_by(t, k), min_by(t, k) FROM texts",
    "SELECT levenshtein(name, t) FROM texts",
    "SELECT * FROM maps x JOIN LATERAL"
    " (SELECT sum(score) OVER (ORDER BY name) FROM scores y WHERE y.score >= x.id)",
    "SELECT CAST(array(1, 2) AS ARRAY<INT>), CAST(map('k', id) AS MAP<STRING, INT>) FROM maps",
    "SELECT size(map(score, name)), cardinality(array(score)) FROM scores",
    "SELECT x.id, (SELECT y.m['k'] FROM maps y WHERE y.id = x.id AND y.id < 2) FROM maps x",
    "SELECT s.score, (SELECT o.next FROM ones o WHERE o.next < s.score) FROM scores s",
    "SELECT s.name, l.n FROM scores s LEFT JOIN LATERAL"
    " (SELECT (SELECT o.next FROM ones o WHERE o.next = a) AS n FROM (SELECT s.score AS a)) l",
    "SELECT s.score FROM scores s JOIN maps m ON s.score = m.id AND s.score NOT IN (SELECT 1)",
    "SELECT CASE WHEN true THEN CAST(next AS STRING) ELSE CAST('2017-12-11' AS DATE) END FROM ones",
    "SELECT CASE WHEN true THEN CAST(1 AS STRING) ELSE CAST('2017-12-11' AS DATE) END FROM ones",
    "SELECT to_timestamp('2018-01-01', 'aa' || name) FROM scores",
    "SELECT count(NULL) OVER (), name FROM scores",
    "SELECT count(NULL) OVER (), sum(score) OVER (PARTITION BY team) FROM scores",
    "SELECT array(1, 2)[5] FROM ones",
    "SELECT array(1, 2)[5] FROM ones WHERE next > 1",
    "SELECT array(next, 2)[1], named_struct('a', next).a FROM ones",
    "SELECT array(named_struct('a', next)).a FROM ones",
    "SELECT format_string('%d', name), format_string('%d', 'a') FROM scores",
    "SELECT CASE WHEN true THEN CAST(1 AS STRING) ELSE DATE'2017-12-11' END,"
    " sum(next) OVER (ORDER BY next ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM ones",
    "SELECT who, count(*), max(at) FROM events GROUP BY who, session_window(at, '5 minutes')",
    "SELECT x.id FROM maps x WHERE EXISTS (SELECT * FROM maps y WHERE x.m['k'] = y.m['k'] LIMIT 1)",
]
_UNMATERIALIZABLE = "SLACKWATER_UNMATERIALIZABLE_FUNCTION"
REFUSED = {
    "SELECT aes_encrypt(name, '0000111122223333') FROM scores": _UNMATERIALIZABLE,
    "SELECT kll_sketch_agg_bigint(score) FROM scores": _UNMATERIALIZABLE,
    "SELECT elt(1, name, t) FROM texts": "INDETERMINATE_COLLATION_IN_SCHEMA",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT next FROM r CROSS JOIN ones)"
    " SELECT * FROM r LIMIT 5": "SLACKWATER_UNSUPPORTED",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL"
    " SELECT (SELECT n + next FROM r CROSS JOIN ones WHERE n < 5))"
    " SELECT * FROM r LIMIT 5": "SLACKWATER_UNSUPPORTED",
}
RECOMPUTED = {
    "UnionLoop: no such operator is maintained": [
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r"
        " WHERE n < (SELECT max(score) FROM scores)) SELECT * FROM r",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r"
        " WHERE n < (SELECT max(score) FROM scores)) SELECT * FROM r JOIN r q ON r.n = q.n + 1",
    ],
}


@pytest.mark.spark
@pytest.mark.nightly
def test_views_are_their_queries(declared, tmp_path):
    twin = Twin(declared, tmp_path, {})
    try:
        for name, query in TABLES.items():
            twin.session.sql(f"CREATE TEMPORARY VIEW {name} AS SELECT * FROM {query}")
        twin.read_tables()
        twin.examine(
            [*PROGRAMS, *REFUSED, *(each for some in RECOMPUTED.values() for each in some)]
        )
    finally:
        twin.close()
    assert twin.found.mismatches == []
    recomputed = {f"recomputed: {why}": len(some) for why, some in RECOMPUTED.items()}
    counts = Counter(label for _, label in twin.found.labels)
    assert counts == Counter({"program": len(PROGRAMS), **recomputed}) + Counter(REFUSED.values())


@pytest.mark.spark
def test_a_statement_is_no_query(declared):
    insert = "WITH r AS (SELECT 1 AS a) FROM r INSERT INTO t SELECT a INSERT INTO u SELECT a"
    with pytest.raises(SlackwaterError) as caught:
        declared.engine("").analyze(insert, "slackwater", ("default",))
    assert caught.value.condition == "SLACKWATER_UNSUPPORTED"
