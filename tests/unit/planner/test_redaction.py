"""A definition without its literals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.planner.parser.redaction import redacted

LITERALS = (
    "'secret'",
    '"secret"',
    "'sec''secret'",
    r"'it\'s secret'",
    "r'secret'",
    'R"secret"',
    "x'5ec2e7'",
    "X'5EC2E7'",
    "N'secret'",
    "DATE'2020-01-02'",
    "INTERVAL '73' DAY",
    "'sec' 'secret'",
    "7373",
    "7373L",
    "73.73BD",
    ".7373",
    "7373e-3",
    "0x7373",
    "-7373",
    "'secret",
)
TRACES = ("secret", "5ec2e7", "2020", "73")


@pytest.mark.parametrize("literal", LITERALS)
def test_no_literal_is_left(literal):
    shown = redacted(f"CREATE VIEW `v` AS SELECT {literal} AS x").lower()
    assert shown.startswith("create view `v` as select")
    assert "'<redacted>'" in shown
    assert not any(trace in shown for trace in TRACES)


def test_names_and_words_stay():
    text = "CREATE SOURCE `a'b`.`secret` FROM FILES (PATH '/x', FORMAT CSV, HEADER TRUE)"
    shown = "CREATE SOURCE `a'b`.`secret` FROM FILES (PATH '<REDACTED>', FORMAT CSV, HEADER TRUE)"
    assert redacted(text) == shown


def test_comments_go():
    text = "SELECT a, -- the key is 7373\n b /* 'secret' */ FROM t"
    assert redacted(text) == "SELECT a, b FROM t"


def test_redacted_again_it_is_the_same():
    once = redacted("CREATE VIEW `v` AS SELECT 'a', 1 + x'00'")
    assert redacted(once) == once


@given(
    st.lists(st.sampled_from(LITERALS[:-1]), min_size=1), st.sampled_from([" ", "\n", ", ", "+"])
)
def test_no_literals_are_left(literals, between):
    shown = redacted(f"SELECT f({between.join(literals)}) AS `n`").lower()
    assert not any(trace in shown for trace in TRACES)
