"""Spark's whole grammar of statements over our objects: each works, is kept, or is refused.

`spark_statements.txt` says what happens. A refusal has a condition of ours, or one of Spark's own
for users: none that stands for a defect, and none without a name.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.fixtures import Workplace

FILE = Path(__file__).parent / "spark_statements.txt"

_numbers = itertools.count(1)

LABELS = """
result = []
parser = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"
rules = ("StatementContext", "DmlStatementNoWithContext", "SetResetStatementContext")
for known in spark._jvm.java.lang.Class.forName(parser).getDeclaredClasses():
    if known.getSuperclass() is not None and known.getSuperclass().getSimpleName() in rules:
        result.append(known.getSimpleName().removesuffix("Context"))
"""
"""The alternatives of a statement, and of the rules that it leads to at once, as Spark has them."""

PARSED = """
jvm = spark._jvm
parser = jvm.org.apache.spark.sql.catalyst.parser
result = []
for text in {texts!r}:
    stream = parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text))
    lexer = parser.SqlBaseLexer(stream)
    lexer.removeErrorListeners()
    reading = parser.SqlBaseParser(jvm.org.antlr.v4.runtime.CommonTokenStream(lexer))
    reading.removeErrorListeners()
    found, level = [], [reading.compoundOrSingleStatement()]
    for _ in range(5):
        found += [node.getClass().getSimpleName().removesuffix("Context") for node in level]
        level = [node.getChild(i) for node in level for i in range(node.getChildCount())]
    result.append(found)
"""
"""The rules of Spark's grammar that a text is read by, from the outermost on."""

SCRIPTING = re.compile(r"SqlScriptingException: (?:\{LINE:\d+\} )?\[([A-Z_.]+)\]")
"""PySpark gives no condition of what a script is refused with, but the text begins with it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A statement: what happens, and what is there afterwards if it is given."""

    label: str
    outcome: str
    text: str
    check: str | None
    rows: list | None
    prepares: bool = False

    def of(self, place):
        """The case in a place: its schema and its folder have their names."""

        def named(value):
            text = json.dumps(value).replace("$SCHEMA", place.schema)
            return json.loads(text.replace("$FOLDER", str(place.folder)))

        return replace(self, text=named(self.text), check=named(self.check), rows=named(self.rows))


def cases():
    """The cases of the file, in its order."""
    label = ""
    for line in FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            label = line
            continue
        outcome, _, rest = line.strip().partition(" | ")
        prepares, outcome = outcome == "then", "ok" if outcome == "then" else outcome
        statement, check, rows = rest, None, None
        head, separator, expected = rest.rpartition(" | [")
        if separator:
            statement, rows = head, json.loads("[" + expected)
        if " -- " in statement:
            statement, _, check = statement.partition(" -- ")
        yield Case(label, outcome, statement, check, rows, prepares)


CASES = list(cases())


@pytest.fixture
def place(shared_application, tmp_path):
    workplace = Workplace(shared_application, f"statements_{next(_numbers)}", tmp_path)
    for text in (
        "CREATE TABLE t (k INT, v STRING)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE u (k INT, v STRING)",
        "CREATE VIEW v AS SELECT k FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1s', UP TO 2)",
        f"CREATE SINK s FROM m INTO FILES (PATH '{tmp_path}/sink', FORMAT JSON)",
    ):
        workplace.sql(text)
    yield workplace
    for text in (
        "ROLLBACK",
        "USE spark_catalog",
        "CLEAR CACHE",
        "DROP VIEW IF EXISTS tv",
        "DROP VIEW IF EXISTS tu",
        "DROP VIEW IF EXISTS cached",
        "DROP TEMPORARY VARIABLE IF EXISTS y",
    ):
        workplace.sql(text)
    shared_application.sql(f"DROP SCHEMA slackwater.{workplace.schema} CASCADE")


def answer(place, text):
    """The rows of a statement, or the condition with which it fails."""
    try:
        return place.rows(text)
    except SqlError as error:
        in_script = SCRIPTING.search(error.message)
        unnamed = in_script[1] if in_script else f"{error.kind}: {error.message[:200]}"
        return error.condition or unnamed


@pytest.mark.spark
def test_each_alternative_has_a_statement(place):
    labels = place.application.python(LABELS)
    assert len(labels) > 90
    assert sorted(set(labels) - {case.label for case in CASES}) == []
    texts = [case.of(place).text for case in CASES]
    parsed = place.application.python(PARSED.format(texts=texts))
    misplaced = [
        (case.label, case.text, found)
        for case, found in zip(CASES, parsed, strict=True)
        if case.label not in found and not case.prepares
    ]
    assert misplaced == []


@pytest.mark.spark
def test_each_statement_works_or_is_refused_by_name(place):
    wrong = []
    for case in (each.of(place) for each in CASES):
        found = answer(place, case.text)
        outcome = found if isinstance(found, str) else "ok"
        if outcome != case.outcome:
            wrong.append(f"{case.text}: expected {case.outcome}, found {outcome}")
        elif case.rows is not None:
            rows = answer(place, case.check) if case.check else found
            if rows != case.rows:
                wrong.append(f"{case.text}: {case.check}: expected {case.rows}, found {rows}")
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def test_no_refusal_stands_for_a_defect():
    unnamed = ("_LEGACY", "INTERNAL", "SLACKWATER_INTERNAL")
    assert [case for case in CASES if case.outcome.startswith(unnamed)] == []
