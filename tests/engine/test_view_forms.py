"""Each form of Spark SQL's grammar: the maintained view holds the rows of its query."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

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


STEPS = [6, pytest.param(1, marks=pytest.mark.nightly)]
"""One of so many forms is tried."""


@contextmanager
def schema(application, name):
    """With the tables of the forms, which all sessions see by their names."""
    application.sql(f"CREATE SCHEMA slackwater.{name}")
    for session in ("main", *READERS):
        application.sql(f"USE slackwater.{name}", session=session)
    interpret(application, *READERS)
    for session in READERS:
        application.sql("SET slackwater.statement_timeout = '5 minutes'", session=session)
    for table, columns in TABLES.items():
        application.sql(f"CREATE TABLE {table} ({columns})")
    yield application
    application.sql(f"DROP SCHEMA slackwater.{name} CASCADE")


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


@pytest.mark.parametrize("step", STEPS)
def test_each_form_is_maintained_as_it_is_asked(shared_application, step):
    with schema(shared_application, f"forms_{step}") as place:
        is_maintained(
            place,
            {f"form_{i}": query for i, query in enumerate(forms()[::step])},
            {f"above_{i}": query for i, query in enumerate(on_views()[::step])},
        )


def is_maintained(place, queries, above):
    """Also as rows come and go."""
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


@pytest.fixture(scope="module")
def place(shared_application):
    with schema(shared_application, "forms") as application:
        yield application


@pytest.mark.parametrize(("query", "condition"), REFUSED.items())
def test_what_cannot_be_maintained_is_refused_by_name(place, query, condition):
    with pytest.raises(SqlError) as caught:
        place.sql(f"CREATE MATERIALIZED VIEW refused AS {query}")
    assert caught.value.condition == condition, caught.value.message
