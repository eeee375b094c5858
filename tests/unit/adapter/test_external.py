"""The libraries of systems outside, and what is said of them."""

from __future__ import annotations

import sys

import pytest

from slackwater.adapter.external import libraries
from slackwater.repr.errors import SlackwaterError


@pytest.mark.parametrize(
    ("load", "module", "extra"),
    [
        (libraries.confluent_kafka, "confluent_kafka", "kafka"),
        (libraries.psycopg, "psycopg", "postgres"),
        (libraries.boto3, "boto3", "aws"),
    ],
)
def test_a_library_that_is_missing(monkeypatch, load, module, extra):
    assert load().__name__ == module
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SlackwaterError) as missing:
        load()
    assert missing.value.condition == "SLACKWATER_CONNECTOR_MISSING"
    assert missing.value.sqlstate == "0A000"
    assert f"pip install 'slackwater[{extra}]'" in missing.value.message
