"""Statements and what they parse to, or the error with its position.

``SLACKWATER_REWRITE=1 pytest`` writes the expectations anew; read the difference before
committing it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.parse import parse
from slackwater.planner.parser.statements import AlterSecret, CreateSecret
from slackwater.repr.errors import SlackwaterError

FOLDER = Path(__file__).parent / "statements"
STATEMENTS = [line for line in (FOLDER / "input.sql").read_text().splitlines() if line]
EXPECTED = FOLDER / "expected.txt"


def hides_text(text: str) -> bool:
    return re.match("(CREATE|ALTER)( OR REPLACE)? (CONNECTION|SECRET s AS)", text) is not None


def outcome(text: str) -> str:
    try:
        statement = parse(text)
    except SlackwaterError as error:
        position = error.position
        # With a position, clients would show the text of a statement that may have a password.
        assert (position is None) == hides_text(text), text
        at = "-" if position is None else f"{position.line}:{position.column}"
        message = error.message.replace("\n", " ")
        return f"{at} {error.condition} {message}"
    if statement is None:
        return "Spark"
    canonical = to_sql(statement)
    assert parse(canonical) == statement
    return f"{statement!r}\n  {canonical}"


def record(text: str) -> str:
    return f"{text}\n  {outcome(text)}\n"


def expectations() -> dict[str, str]:
    if not EXPECTED.exists():
        return {}
    blocks = EXPECTED.read_text().split("\n\n")
    return {block.splitlines()[0]: block.strip() + "\n" for block in blocks if block.strip()}


def test_rewrite() -> None:
    if os.environ.get("SLACKWATER_REWRITE"):
        EXPECTED.write_text("\n".join(record(text) for text in STATEMENTS))
    assert list(expectations()) == STATEMENTS


@pytest.mark.parametrize("text", STATEMENTS)
def test_statement(text: str) -> None:
    assert record(text) == expectations().get(text)


@pytest.mark.parametrize("text", ["", " ", ";", "-- only a comment", "/* x */", "select 1", "("])
def test_spark_keeps_the_rest(text: str) -> None:
    assert parse(text) is None


def test_position_counts_lines_and_columns() -> None:
    with pytest.raises(SlackwaterError) as caught:
        parse("-- first\n  CREATE SOURCE s\n   FROM FILES (PATH 'a',\n  OOPS 1)")
    position = caught.value.position
    assert position is not None
    assert (position.line, position.column) == (4, 2)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SECRET s AS concat('hidden')",
        "CREATE SECRET s AS 'a' || 'hidden'",
        "CREATE SECRET s AS 'hidden",
        "CREATE SECRET s 'hidden'",
        "CREATE SECRET 'hidden'",
        "CREATE SECRET s AS hidden",
        "ALTER SECRET s AS 'a' hidden",
        "ALTER SECRET s AS hidden",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SASL PASSWORD 'hidden')",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SASL PASSWORD = hidden)",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SASL PASWORD hidden)",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SASL PASSWORD 'hidden",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SASL MECHANISMS 'hidden')",
        "CREATE CONNECTION c TO KAFKA (BROKER 'hidden@h')",
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', PROGRESS TOPIC REPLICATION FACTOR hidden)",
        "CREATE CONNECTION c TO MYSQL (PASSWORD 'hidden')",
        "CREATE CONNECTION c TO POSTGRES (USER 'u', PASSWORD SECRET p, PORT 'hidden')",
        "CREATE CONNECTION c TO AWS (SECRET ACCESS KEY 'hidden')",
        "CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'http://u:hidden@h')",
        "CREATE CONNECTION c TO AWS () hidden",
        "ALTER CONNECTION c SET (SSL KEY 'hidden')",
        "ALTER CONNECTION c SET (HOST 'h') WITH (VALIDATE = hidden)",
        "ALTER CONNECTION c SET (HOST 'h', HOST 'hidden')",
        "ALTER CONNECTION c SET hidden",
    ],
)
def test_a_secret_stays_out_of_the_error(text: str) -> None:
    with pytest.raises(SlackwaterError) as caught:
        parse(text)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("statement", ["CREATE SECRET s AS", "ALTER SECRET s AS"])
def test_a_secret_is_in_no_text_of_its_statement(statement: str) -> None:
    secret = parse(f"{statement} 'hidden'")
    assert isinstance(secret, CreateSecret | AlterSecret)
    assert secret.value == b"hidden"
    assert "hidden" not in repr(secret)
    assert "hidden" not in to_sql(secret)
