"""Plain Spark SQL gives the same with the jar as without it.

`SLACKWATER_REWRITE=1` with `-m nightly` writes down anew what it gives without.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support.applications.application import Application, SqlError, coordinators

pytestmark = pytest.mark.spark

CORPUS = Path(__file__).with_name("plain_corpus.json")
OUTCOMES = Path(__file__).with_name("plain_outcomes.json")

CONFIGURED = """
import slackwater
slackwater.configure(spark.builder).getOrCreate()
"""
"""What a user of a notebook may do whose session was there before."""


def run(application):
    outcomes = []
    for entry in json.loads(CORPUS.read_text()):
        text, args = (entry, None) if isinstance(entry, str) else (entry["sql"], entry["args"])
        try:
            result = application.sql(text, args=args)
            outcomes.append([list(result.columns), result.rows])
        except SqlError as error:
            outcomes.append([error.kind, error.condition, error.sqlstate])
    return outcomes


def test_corpus_is_the_same_with_the_jar(tmp_path):
    corpus, wanted = json.loads(CORPUS.read_text()), json.loads(OUTCOMES.read_text())
    with Application(tmp_path / "environment", alone=True) as ours:
        compared = zip(corpus, run(ours), wanted, strict=True)
        assert [each for each in compared if each[1] != each[2]] == []
        for text in ("COMMIT", "ROLLBACK", "DECLARE cursor INT DEFAULT 1"):
            assert ours.rows(text, session="new") == []
        assert coordinators(tmp_path / "environment") == []
        assert not (tmp_path / "environment").exists()


@pytest.mark.nightly
def test_corpus_is_written_down_as_it_is_without_the_jar(tmp_path):
    with Application(tmp_path / "environment", jar=False) as plain:
        found = run(plain)
        with pytest.raises(SqlError, match="Spark runs here without the jar of Slackwater"):
            plain.python(CONFIGURED)
    if "SLACKWATER_REWRITE" in os.environ:
        OUTCOMES.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert len(found) >= 100
    assert sum(isinstance(outcome[0], list) for outcome in found) > 80
    assert found == json.loads(OUTCOMES.read_text())


@pytest.mark.nightly
def test_switched_off_it_is_not_there(tmp_path):
    location = tmp_path / "off" / "environment"
    with Application(location, conf={"spark.slackwater.enabled": "false"}, alone=True) as off:
        for text, condition in (
            ("SELECT mz_now()", "UNRESOLVED_ROUTINE"),
            ("USE slackwater", "SCHEMA_NOT_FOUND"),
            ("SHOW SOURCES", "PARSE_SYNTAX_ERROR"),
            ("COMMIT", "INVALID_STATEMENT_OR_CLAUSE"),
            ("BEGIN", "PARSE_SYNTAX_ERROR"),
            ("SELECT 1 AS OF 5", "PARSE_SYNTAX_ERROR"),
        ):
            with pytest.raises(SqlError) as refused:
                off.sql(text)
            assert refused.value.condition == condition, text
        assert "slackwater" not in [row[0] for row in off.rows("SHOW CATALOGS")]
        assert coordinators(location) == []
        assert not location.exists()
