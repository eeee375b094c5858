"""Spark's whole grammar of statements over our objects: each works, is kept, or is refused.

`spark_statements.txt` says what happens. A refusal has a condition of ours, or one of Spark's own
for users: none that stands for a defect, and none without a name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.fixtures import Workplace

FILE = Path(__file__).parent / "spark_statements.txt"
SCHEMA = "statements"

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

    def placed(self, text, folder):
        return text.replace("$SCHEMA", SCHEMA).replace("$FOLDER", str(folder))


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
            statement, rows = head, json.loads("[" + expected.replace("$SCHEMA", SCHEMA))
        if " -- " in statement:
            statement, _, check = statement.partition(" -- ")
        yield Case(label, outcome, statement, check, rows, prepares)


CASES = list(cases())


@pytest.fixture(scope="module")
def place(shared_application, tmp_path_factory):
    folder = tmp_path_factory.mktemp("statements")
    workplace = Workplace(shared_application, SCHEMA, folder)
    for text in (
        "CREATE TABLE t (k INT, v STRING)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE u (k INT, v STRING)",
        "CREATE VIEW v AS SELECT k FROM t",
        "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) AS n FROM t GROUP BY k",
        "CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1s', UP TO 2)",
        f"CREATE SINK s FROM m INTO FILES (PATH '{folder}/sink', FORMAT JSON)",
    ):
        workplace.sql(text)
    yield workplace
    for text in ("ROLLBACK", "USE spark_catalog", "CLEAR CACHE", "DROP VIEW IF EXISTS tv, tu"):
        answer(workplace, text)
    shared_application.sql(f"DROP SCHEMA slackwater.{SCHEMA} CASCADE")


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
    texts = [case.placed(case.text, place.folder) for case in CASES]
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
    for case in CASES:
        text = case.placed(case.text, place.folder)
        found = answer(place, text)
        outcome = found if isinstance(found, str) else "ok"
        if outcome != case.outcome:
            wrong.append((text, f"expected {case.outcome}", outcome))
        elif case.rows is not None:
            check = case.check and case.placed(case.check, place.folder)
            rows = answer(place, check) if check else found
            if rows != case.rows:
                wrong.append((text, check, rows))
    assert wrong == [], "\n".join(map(str, wrong))


def test_no_refusal_stands_for_a_defect():
    unnamed = ("_LEGACY", "INTERNAL", "SLACKWATER_INTERNAL")
    assert [case for case in CASES if case.outcome.startswith(unnamed)] == []
