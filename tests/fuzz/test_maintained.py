"""Some cases of the search that `make fuzz` makes: random views, maintained in different ways."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import pytest
from tests.fuzz.cases import LAST, Case, LowMemory, Run, View, contents
from tests.fuzz.drafts import draft, shrunk
from tests.fuzz.kinds import KINDS
from tests.fuzz.names import ODD, in_spark
from tests.fuzz.query import Query, both
from tests.fuzz.reads import Reads
from tests.fuzz.running import outcome_of

SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (3, 4, 6)))
"""Of cases that are small, and with queries that are read: `make fuzz` has the others."""
DRAFTS = 400
MAPS = ("map", "maps")
ELEMENTS = {
    "temporal filter": r"mz_now\(\) [<>=]",
    "temporal filter, turned": r"[<>=] mz_now\(\)",
    "validity": r"mz_now\(\) BETWEEN",
    "BETWEEN mz_now()": r"BETWEEN mz_now\(\)",
    "NOT of a temporal filter": r"NOT \(mz_now",
    "mz_now() as a column": r"mz_now\(\) AS n",
    "moments that bound": r"unix_millis\(",
    "an end that does not come": r"9223372036854775807",
    "HAVING by the time": r"HAVING mz_now\(\)",
    "ON by the time": r"JOIN .* ON .* AND .*mz_now\(\)",
    "function of SQL": r"spark_catalog\.default\.own_",
    "function of Python": r"own_(shifted|named)\(",
    "extremes by another column": r"(max|min)_by\(",
    "mode": r"mode\(",
    "median": r"median\(",
    "median of a window": r"median\(\S+\) OVER",
    "percentile": r"percentile\(",
    "percentile_cont": r"percentile_cont\(.* WITHIN GROUP",
    "percentile_disc": r"percentile_disc\(.* WITHIN GROUP",
    "variance": r"(stddev|var)_(pop|samp)\(",
    "covariance": r"covar_(pop|samp)\(",
    "correlation": r"corr\(",
    "regression": r"regr_(slope|count)\(",
    "bits": r"bit_(and|or|xor)\(",
    "truths": r"bool_(and|or)\(",
    "count_if": r"count_if\(",
    "list": r"array_sort\(collect_list\(",
    "set": r"array_sort\(collect_set\(",
    "listagg": r"listagg\(.* WITHIN GROUP",
    "listagg of DISTINCT": r"listagg\(DISTINCT",
    "FILTER": r"FILTER \(WHERE",
    "session": r"session_window\(",
    "window of time": r" window\(",
    "grouping sets": r"(ROLLUP|CUBE|GROUPING SETS)",
    "IGNORE NULLS": r"IGNORE NULLS OVER",
    "last_value": r"last_value\(\S+\) OVER",
    "LIMIT without an order": r"FROM [^()]* AS x (LIMIT|OFFSET) \d",
    "LIMIT of an order": r"ORDER BY .* LIMIT",
    "LATERAL": r"LATERAL",
    "names that differ in case": r"named_struct\('a', .*, 'A', ",
    "struct without fields": r"named_struct\(\)",
    "map of maps": r"map\('x', map\(",
    "fields of one name": r"struct\(.* AS id, .* AS id\)",
    "CHAR": r"'a  '",
    **{f"a column named {name}": re.escape(in_spark(name)) for name in ODD},
}
"""What is maintained, by how Spark's words show it."""


@pytest.mark.spark
@pytest.mark.parametrize("seed", SEEDS)
def test_a_case_equals_duckdb_in_each_run(declared, seed):
    """`make fuzz SEED=<seed>` makes it smaller."""
    outcome = outcome_of(declared, draft(seed).case())
    assert outcome.failure is None
    assert outcome.views > 0
    assert outcome.read > 0


@pytest.mark.spark
def test_reads_are_compared_by_values_of_all_kinds(declared):
    kinds = [each for each in KINDS if KINDS[each].values]
    most = max(len(KINDS[kind].values) for kind in kinds)
    values = [[*KINDS[kind].values, *[None] * most][: most + 1] for kind in kinds]
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    case = Case(
        tables={"t0": {f"c{n}": kind for n, kind in enumerate(kinds)}},
        histories={"t0": [(row, 2, 1) for row in zip(*values, strict=True)]},
        views={"v0": View("SELECT * FROM t0", "SELECT * FROM t0", settings)},
        as_of=0,
        runs=[],
    )
    outcome = outcome_of(declared, case)
    assert (outcome.failure, outcome.read) == (None, 1)
    reads = Reads(declared, case)
    reads.session.sql("DELETE FROM t0 WHERE c0 = 1")
    told = reads.difference("v0", Counter({(1,): 1}))
    assert told is not None
    assert "(-1, -2, Decimal('-1.50')," in told
    assert "missing: {(1,): 1}" in told


@pytest.mark.spark
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("same", *MAPS)])
@pytest.mark.sampled(4)
def test_indexes_have_every_kind_of_key(declared, kind):
    values = [*KINDS[kind].values, None]
    rows = [(value, number) for number, value in enumerate(values)]
    history = [
        *((row, 2, 1) for row in rows),
        *((row, 4, 1) for row in rows[:2]),
        *((row, 5, -1) for row in rows[::2]),
        *(((value, number + 100), 7, 1) for value, number in rows),
        *((row, 8, 1) for row in rows[::2]),
    ]
    queries = (
        "SELECT c0, c1 FROM t0",
        "SELECT c0, count(*) AS n FROM t0 GROUP BY c0",
        "SELECT x.c0, y.c1 FROM t0 x JOIN t0 y ON x.c1 = y.c1 - 100",
    )
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    case = Case(
        tables={"t0": {"c0": kind, "c1": "integer"}},
        histories={"t0": history},
        views={f"v{n}": View(query, query, settings) for n, query in enumerate(queries)},
        as_of=2,
        runs=[Run((3, 4, 5, 6, 7, 8, LAST + 1))],
    )
    outcome = outcome_of(declared, case)
    assert outcome.failure is None
    assert outcome.looked_up >= len(queries)
    assert outcome.served


@pytest.mark.spark
def test_what_lacks_memory_is_exact_whether_it_goes_on_or_waits(declared):
    row, other = (1, 5), (2, 7)
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    queries = (
        "SELECT c0, max(c1) AS m FROM t0 GROUP BY c0",
        "SELECT c0, c1 FROM t0 WHERE mz_now() < c1",
    )
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "integer"}},
        histories={"t0": [(row, 2, 1), (other, 3, 2), (other, 6, -1)]},
        views={f"v{n}": View(query, query, settings) for n, query in enumerate(queries)},
        as_of=0,
        runs=[Run((3, 4, LAST + 1)), Run((3, 4, LAST + 1), low_memory=LowMemory(pages=0))],
    )
    outcome = outcome_of(declared, case)
    assert outcome.failure is None
    assert (outcome.programs, outcome.short) == (2, 2)


@pytest.mark.spark
def test_a_table_has_columns_of_char_and_varchar(declared):
    query = "SELECT c1, max(c2) AS m, count(*) AS n FROM t0 WHERE c1 <> 'ab ' GROUP BY c1"
    settings = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
    rows = [(1, "a  ", "ab "), (2, "a  ", "aé"), (3, "ab ", ""), (4, None, None)]
    case = Case(
        tables={"t0": {"c0": "integer", "c1": "char", "c2": "varchar"}},
        histories={"t0": [*((row, 2, 1) for row in rows), (rows[1], 5, -1)]},
        views={"v0": View(query, query, settings)},
        as_of=0,
        runs=[Run((3, LAST + 1))],
    )
    outcome = outcome_of(declared, case)
    assert outcome.failure is None
    assert outcome.programs == 1


def test_cases_have_all_that_is_maintained():
    found = Counter()
    for made in map(draft, range(DRAFTS)):
        text = "\n".join(view.query.in_spark() for view in made.views)
        found.update(name for name, form in ELEMENTS.items() if re.search(form, text))
        found["little memory"] += any(run.low_memory is not None for run in made.runs)
        found["deaths"] += any(run.kills for run in made.runs)
        found["a race"] += any(run.workers > 1 for run in made.runs)
    wanted = [*ELEMENTS, "little memory", "deaths", "a race"]
    assert [name for name in wanted if found[name] < 2] == []


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
