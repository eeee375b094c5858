"""Reads by an index against reads of the same rows without one, through random changes.

The index is on a table, or on a plain view over it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.test_indexes import KINDS
from tests.property.histories import histories
from tests.support.applications.application import Application
from tests.support.applications.fixtures import Workplace
from tests.support.applications.indexed import plan_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

KEYS = {"k": 1, "k, v": 2, "v % 3, k": 2, "coalesce(k, k)": 1}
"""Keys of the index, and how many there are."""

VIEWS = {
    "rows": "SELECT k, v FROM {t}",
    "some": "SELECT k, v * 2 AS v FROM {t} WHERE v <> 3",
    "twice": "SELECT k, v FROM {t} UNION ALL SELECT k, v + 1 FROM {t} WHERE v > 1",
    "pairs": "SELECT x.k, y.v FROM {t} x JOIN {t} y ON x.v = y.v + 1",
    "outer": "SELECT x.k, y.v FROM {t} x LEFT JOIN {t} y ON x.k <=> y.k AND x.v < y.v",
    "counts": "SELECT min(k) AS k, count(*) AS v FROM {t} GROUP BY k, v % 2",
    "distinct": "SELECT DISTINCT k, v % 3 AS v FROM {t}",
    "numbered": "SELECT k, max(v) OVER (PARTITION BY v % 2) AS v FROM {t}",
    "above": "SELECT k, v FROM (SELECT k, v FROM {t} WHERE v IN (SELECT v + 1 FROM {t}))",
}
"""Queries of plain views with the columns `k`, of the kind of key, and `v`, a number."""

ABOVE = {
    "join": "SELECT x.k, x.v, s.v AS w FROM {v} x JOIN {t} s ON x.k = s.k",
    "null safe": "SELECT x.v, s.v AS w FROM {v} x JOIN {t} s ON s.k <=> x.k AND s.v > x.v",
    "by two": "SELECT x.v FROM {v} x JOIN {t} s ON s.k = x.k AND s.v = x.v",
    "left": "SELECT x.v, s.k FROM {v} x LEFT JOIN {t} s ON x.k = s.k AND x.v <= s.v",
    "right": "SELECT x.v, s.k FROM {v} x RIGHT JOIN {t} s ON x.k = s.k",
    "full": "SELECT x.v, s.v AS w FROM {v} x FULL JOIN {t} s ON x.k = s.k",
    "semi": "SELECT * FROM {v} x WHERE EXISTS (SELECT 1 FROM {t} s WHERE s.k = x.k AND s.v > x.v)",
    "anti": "SELECT * FROM {t} s WHERE NOT EXISTS (SELECT 1 FROM {v} x WHERE s.k = x.k)",
    "twice": "SELECT x.k, y.v FROM {v} x JOIN {v} y ON x.k = y.k",
    "grouped": "SELECT count(*) AS n, sum(v) AS s FROM {v} GROUP BY k",
    "some": "SELECT v FROM {v} WHERE v > 2",
}
"""Queries of materialized views over such a plain view, or the table itself, and the table."""

OPEN = {"counts", "distinct"}
"""Those that show one of several values which are the same, and leave open which."""

SEVERAL_FORMS = {"collated", "trimmed"}
"""Kinds with values that are the same and are shown in several ways."""

NUMBERS = st.integers(0, 5)


@dataclass(frozen=True, slots=True)
class Change:
    """A statement over the table that stands for ``{t}``. `values` are literals by their places."""

    text: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Changes of a table with keys of `kind`, and after each of them what is asked.

    It is asked of the table, or of the `view` over it. `above` is what a materialized view makes
    of that.
    """

    kind: str
    view: str | None
    above: str | None
    keys: str
    changes: tuple[Change, ...]
    asked: tuple[tuple[int, int], ...]


CHANGES = (
    "INSERT INTO {t} VALUES ({0}, {n}), ({1}, {m})",
    "INSERT INTO {t} SELECT {0}, id % 7 FROM range(30)",
    "DELETE FROM {t} WHERE v = {n}",
    "DELETE FROM {t} WHERE k <=> {0}",
    "UPDATE {t} SET k = {0} WHERE v = {n}",
    "UPDATE {t} SET v = v + 1 WHERE k <=> {0}",
    "MERGE INTO {t} USING (SELECT {0} AS k, {n} AS v) s ON {t}.k <=> s.k "
    "WHEN MATCHED AND {t}.v = {m} THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
    "WHEN NOT MATCHED THEN INSERT *",
    "INSERT OVERWRITE {t} VALUES ({0}, {n}), ({1}, {m})",
    "TRUNCATE TABLE {t}",
)


@st.composite
def some_history(draw: st.DrawFn) -> History:
    kind = draw(st.sampled_from(sorted(KINDS)))
    places = st.integers(0, len(KINDS[kind][1]) - 1)
    changes = draw(
        st.lists(
            st.builds(
                Change, st.sampled_from(CHANGES), st.tuples(places, places, NUMBERS, NUMBERS)
            ),
            min_size=2,
            max_size=7,
        )
    )
    asked = draw(st.lists(st.tuples(places, NUMBERS), min_size=1, max_size=3))
    views = [view for view in VIEWS if view not in OPEN or kind not in SEVERAL_FORMS]
    view = draw(st.none() | st.sampled_from(views))
    above = draw(st.none() | st.sampled_from(sorted(ABOVE)))
    keys = draw(st.sampled_from(sorted(KEYS)))
    return History(kind, view, above, keys, tuple(changes), tuple(asked))


_numbers = count(1)


@histories()
@given(history=some_history())
def test_an_index_finds_what_a_scan_finds(shared_application, history):
    with some_place(shared_application) as place:
        run(place, history)


@contextmanager
def some_place(application: Application) -> Iterator[Workplace]:
    """A schema of its own for one history."""
    place = Workplace(application, f"index_reads_{next(_numbers)}", Path())
    try:
        yield place
    finally:
        application.sql(f"DROP SCHEMA slackwater.{place.schema} CASCADE")


def run(place: Workplace, history: History) -> None:
    declared, literals = KINDS[history.kind]
    for name in ("a", "b"):
        place.sql(f"CREATE TABLE {name} (k {declared}, v INT) WITH (RETAIN HISTORY FOR '1 day')")
        if history.view is not None:
            place.sql(f"CREATE VIEW over_{name} AS {VIEWS[history.view].format(t=name)}")
    names = ("a", "b") if history.view is None else ("over_a", "over_b")
    place.sql(f"CREATE INDEX i ON {names[0]} ({history.keys}) WITH (RETAIN HISTORY FOR '1 day')")
    if history.above is not None:
        for table, view in zip(("a", "b"), names, strict=True):
            place.sql(
                f"CREATE MATERIALIZED VIEW above_{table} WITH (RETAIN HISTORY FOR '1 day')"
                f" AS {ABOVE[history.above].format(v=view, t=table)}"
            )
    times: list[int] = []
    for change in history.changes:
        first, second, n, m = change.values
        for name in ("a", "b"):
            text = change.text.format(literals[first], literals[second], t=name, n=n, m=m)
            place.sql(text)
        for place_of_key, number in history.asked:
            for condition in conditions(literals[place_of_key], number):
                compare(place, names, condition, "")
                if times:
                    compare(place, names, condition, f" AS OF {times[number % len(times)]}")
        times.append(place.value("SELECT mz_now()"))
    for at in () if history.above is None else times:
        compare(place, ("above_a", "above_b"), "true", f" AS OF {at}")


def conditions(literal: str, number: int) -> list[str]:
    """Conditions that fix the keys of one of the indexes, or of none."""
    return [
        f"k <=> {literal}",
        f"k = {literal} AND v IN ({number}, {number + 1})",
        f"v % 3 = {number % 3} AND k <=> {literal} AND v < 5",
        f"coalesce(k, k) = {literal}",
    ]


def compare(place: Workplace, names: tuple[str, str], condition: str, at: str) -> None:
    found = [
        # Zeros are the same to a collection, and so are the forms of NaN.
        sorted(repr(row).replace("-0.0", "0.0") for row in place.rows(query))
        for query in (f"SELECT * FROM {name} WHERE {condition}{at}" for name in names)
    ]
    assert found[0] == found[1], (condition, at)


PROBES = "VALUES {rows} AS p(k, n)"

JOINS = {
    "inner": "SELECT p.n, t.v FROM {p} JOIN {t} t ON p.k = t.k",
    "null safe": "SELECT p.n, t.v FROM {t} t JOIN {p} ON t.k <=> p.k AND t.v >= p.n",
    "left": "SELECT p.n, t.v FROM {p} LEFT JOIN {t} t ON p.k = t.k AND t.v > p.n - 2",
    "right": "SELECT p.n, t.k, t.v FROM {t} t RIGHT JOIN {p} ON t.k = p.k",
    "semi": "SELECT p.n FROM {p} LEFT SEMI JOIN {t} t ON p.k = t.k AND t.v <> p.n",
    "anti": "SELECT p.n FROM {p} LEFT ANTI JOIN {t} t ON p.k = t.k",
    "grouped": "SELECT n, count(*), sum(v) FROM {p} JOIN {t} t USING (k) GROUP BY n",
    "twice": "SELECT p.n, x.v, y.v FROM {p} JOIN {t} x ON p.k = x.k JOIN {t} y ON y.k = x.k",
    "filtered": "SELECT p.n, t.v FROM {p}, (SELECT k, v FROM {t} WHERE v < 4) t WHERE p.k = t.k",
}
"""Joins of rows that a query has itself with the table, whose key is `k`."""

LOOKED_UP = "InlineRows IndexLookupJoin"
"""In a plan: the rows of a join were found without asking anybody (decision 0101)."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Changes of a table with keys of `kind`, and after each of them a join with `probes`."""

    kind: str
    join: str
    changes: tuple[Change, ...]
    probes: tuple[tuple[int, int], ...]


@st.composite
def some_join(draw: st.DrawFn) -> Joined:
    kind = draw(st.sampled_from(sorted(KINDS)))
    places = st.integers(0, len(KINDS[kind][1]) - 1)
    change = st.builds(
        Change, st.sampled_from(CHANGES), st.tuples(places, places, NUMBERS, NUMBERS)
    )
    changes = draw(st.lists(change, min_size=1, max_size=4))
    probes = draw(st.lists(st.tuples(places, NUMBERS), min_size=1, max_size=4))
    join = draw(st.sampled_from(sorted(JOINS)))
    return Joined(kind, join, tuple(changes), tuple(probes))


@histories()
@given(joined=some_join())
def test_a_join_by_an_index_finds_what_a_join_of_a_scan_finds(shared_application, joined):
    with some_place(shared_application) as place:
        run_joins(place, joined)


def run_joins(place: Workplace, joined: Joined) -> None:
    declared, literals = KINDS[joined.kind]
    for name in ("a", "b"):
        place.sql(f"CREATE TABLE {name} (k {declared}, v INT)")
    place.sql("CREATE INDEX i ON a (k)")
    kind = re.sub(r"(VAR)?CHAR\(\d+\)", "STRING", declared)
    rows = ", ".join(f"(CAST({literals[key]} AS {kind}), {n})" for key, n in joined.probes)
    probes = PROBES.format(rows=rows)
    over_a, over_b = (JOINS[joined.join].format(p=probes, t=name) for name in ("a", "b"))
    for change in joined.changes:
        first, second, n, m = change.values
        for name in ("a", "b"):
            place.sql(change.text.format(literals[first], literals[second], t=name, n=n, m=m))
        wanted = shown(place, over_b)
        # The first one may be bound.
        for _ in range(2):
            assert shown(place, over_a) == wanted, over_a

    def nobody_was_asked():
        assert shown(place, over_a) == wanted, over_a
        return LOOKED_UP in plan_of(place, over_a)

    wait_until(nobody_was_asked, what=f"{over_a} asks nobody")


def shown(place: Workplace, query: str) -> list[str]:
    """Its rows in one order. Zeros are the same to a collection, and so are the forms of NaN."""
    return sorted(repr(row).replace("-0.0", "0.0") for row in place.rows(query))
