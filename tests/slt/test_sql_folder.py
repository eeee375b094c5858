"""The SQL that people read runs, and returns what stands below it."""

from __future__ import annotations

from importlib import resources
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.support.applications.fixtures import Workplace
from tests.support.applications.many_relations import interpret, read_at_once
from tests.support.applications.slt import sql_text
from tests.support.waiting import wait_until

SQL = Path(str(resources.files("slackwater").joinpath("sql")))
GALLERY = sorted((SQL / "gallery").glob("*.sql"))
WITH_BROKER = ["topic.sql"]
WITH_FOLDER = ["lake.sql"]
MONITORING = sorted((SQL / "monitoring").glob("*.sql"))
TPCH = sorted((SQL / "bench/tpch").glob("*.sql"))

NEXMARK = sorted((SQL / "bench/nexmark").glob("q*.sql"))
NEXMARK_ROWS = (
    """INSERT INTO person SELECT id, concat('p', id), concat(id, '@x'), concat('c', id % 3),
    element_at(array('OR', 'ID', 'CA', 'WA'), CAST(id % 4 AS INT) + 1),
    TIMESTAMP'2026-01-01 10:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) FROM range({0}, {1})""",
    """INSERT INTO auction SELECT id, concat('i', id), 10, 100,
    TIMESTAMP'2026-01-01 10:00:01' + make_interval(0, 0, 0, 0, 0, 0, id),
    TIMESTAMP'2026-01-01 10:10:00', id % 5, CAST(10 + id % 2 AS INT) FROM range({0}, {1})""",
    """INSERT INTO bid SELECT id % 7 * 41, id % 11, 900 + id * id * 37 % 4999, if(id % 3 = 0,
    'Google', 'x'), concat('https://a/b/c', id % 4, '/d&channel_id=', id % 5, '&e'),
    TIMESTAMP'2026-01-01 10:00:05' + make_interval(0, 0, 0, 0, 0, 0, id) FROM range({0}, {1})""",
)

RECOMPUTED: set[str] = set()
"""Queries that this version computes anew at each change, and compares."""


def statements(path):
    """Pairs of a statement and the comment lines that follow it."""
    found = []
    pending = []
    for line in path.read_text().splitlines():
        if line.startswith("--"):
            if not pending and found:
                found[-1][1].append(line.removeprefix("--").strip())
        elif line.strip():
            pending.append(line)
            if line.rstrip().endswith(";"):
                found.append(("\n".join(pending).rstrip().removesuffix(";"), []))
                pending = []
        elif not pending:
            found.append(("", []))
    assert not pending, f"{path.name} ends inside a statement"
    return [(text, comment) for text, comment in found if text]


def table_below(comment):
    """The header and the rows that a comment shows, or None where it is prose."""
    if not comment:
        return None
    header, *rows = [[cell.strip() for cell in line.split("|")] for line in comment]
    return header, rows


def shown(value):
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.spark
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_an_example_returns_what_stands_below_it(path, workplace):
    if path.name not in (*WITH_BROKER, *WITH_FOLDER):
        run = workplace.sql

        def check(text, wanted):
            assert answer(run, text, wanted[1]) == wanted, text

        assert compared(path, run, check) >= 2


@pytest.mark.spark
@pytest.mark.parametrize("name", WITH_BROKER)
def test_an_example_with_topics_returns_what_stands_below_it(name, workplace, kafka):
    def run(text):
        return workplace.sql(text.replace("localhost:9092", kafka.address))

    def check(text, wanted):
        wait_until(lambda: answer(run, text, wanted[1]) == wanted, what=text)

    kafka.create_topic("orders_of_shops")
    assert compared(SQL / "gallery" / name, run, check) >= 2


@pytest.mark.spark
@pytest.mark.parametrize("name", WITH_FOLDER)
def test_an_example_with_tables_of_a_lake_returns_what_stands_below_it(name, workplace):
    def run(text):
        return workplace.sql(text.replace("/data/", f"{workplace.folder}/"))

    def check(text, wanted):
        wait_until(lambda: answer(run, text, wanted[1]) == wanted, what=text)

    assert compared(SQL / "gallery" / name, run, check) >= 2


def compared(path, run, check):
    """Runs an example, and checks each answer against what stands below: how many there were."""
    count = 0
    for text, comment in statements(path):
        wanted = table_below(comment)
        if wanted is None:
            run(text)
            continue
        check(text, wanted)
        count += 1
    return count


def answer(run, text, wanted):
    """The header and the rows of an answer as a comment shows them."""
    result = run(text)
    rows = [
        [
            "*" if cell == "*" else shown(value)
            for cell, value in zip_longest(row or (), values or ())
        ]
        for row, values in zip_longest(wanted, result.rows)
    ]
    return list(result.columns), rows


@pytest.mark.spark
def test_the_questions_of_an_operator_have_answers(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
    workplace.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1s')")
    answers = {path.stem: workplace.sql(sql_text(path)) for path in MONITORING}
    assert "v" in [row[0] for row in answers["lag"].rows]
    assert ["v", "t"] in [[row[0], row[3]] for row in answers["slowest_input"].rows]
    assert "s" not in [row[0] for row in answers["sources"].rows]
    wait_until(lambda: not workplace.rows(sql_text(SQL / "monitoring/not_hydrated.sql")))


@pytest.mark.spark
@pytest.mark.nightly
def test_every_query_of_tpch_runs_and_has_a_plan(shared_application, tmp_path):
    place = Workplace(shared_application, "sql_tpch", tmp_path)
    try:
        place.sql("CREATE SOURCE tpch FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.001) FOR ALL TABLES")
        recomputed = set()
        for path in TPCH:
            query = sql_text(path)
            place.sql(query)
            operators = place.sql(f"EXPLAIN INCREMENTAL FOR {query}")
            kinds = {
                dict(zip(operators.columns, row, strict=True))["maintenance"]
                for row in operators.rows
            }
            if "recompute" in kinds:
                recomputed.add(path.stem)
        assert recomputed == RECOMPUTED
    finally:
        shared_application.sql("DROP SCHEMA slackwater.sql_tpch CASCADE")


@pytest.mark.spark
@pytest.mark.nightly
def test_every_query_of_nexmark_is_maintained_as_it_is_asked(shared_application, tmp_path):
    place = Workplace(shared_application, "sql_nexmark", tmp_path)
    try:
        for text, _ in statements(SQL / "bench/nexmark/schema.sql"):
            place.sql(text)
        queries = {path.stem: sql_text(path) for path in NEXMARK}
        for name, query in queries.items():
            place.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for bounds in ((0, 60), (60, 90)):
            for text in NEXMARK_ROWS:
                place.sql(text.format(*bounds))
        place.sql("DELETE FROM bid WHERE bidder = 3")
        reader = "nexmark_reader"
        place.use(reader)
        interpret(shared_application, reader)
        wanted = read_at_once(shared_application, queries, session=reader)
        views = {name: f"SELECT * FROM {name}" for name in queries}
        found = read_at_once(shared_application, views, session=reader)
        for name in queries:
            assert found[name] == wanted[name], name
            assert wanted[name] or name == "q02", name
    finally:
        shared_application.sql("DROP SCHEMA slackwater.sql_nexmark CASCADE")
