"""AS OF at the end of a query, and what only looks like it."""

from __future__ import annotations

import pytest

from slackwater.planner.parser.parse import parse
from slackwater.repr.errors import SlackwaterError

DECLARE = "DECLARE c CURSOR FOR "

ALIASES = [
    "SELECT 1 AS of",
    "SELECT 1 AS of FROM t",
    "SELECT 1 AS of, 2 AS b",
    "SELECT * FROM range(2) AS OF (n)",
    "SELECT * FROM t AS OF (a, `b`)",
    "SELECT * FROM t AS of WHERE (x)",
    "SELECT * FROM t AS of LEFT JOIN u ON a = b",
    "SELECT * FROM t AS of ORDER BY 1",
    "SELECT * FROM t AS of, u",
    "SELECT 1 AS of UNION SELECT 2",
    "SELECT * FROM t VERSION AS OF 3",
    "SELECT * FROM t FOR SYSTEM_TIME AS OF '2020-01-01'",
    "SELECT * FROM t TIMESTAMP AS OF '2020-01-01'",
    "SELECT * FROM (SELECT * FROM t AS OF 5)",
    "SELECT 'x AS OF 5'",
    "SELECT 1 -- AS OF 5",
    "FROM t |> AS of |> LIMIT 1",
]


@pytest.mark.parametrize("text", ALIASES)
def test_stays_with_the_query(text: str) -> None:
    assert parse(DECLARE + text).statement.as_of is None


@pytest.mark.parametrize(
    ("text", "query", "kind", "expression"),
    [
        ("SELECT * FROM t AS OF 5", "SELECT * FROM t", "at", "5"),
        ("SELECT * FROM t AS OF (5);", "SELECT * FROM t", "at", "(5)"),
        ("SELECT 1 as of as of at least 7", "SELECT 1 as of", "at_least", "7"),
        ("SELECT 1 AS OF left('1', 1)", "SELECT 1", "at", "left('1', 1)"),
        (
            "SELECT * FROM t VERSION AS OF 1 AS OF now() - INTERVAL 1 DAY",
            "SELECT * FROM t VERSION AS OF 1",
            "at",
            "now() - INTERVAL 1 DAY",
        ),
        ("SELECT * FROM version AS OF 5", "SELECT * FROM version", "at", "5"),
        ("SELECT * FROM s.timestamp AS OF 5", "SELECT * FROM s.timestamp", "at", "5"),
        ("SELECT 1 AS/**/OF -- c\n 5 -- d", "SELECT 1", "at", "5"),
    ],
)
def test_splits(text: str, query: str, kind: str, expression: str) -> None:
    found = parse(DECLARE + text).statement
    as_of = found.as_of
    assert as_of is not None
    assert (found.text.text, as_of.kind, as_of.expression.text) == (query, kind, expression)
    assert (DECLARE + text)[as_of.expression.start :].startswith(expression)


@pytest.mark.parametrize("text", ["", "SELECT (1", "SELECT 'a", "SELECT 1)"])
def test_refuses_what_is_not_closed(text: str) -> None:
    with pytest.raises(SlackwaterError) as caught:
        parse(DECLARE + text)
    assert caught.value.condition == "SLACKWATER_SYNTAX_ERROR"
