"""What once was not as its query, or was refused for no reason."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.inputs.twin import Twin

TABLES = {
    "scores": "VALUES ('a', 1, 'x'), ('b', 4, 'x'), ('c', 2, 'y'), (NULL, 3, 'y'), ('d', NULL, 'z')"
    " AS t(name, score, team)",
    "maps": "VALUES (1, map('k', 1)), (2, map('k', 2)), (2, map('k', 2)) AS t(id, m)",
    "texts": "(SELECT name, team COLLATE UTF8_LCASE AS t, score AS k FROM scores)",
}
PROGRAMS = [
    "SELECT max_by(name, score, 3) FROM scores",
    "SELECT team, min_by(score, name, 2), max_by(score, name, 2) FROM scores GROUP BY team",
    "SELECT team, max_by(name, score, 2) OVER (PARTITION BY team) FROM scores",
    "SELECT mode(team), percentile_disc(0.5) WITHIN GROUP (ORDER BY score) FROM scores",
    "SELECT levenshtein(name, t) FROM texts",
    "SELECT * FROM maps x JOIN LATERAL"
    " (SELECT sum(score) OVER (ORDER BY name) FROM scores y WHERE y.score >= x.id)",
    "SELECT x.id FROM maps x WHERE EXISTS (SELECT * FROM maps y WHERE x.m['k'] = y.m['k'] LIMIT 1)",
]
REFUSED = {
    "SELECT elt(1, name, t) FROM texts": "INDETERMINATE_COLLATION_IN_SCHEMA",
}
RECOMPUTED = {
    "max_by": ["SELECT max_by(t, k), min_by(t, k) FROM texts"],
}


@pytest.mark.spark
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
