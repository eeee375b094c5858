"""Joins that look rows up by an index have the rows of joins that read the whole relation."""

from __future__ import annotations

import pytest
from tests.support.applications.indexed import KINDS, both, hydrated, pair, plan_of
from tests.support.applications.many_relations import interpreted

pytestmark = pytest.mark.spark

FORMS = {
    "inner": "SELECT p.n, t.v FROM p JOIN {t} t ON p.k = t.k",
    "null safe": "SELECT p.n, t.v FROM p JOIN {t} t ON p.k <=> t.k",
    "also": "SELECT p.n, t.v FROM p JOIN {t} t ON p.k = t.k AND p.n <= t.v",
    "left": "SELECT p.n, t.v FROM p LEFT JOIN {t} t ON p.k = t.k AND t.v > p.n",
    "right": "SELECT p.n, t.v FROM {t} t RIGHT JOIN p ON p.k <=> t.k",
    "other way": "SELECT p.n, t.v FROM {t} t JOIN p ON t.k = p.k",
    "semi": "SELECT p.n, 0 FROM p LEFT SEMI JOIN {t} t ON p.k = t.k AND t.v <> 2",
    "anti": "SELECT p.n, 0 FROM p LEFT ANTI JOIN {t} t ON p.k = t.k",
    "part": "SELECT p.n, t.w FROM p LEFT JOIN (SELECT k, v + 1 AS w FROM {t} WHERE v <> 1) t"
    " ON p.k = t.k AND t.w > 1",
}
EVERY = " UNION ALL ".join(f"SELECT '{name}', * FROM ({text})" for name, text in FORMS.items())


def joined(place, text, session="main"):
    return "IndexLookupJoin" in plan_of(place, text, session)


def same(place, text, *times, session="main"):
    for at in ("", *(f" AS OF {time}" for time in times)):
        found = [
            sorted(place.rows(text.format(t=name) + at, session=session), key=repr)
            for name in ("a", "b")
        ]
        assert found[0] == found[1], (text, at)
    return found[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(4)
def test_every_form_of_join_over_every_kind_of_key(workplace, kind):
    declared, values = KINDS[kind]
    pair(workplace, f"k {declared}, v INT")
    workplace.sql(f"CREATE TABLE p (k {declared}, n INT) WITH (RETAIN HISTORY FOR '1 day')")
    rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
    workplace.sql(f"INSERT INTO p VALUES {rows}, ({values[0]}, 9)")
    both(workplace, f"INSERT INTO {{}} VALUES {rows}")
    both(workplace, f"INSERT INTO {{}} VALUES {rows}, ({values[0]}, 7)")
    hydrated(workplace, "by_k")
    before = workplace.value("SELECT mz_now()")
    both(workplace, "DELETE FROM {} WHERE v = 1")
    both(workplace, f"INSERT INTO {{}} VALUES ({values[1]}, 1), ({values[0]}, 1)")
    session = interpreted(workplace)
    assert same(workplace, EVERY, before, session=session)
    if kind != "char":
        assert joined(workplace, FORMS["inner"].format(t="a"), session)
    assert not joined(workplace, FORMS["inner"].format(t="b"), session)


def test_every_time_of_the_history(workplace):
    pair(workplace, "k INT, v INT")
    workplace.sql("CREATE TABLE p (k INT, n INT) WITH (RETAIN HISTORY FOR '1 day')")
    workplace.sql("INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (NULL, 4), (1, 5)")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (2, 2)")
    hydrated(workplace, "by_k")
    times = []
    for change in (
        "INSERT INTO {0} VALUES (1, 3), (1, 3), (3, 4)",
        "UPDATE {0} SET v = v + 1 WHERE k = 1",
        "DELETE FROM {0} WHERE v = 4",
        "INSERT OVERWRITE {0} VALUES (1, 7), (NULL, 8)",
    ):
        both(workplace, change)
        times.append(workplace.value("SELECT mz_now()"))
    same(workplace, EVERY, *times)
    assert joined(workplace, f"{FORMS['inner'].format(t='a')} AS OF {times[1]}")


def test_a_hint_says_how_to_join(workplace):
    pair(workplace, "k INT, v INT")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (2, 2)")
    hydrated(workplace, "by_k")
    text = "SELECT {h} p.n, t.v FROM VALUES (1, 5), (3, 6) AS p(k, n) JOIN {t} t ON p.k = t.k"
    plan = plan_of(workplace, text.format(h="", t="a"))
    assert f"by index slackwater.{workplace.schema}.by_k (k)" in plan.replace("p.", "")
    for hint in ("BROADCAST(t)", "MERGE(t)", "SHUFFLE_HASH(p)"):
        assert not joined(workplace, text.format(h=f"/*+ {hint} */", t="a"))
        assert workplace.rows(text.format(h=f"/*+ {hint} */", t="a")) == [[5, 1]]
    assert workplace.rows(text.format(h="", t="a")) == [[5, 1]]


def test_some_keys_of_the_join_and_several_joins(workplace):
    pair(workplace, "k INT, v INT")
    workplace.sql("CREATE TABLE c (x INT, y STRING)")
    workplace.sql("CREATE INDEX by_x ON c (x)")
    workplace.sql("INSERT INTO c VALUES (1, 'one'), (2, 'two'), (2, 'zwei')")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (1, 2), (2, 2), (3, 9)")
    for name in ("by_k", "by_x"):
        hydrated(workplace, name)
    chain = (
        "SELECT p.n, t.v, c.y FROM VALUES (1, 1, 5), (1, 2, 6), (2, 3, 7) AS p(k, w, n)"
        " JOIN {t} t ON p.k = t.k AND p.w = t.v LEFT JOIN c ON c.x = t.v"
    )
    assert len(same(workplace, chain)) == 3
    assert plan_of(workplace, chain.format(t="a")).count("by index") >= 2
    same(workplace, f"SELECT y, count(*), sum(v) FROM ({chain}) GROUP BY y ORDER BY y LIMIT 2")
    with_subquery = "SELECT v FROM {t} WHERE k IN (SELECT x FROM c) AND v > (SELECT min(x) FROM c)"
    same(workplace, with_subquery)


@pytest.mark.nightly
def test_more_rows_than_were_expected_are_joined_as_ever(workplace):
    """How many rows a filter leaves is found out when it runs."""
    pair(workplace, "k BIGINT, v INT")
    both(workplace, "INSERT INTO {} VALUES (2, 1), (4, 2), (7, 3), (4, 9)")
    hydrated(workplace, "by_k")
    session = interpreted(workplace)
    text = "SELECT p.id, t.v FROM (SELECT id FROM range(30000) WHERE id % 2 = 0) p {how} JOIN {t} t"
    for how in ("", "LEFT", "LEFT SEMI", "LEFT ANTI"):
        columns = "id" if "LEFT " in how else "id, v"
        form = text.replace("p.id, t.v", "p.id" if "LEFT " in how else "p.id, t.v")
        query = f"{form.replace('{how}', how)} ON p.id = t.k"
        assert joined(workplace, query.format(t="a"))
        total = f"SELECT count(*), sum(hash({columns})) FROM ({query})"
        same(workplace, total)
        # Nor does Spark compile what has many columns.
        same(workplace, total, session=session)


def test_ranges_of_numbers_are_looked_up(workplace):
    pair(workplace, "k BIGINT, v INT")
    rows = "(-4, 1), (0, 2), (2, 3), (2, 3), (999, 4), (1000, 5), (NULL, 6)"
    both(workplace, f"INSERT INTO {{}} VALUES {rows}, (9223372036854775806, 7)")
    hydrated(workplace, "by_k")
    last = "9223372036854775807"
    ranges = (
        "range(1000)",
        "range(1001)",
        "range(0, 1000, 3, 4)",
        "range(6, -6, -2)",
        f"range({last} - 7, {last})",
        f"range({last}, -{last}, -{last})",
        "range(0)",
    )
    counted = (
        "SELECT {n} AS n, count(*), sum(p.id % 100), max(p.id), sum(t.v)"
        " FROM {numbers} p {how} JOIN {{t}} t ON p.id = t.k"
    )
    texts = [
        counted.format(n=n, numbers=numbers, how=how)
        for n, numbers in enumerate(ranges)
        for how in ("", "LEFT")
    ]
    assert joined(workplace, texts[0].format(t="a"))
    same(workplace, " UNION ALL ".join(texts))
    for text in texts[:4]:
        same(workplace, text)
    same(workplace, "SELECT p.n, t.v FROM (SELECT id % 3 AS n FROM range(5)) p JOIN {t} t ON n = k")


@pytest.mark.nightly
def test_few_numbers_that_find_many_rows_are_joined_as_ever(workplace):
    pair(workplace, "k BIGINT, v INT")
    both(workplace, "INSERT INTO {} SELECT id % 8, id % 9 FROM range(101000)")
    hydrated(workplace, "by_k")
    text = "SELECT count(*), sum(t.v), max(p.id) FROM range(1, 12) p JOIN {t} t ON p.id = t.k"
    assert joined(workplace, text.format(t="a"))
    same(workplace, text)
    text = text.replace("(1, 12)", "(0, 12)").replace("sum(t.v)", "sum(id), sum(t.v)")
    assert same(workplace, text)[0][0] == 101000
    same(workplace, f"SELECT id, {text[7:]} GROUP BY id HAVING sum(t.v) > 1")


def test_what_one_side_says_of_the_other_reaches_the_index(workplace):
    pair(workplace, "k INT, v INT")
    workplace.sql("CREATE TABLE p (k INT, n INT)")
    workplace.sql("INSERT INTO p VALUES (1, 1), (2, 2)")
    both(workplace, "INSERT INTO {} VALUES (1, 1), (2, 2), (1, 3)")
    hydrated(workplace, "by_k")
    text = "SELECT p.n, t.v FROM p JOIN {t} t ON p.k = t.k WHERE p.k = 1"
    assert same(workplace, text) == [[1, 1], [1, 3]]
    plan = plan_of(workplace, text.format(t="a"))
    assert f"by index slackwater.{workplace.schema}.by_k" in plan
    assert "IndexLookupJoin" not in plan
