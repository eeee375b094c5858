"""Each form of Spark SQL's grammar: the maintained view holds the rows of its query."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.many_relations import interpret, read_at_once
from tests.support.planner.view_forms import (
    CHANGES,
    LOAD,
    ON_VIEWS,
    REFUSED,
    TABLES,
    forms,
    on_views,
)

pytestmark = pytest.mark.spark

AT_ONCE = 16
READERS = ("reader", "second reader")
READ_S = 300


@pytest.fixture(scope="module")
def place(shared_application):
    shared_application.sql("CREATE SCHEMA slackwater.forms")
    for session in ("main", *READERS):
        shared_application.sql("USE slackwater.forms", session=session)
    interpret(shared_application, *READERS)
    for session in READERS:
        shared_application.sql("SET slackwater.statement_timeout = '5 minutes'", session=session)
    for name, columns in TABLES.items():
        shared_application.sql(f"CREATE TABLE {name} ({columns})")
    yield shared_application
    shared_application.sql("DROP SCHEMA slackwater.forms CASCADE")


def created(place, queries):
    """By two sessions, each half of them; what is read by others comes first."""
    own = [(n, q) for n, q in queries.items() if n not in ON_VIEWS]
    for name, query in ON_VIEWS.items():
        if name in queries:
            place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    with ThreadPoolExecutor(len(READERS)) as pool:
        list(pool.map(lambda each: _create(place, *each), enumerate(own)))


def _create(place, number, view):
    name, query = view
    session = READERS[number % len(READERS)]
    place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}", session=session)


def differences(place, queries):
    """The views whose rows are not those of their queries."""
    # Spark's lexer counts the words ARRAY, MAP and STRUCT: behind one of them >> is twice >.
    names = sorted(queries, key=lambda name: ">>" not in queries[name])
    parts = [names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE)]
    shares = [(session, parts[i :: len(READERS)]) for i, session in enumerate(READERS)]
    with ThreadPoolExecutor(len(READERS)) as pool:
        found = pool.map(lambda share: _differences(place, queries, *share), shares)
        return [each for share in found for each in share]


def _differences(place, queries, session, parts):
    found = []
    for chosen in parts:
        sources = {name: f"SELECT * FROM {name}" for name in chosen}
        sources |= {f"{name}?": queries[name] for name in chosen}
        rows = read_at_once(place, sources, session=session, timeout_s=READ_S)
        found += [
            (
                queries[name],
                dict(rows[name] - rows[f"{name}?"]),
                dict(rows[f"{name}?"] - rows[name]),
            )
            for name in chosen
            if rows[name] != rows[f"{name}?"]
        ]
    return found


def test_each_form_is_maintained_as_it_is_asked(place):
    queries = {f"form_{i}": query for i, query in enumerate(forms())}
    above = {f"above_{i}": query for i, query in enumerate(on_views())}
    early = {name: query for i, (name, query) in enumerate(queries.items()) if i % 2 == 0}
    created(place, {**ON_VIEWS, **early, **above})
    assert differences(place, {**ON_VIEWS, **early, **above}) == []
    for statement in ("BEGIN", *LOAD, "COMMIT"):
        place.sql(statement)
    created(place, {name: query for name, query in queries.items() if name not in early})
    everything = {**ON_VIEWS, **queries, **above}
    assert differences(place, everything) == []
    for change in CHANGES:
        for statement in change:
            place.sql(statement)
        assert differences(place, everything) == [], change


@pytest.mark.parametrize(("query", "condition"), REFUSED.items())
def test_what_cannot_be_maintained_is_refused_by_name(place, query, condition):
    with pytest.raises(SqlError) as caught:
        place.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")
    assert caught.value.condition == condition, caught.value.message
