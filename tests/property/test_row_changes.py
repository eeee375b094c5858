"""INSERT, UPDATE, DELETE and MERGE against a model, with repeated and NULL matches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.applications.application import SqlError
from tests.support.applications.many_relations import interpret

pytestmark = pytest.mark.spark

CARDINALITY = "MERGE_CARDINALITY_VIOLATION"

Row = tuple[int | None, int | None]
Rows = list[Row]


# --- values of SQL: None is NULL, also as the value of a condition


def equal(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left == right


def less(left: int | None, right: int | None) -> bool | None:
    return None if left is None or right is None else left < right


def both(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


@dataclass(frozen=True, slots=True)
class Word:
    """A piece of a statement, and what it means. `a` is a row of the target, `s` of the source."""

    sql: str
    means: Callable[..., object]


ON = (
    Word("a.k = s.k", lambda a, s: equal(a[0], s[0])),
    Word("a.k <=> s.k", lambda a, s: a[0] == s[0]),
    Word("a.k < s.k", lambda a, s: less(a[0], s[0])),
    Word("a.k = s.k AND a.v <=> s.v", lambda a, s: both(equal(a[0], s[0]), a[1] == s[1])),
    Word("a.k <=> s.k AND a.v > 0", lambda a, s: both(a[0] == s[0], less(0, a[1]))),
    Word("a.v IS NULL", lambda a, s: a[1] is None),
    Word("true", lambda a, s: True),
)
OF_BOTH = (
    Word("", lambda a, s: True),
    Word(" AND a.v > s.v", lambda a, s: less(s[1], a[1])),
    Word(" AND a.v IS NULL", lambda a, s: a[1] is None),
)
OF_SOURCE = (
    Word("", lambda s: True),
    Word(" AND s.v > 0", lambda s: less(0, s[1])),
)
OF_TARGET = (
    Word("", lambda a: True),
    Word(" AND a.v IS NULL", lambda a: a[1] is None),
)
MATCHED = (
    Word("DELETE", lambda a, s: None),
    Word("UPDATE SET v = s.v", lambda a, s: (a[0], s[1])),
    Word("UPDATE SET k = s.v, v = a.k", lambda a, s: (s[1], a[0])),
)
NOT_MATCHED = (
    Word("INSERT (k, v) VALUES (s.k, s.v)", lambda s: s),
    Word("INSERT (v) VALUES (s.k)", lambda s: (None, s[0])),
)
BY_SOURCE = (
    Word("DELETE", lambda a: None),
    Word("UPDATE SET v = a.k", lambda a: (a[0], a[0])),
)
WHERE = (
    Word("k = 1", lambda a, rows, other: equal(a[0], 1)),
    Word("k <=> NULL", lambda a, rows, other: a[0] is None),
    Word("v > k", lambda a, rows, other: less(a[0], a[1])),
    Word("k IN (SELECT k FROM b)", lambda a, rows, other: any(equal(a[0], o[0]) for o in other)),
    Word(
        "EXISTS (SELECT 1 FROM a x WHERE x.k = a.k AND x.v > a.v)",
        lambda a, rows, other: any(equal(x[0], a[0]) and less(a[1], x[1]) for x in rows),
    ),
    Word(
        "v = (SELECT max(v) FROM a)",
        lambda a, rows, other: equal(
            a[1], max((x[1] for x in rows if x[1] is not None), default=None)
        ),
    ),
    Word("true", lambda a, rows, other: True),
)
SET = (
    Word("v = v", lambda a, other: a),
    Word("v = k, k = v", lambda a, other: (a[1], a[0])),
    Word("v = 2", lambda a, other: (a[0], 2)),
    Word("v = (SELECT count(*) FROM b)", lambda a, other: (a[0], len(other))),
)
SOURCES = (
    Word("a", lambda rows, other: rows),
    Word("b", lambda rows, other: other),
    Word("(SELECT * FROM a UNION ALL SELECT * FROM a)", lambda rows, other: rows + rows),
    Word("(SELECT * FROM b UNION ALL SELECT * FROM b)", lambda rows, other: other + other),
    Word("(SELECT k + 1 AS k, v FROM a)", lambda rows, other: [(plus(r[0]), r[1]) for r in rows]),
)


def plus(value: int | None) -> int | None:
    return None if value is None else value + 1


def literals(rows: Rows) -> str:
    words = [f"({'NULL' if k is None else k}, {'NULL' if v is None else v})" for k, v in rows]
    return f"VALUES {', '.join(words)}"


# --- statements


@dataclass(frozen=True, slots=True)
class Statement:
    """`after` gives the rows of a after it; None where it is refused by its matches."""

    sql: str
    after: Callable[[Rows, Rows], Rows | None]


values = st.one_of(st.none(), st.integers(0, 2))
column_types = st.tuples(*[st.sampled_from(["INT", "DOUBLE"])] * 2)
"""Some that files are pruned by, and some that they are not."""
some_rows = st.lists(st.tuples(values, values), min_size=1, max_size=5)


@st.composite
def inserts(draw):
    if draw(st.booleans()):
        rows = draw(some_rows)
        return Statement(f"INSERT INTO a {literals(rows)}", lambda now, other: now + rows)
    source = draw(st.sampled_from(SOURCES))
    mode = draw(st.sampled_from(["INTO", "OVERWRITE"]))
    kept = mode == "INTO"
    return Statement(
        f"INSERT {mode} a SELECT * FROM {source.sql}",
        lambda now, other: (now if kept else []) + source.means(now, other),
    )


@st.composite
def deletes(draw):
    where = draw(st.sampled_from(WHERE))
    return Statement(
        f"DELETE FROM a WHERE {where.sql}",
        lambda now, other: [row for row in now if not where.means(row, now, other)],
    )


@st.composite
def updates(draw):
    where, changed = draw(st.sampled_from(WHERE)), draw(st.sampled_from(SET))
    return Statement(
        f"UPDATE a SET {changed.sql} WHERE {where.sql}",
        lambda now, other: [
            changed.means(row, other) if where.means(row, now, other) else row for row in now
        ],
    )


@st.composite
def merges(draw):
    on = draw(st.sampled_from(ON))

    def clauses(conditions, actions, most):
        pairs = st.tuples(st.sampled_from(conditions), st.sampled_from(actions))
        drawn = draw(st.lists(pairs, max_size=most))
        # Only the last one of a kind may be without a condition.
        return [pair for pair in drawn[:-1] if pair[0].sql] + drawn[-1:]

    matched = clauses(OF_BOTH, MATCHED, 2)
    inserted = clauses(OF_SOURCE, NOT_MATCHED, 1)
    unmatched = clauses(OF_TARGET, BY_SOURCE, 1)
    if not (matched or inserted or unmatched):
        matched = [(OF_BOTH[0], MATCHED[0])]
    drawn = draw(st.one_of(st.sampled_from(SOURCES), some_rows))
    source = (
        drawn
        if isinstance(drawn, Word)
        else Word(f"({literals(drawn)} AS t(k, v))", lambda now, other: drawn)
    )
    kinds = (
        ("MATCHED", matched),
        ("NOT MATCHED", inserted),
        ("NOT MATCHED BY SOURCE", unmatched),
    )
    text = [f"MERGE INTO a USING {source.sql} AS s ON {on.sql}"]
    text += [f"WHEN {kind}{c.sql} THEN {do.sql}" for kind, found in kinds for c, do in found]
    once = [(c.sql, do.sql) for c, do in matched] in ([], [("", "DELETE")])

    def after(now, other):
        using = source.means(now, other)
        left = []
        for row in now:
            hits = [each for each in using if on.means(row, each)]
            if len(hits) > 1 and not once:
                return None
            chosen = (
                (do.means(row, hits[0]) for c, do in matched if c.means(row, hits[0]))
                if hits
                else (do.means(row) for c, do in unmatched if c.means(row))
            )
            kept = next(chosen, row)
            left += [] if kept is None else [kept]
        for each in using:
            if not any(on.means(row, each) for row in now):
                left += [do.means(each) for c, do in inserted if c.means(each)][:1]
        return left

    return Statement(" ".join(text), after)


statements = st.one_of(inserts(), deletes(), updates(), merges(), merges())
steps = st.lists(statements, min_size=1, max_size=6)

_tries = count()
SESSIONS = ("main", "interpreted")
"""Every other history is not compiled, which would take longer than all the rest of it."""


@pytest.fixture(scope="module")
def interpreted(shared_application):
    interpret(shared_application, SESSIONS[1])


@histories()
@given(some_rows, some_rows, steps, column_types)
def test_changes_of_rows_are_those_of_the_model(
    shared_application, interpreted, first, other, steps, types
):
    number = next(_tries)
    schema = f"changes_{number}"
    session = SESSIONS[number % len(SESSIONS)]
    sql = partial(shared_application.sql, session=session)
    sql(f"CREATE SCHEMA slackwater.{schema}")
    sql(f"USE slackwater.{schema}")
    try:
        for name, rows in (("a", first), ("b", other)):
            sql(f"CREATE TABLE {name} (k {types[0]}, v {types[1]})")
            sql(f"INSERT INTO {name} {literals(rows)}")
        now = first
        for step in steps:
            expected = step.after(now, other)
            if expected is None:
                with pytest.raises(SqlError, match=CARDINALITY):
                    sql(step.sql)
            else:
                sql(step.sql)
                now = expected
            assert contents(shared_application, session=session) == Counter(now), step.sql
    finally:
        sql(f"DROP SCHEMA slackwater.{schema} CASCADE")


def contents(place, name="a", session="main"):
    """The rows, of which none is there a negative number of times; else this fails."""
    found = place.rows(f"SELECT * FROM {name}", session=session)
    # Doubles come as texts, and equal integers.
    rows = Counter(tuple(float(v) if isinstance(v, str) else v for v in row) for row in found)
    assert place.value(f"SELECT count(*) FROM {name}", session=session) == rows.total()
    return rows


# --- repeated matches of a row that a MERGE deletes


def keys(rows):
    return f"(SELECT * FROM VALUES {rows} AS t(k)) s"


REPEATED = {
    "alone": "MERGE INTO a USING (SELECT 3 AS k UNION ALL SELECT 3) s ON a.id = s.k "
    "WHEN MATCHED THEN DELETE",
    "beside an insert": f"MERGE INTO a USING {keys('(3), (3), (4), (4)')} ON a.id = s.k "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (k)",
    "beside what has no match": f"MERGE INTO a USING {keys('(3), (3)')} ON a.id = s.k "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND id = 1 THEN DELETE",
    "beside both": f"MERGE INTO a USING {keys('(3), (3), (4)')} ON a.id = s.k "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (k) "
    "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET id = id + 10",
    "by NULL": f"MERGE INTO a USING {keys('(CAST(NULL AS INT)), (NULL)')} ON a.id <=> s.k "
    "WHEN MATCHED THEN DELETE",
    "without a key": f"MERGE INTO a USING {keys('(1), (2)')} ON a.id > s.k "
    "WHEN MATCHED THEN DELETE",
    "by itself": "MERGE INTO a USING (SELECT x.id FROM a x CROSS JOIN a y) s ON a.id = s.id "
    "WHEN MATCHED THEN DELETE",
    "in partitions": "MERGE INTO a USING (SELECT 3 AS k FROM range(0, 100, 1, 8)) s ON a.id = s.k "
    "WHEN MATCHED THEN DELETE",
    "in partitions beside an insert": "MERGE INTO a USING (SELECT id % 2 + 3 AS k "
    "FROM range(0, 10, 1, 8)) s ON a.id >= s.k "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (k)",
    "by mergeInto": "",
}
LEFT = {
    "alone": [None, None, 1, 2],
    "beside an insert": [None, None, 1, 2, 4, 4],
    "beside what has no match": [None, None, 2],
    "beside both": [None, None, 4, 11, 12],
    "by NULL": [1, 2, 3, 3],
    "without a key": [None, None, 1],
    "by itself": [None, None],
    "in partitions": [None, None, 1, 2],
    "in partitions beside an insert": [None, None, 1, 2, 4, 4, 4, 4, 4],
    "by mergeInto": [None, None, 1, 2],
}
MERGE_INTO = """
from pyspark.sql.functions import expr
source = spark.sql("SELECT 3 AS k UNION ALL SELECT 3").alias("s")
source.mergeInto("a", expr("a.id = s.k")).whenMatched().delete().merge()
result = None
"""


@pytest.mark.parametrize("kind", REPEATED)
def test_a_row_that_matches_repeatedly_is_deleted_once(workplace, kind):
    workplace.sql("CREATE TABLE a (id INT)")
    workplace.sql("INSERT INTO a VALUES (1), (2), (3), (3), (NULL), (NULL)")
    workplace.sql("CREATE MATERIALIZED VIEW m AS SELECT sum(id) AS total, count(*) AS n FROM a")
    if REPEATED[kind]:
        workplace.sql(REPEATED[kind])
    else:
        workplace.application.python(MERGE_INTO)
    expected = Counter((each,) for each in LEFT[kind])
    assert contents(workplace) == expected
    numbers = [each for each in LEFT[kind] if each is not None]
    assert workplace.rows("SELECT * FROM m") == [[sum(numbers) or None, len(LEFT[kind])]]
    workplace.sql("INSERT INTO a VALUES (3)")
    assert contents(workplace) == expected + Counter({(3,): 1})
