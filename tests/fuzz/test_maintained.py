"""Some cases of the search that `make fuzz` makes: random views, maintained in different ways."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fuzz.cases import contents
from tests.fuzz.drafts import draft, shrunk
from tests.fuzz.query import Query, both
from tests.fuzz.running import outcome_of

CASES = 16


@pytest.mark.spark
@pytest.mark.parametrize("seed", range(CASES))
def test_a_case_equals_duckdb_in_each_run(declared, seed):
    """`make fuzz SEED=<seed>` makes it smaller."""
    outcome = outcome_of(declared, draft(seed).case())
    assert outcome.failure is None
    assert outcome.views > 0


def test_a_seed_is_one_case():
    cases = [draft(seed).case() for seed in (7, 7, 8)]
    assert cases[0] == cases[1] != cases[2]


def test_histories_never_take_away_what_is_not_there():
    for seed in range(200):
        for updates in draft(seed).histories.values():
            for _, time, _ in updates:
                contents(updates, time)


def test_what_fails_becomes_as_small_as_it_can():
    def reads(made):
        return any("t1" in view.query.in_spark() for view in made.views)

    made = next(made for made in map(draft, range(3, 100)) if reads(made))
    row = made.histories["t1"][0]

    def fails(smaller):
        return reads(smaller) and row in smaller.histories["t1"]

    found = shrunk(made, fails)
    assert found.histories == {"t0": (), "t1": (row,)}
    assert [view.query.text for view in found.views] == ["t1"]
    assert len(found.runs) == 1


def test_a_query_has_the_words_of_each_engine():
    table = Query("t0", {"c0": "array"})
    inner = both(f"size({both('a', 'b')})", "len(c)")
    query = Query("SELECT @items FROM @0 AS x@where", {}, (table,), (f"{inner} AS c0",), ("p", "q"))
    assert query.in_spark() == "SELECT size(a) AS c0 FROM t0 AS x WHERE (p) AND (q)"
    assert query.in_duck() == "SELECT len(c) AS c0 FROM t0 AS x WHERE (p) AND (q)"
    above = replace(query, sources=(query,))
    assert "FROM (SELECT size(a) AS c0 FROM @0" not in above.in_spark()
