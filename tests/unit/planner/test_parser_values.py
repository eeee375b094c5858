"""Durations, names, tokens, variables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.planner.parser.durations import format_duration, parse_duration
from slackwater.planner.parser.names import QualifiedName, is_elsewhere, resolve, resolve_schema
from slackwater.planner.parser.parameters import PARAMETERS
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.statements import is_spark_grammar
from slackwater.planner.parser.tokens import Kind, tokenize
from slackwater.planner.parser.variables import KNOWN_NAMES, VARIABLES, assign
from slackwater.repr.errors import SlackwaterError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 500),
        ("1 hour", 3_600_000),
        ("1m30s", 90_000),
        ("1 day 2 hours", 93_600_000),
        ("INTERVAL 1.5 seconds", 1500),
        (".5s", 500),
        ("01:30:00.5", 5_400_500),
        ("1 day 00:00:01", 86_401_000),
        ("1000us", 1),
        ("0s", 0),
        ("2 Weeks", 1_209_600_000),
    ],
)
def test_duration(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "1",
        "s",
        "1 month",
        "1 parsec",
        "-1s",
        "1us",
        "00:61:00",
        "1s x",
        "9" * 50 + "s",
        "1e3s",
        "9223372036854775808 ms",
        "interval",
        "\u0661s",
    ],
)
def test_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_duration(text)


@given(st.integers(0, 2**63 - 1))
def test_duration_round_trip(value: int) -> None:
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    ("parts", "catalog", "namespace", "expected"),
    [
        (("t",), "slackwater", (), ("default", "t")),
        (("t",), "slackwater", ("s",), ("s", "t")),
        (("s", "T"), "slackwater", ("x",), ("s", "T")),
        (("slackwater", "s", "t"), "spark_catalog", ("default",), ("s", "t")),
        (("slackwater", "t"), "spark_catalog", ("x",), ("default", "t")),
    ],
)
def test_resolve(
    parts: tuple[str, ...], catalog: str, namespace: tuple[str, ...], expected: tuple[str, str]
) -> None:
    name = QualifiedName(parts)
    assert resolve(name, catalog, namespace) == expected
    assert not is_elsewhere(name, catalog)


@pytest.mark.parametrize(
    ("parts", "catalog", "condition"),
    [
        (("t",), "spark_catalog", "SLACKWATER_WRONG_CATALOG"),
        (("s", "t"), "spark_catalog", "SLACKWATER_WRONG_CATALOG"),
        (("spark_catalog", "t"), "slackwater", "SLACKWATER_WRONG_CATALOG"),
        (("ice", "s", "t"), "slackwater", "SLACKWATER_WRONG_CATALOG"),
        (("slackwater", "a", "b", "t"), "slackwater", "SLACKWATER_SCHEMA_NOT_FOUND"),
    ],
)
def test_resolve_elsewhere(parts: tuple[str, ...], catalog: str, condition: str) -> None:
    with pytest.raises(SlackwaterError) as caught:
        resolve(QualifiedName(parts), catalog, (), statement="DROP TABLE")
    assert caught.value.condition == condition
    assert is_elsewhere(QualifiedName(parts), catalog) == (condition == "SLACKWATER_WRONG_CATALOG")


def test_resolve_schema() -> None:
    assert resolve_schema(QualifiedName(("s",)), "slackwater") == "s"
    assert resolve_schema(QualifiedName(("slackwater", "s")), "spark_catalog") == "s"
    with pytest.raises(SlackwaterError):
        resolve_schema(QualifiedName(("s",)), "spark_catalog")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", "it's"),
        (r"'a\'b\\'", "a'b\\"),
        (r"'x\%\n'", "x\\%\n"),
        ('"a""b\'\'"', "a\"b''"),
        (r"'\u00e9\101'", "éA"),
        ("r'a\\n'", "a\\n"),
        ("''''", "'"),
        ("''", ""),
    ],
)
def test_string_literal(text: str, value: str) -> None:
    string, end = tokenize(text)
    assert (string.kind, string.text, end.kind) == (Kind.STRING, value, Kind.END)


@pytest.mark.parametrize(
    ("text", "offset"), [("a 'b", 2), ("a /* b", 2), ("a 'b' `c", 6), ("'x''y' /* 'q' */ \"z", 17)]
)
def test_unterminated(text: str, offset: int) -> None:
    broken = tokenize(text)[-2]
    assert (broken.kind, broken.start) == (Kind.BROKEN, offset)


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("transaction_isolation", "Strict  SERIALIZABLE", "strict serializable"),
        ("slackwater.transaction_isolation", "read committed", "serializable"),
        ("STATEMENT_TIMEOUT", "1 min", "60000 ms"),
        ("statement_timeout", "5000", "5000 ms"),
        ("cluster", "QuickStart", "QuickStart"),
        ("emit_timestamp_notice", "true", "on"),
        ("cluster", None, "quickstart"),
    ],
)
def test_variable(name: str, value: str | None, stored: str) -> None:
    assert assign(name, value).value == stored


@pytest.mark.parametrize(
    ("name", "value", "condition"),
    [
        ("transaction_isolation", "chaos", "SLACKWATER_INVALID_VARIABLE"),
        ("cluster", "", "SLACKWATER_INVALID_VARIABLE"),
        ("statement_timeout", "soon", "SLACKWATER_INVALID_VARIABLE"),
        ("mz_version", "1", "SLACKWATER_READ_ONLY_VARIABLE"),
        ("search_path", "a", "SLACKWATER_UNSUPPORTED"),
        ("nonsense", "a", "SLACKWATER_UNKNOWN_VARIABLE"),
    ],
)
def test_variable_refused(name: str, value: str, condition: str) -> None:
    with pytest.raises(SlackwaterError) as caught:
        assign(name, value)
    assert caught.value.condition == condition


def test_weaker_isolation_levels_give_a_notice() -> None:
    assert assign("transaction_isolation", "repeatable read").notice
    assert assign("transaction_isolation", "serializable").notice is None


def test_defaults_are_canonical() -> None:
    for variable in VARIABLES.values():
        if not variable.read_only:
            assert variable.parse(variable.default).value == variable.default


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE VIEW v AS SELECT 1", True),
        ("DROP TABLE t", True),
        ("DROP TABLE a, b", False),
        ("DROP VIEW v CASCADE", False),
        ("DROP SCHEMA s CASCADE", True),
        ("DROP SINK s", False),
        ("ALTER TABLE t RENAME TO u", True),
        ("ALTER SOURCE t RENAME TO u", False),
        ("SHOW VIEWS", True),
        ("BEGIN", False),
    ],
)
def test_spark_grammar(text: str, expected: bool) -> None:
    statement = parse(text)
    assert statement is not None
    assert is_spark_grammar(statement) is expected


def test_the_shim_knows_the_variables_that_the_parser_knows() -> None:
    parser = "jvm_shim/src/main/scala/org/apache/spark/sql/slackwater/parser"
    text = (Path(__file__).parents[3] / parser / "StatementClassifier.scala").read_text()
    listed = text.partition("val variables = Set(")[2].partition(")")[0]
    assert set(re.findall(r'"(\w+)"', listed)) == KNOWN_NAMES | PARAMETERS.keys()
