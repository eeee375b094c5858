"""Plain Spark SQL gives the same with the jar as without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.applications.application import Application, SqlError, coordinators

pytestmark = pytest.mark.spark

CORPUS = Path(__file__).with_name("plain_corpus.json")

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


def test_corpus_is_the_same_with_and_without_the_jar(tmp_path):
    corpus = json.loads(CORPUS.read_text())
    assert len(corpus) >= 100
    with (
        Application(tmp_path / "with" / "environment", alone=True) as ours,
        Application(tmp_path / "without" / "environment", jar=False) as plain,
    ):
        wanted = run(plain)
        compared = zip(corpus, run(ours), wanted, strict=True)
        assert [each for each in compared if each[1] != each[2]] == []
        for text in ("COMMIT", "ROLLBACK", "DECLARE cursor INT DEFAULT 1"):
            assert ours.rows(text, session="new") == []
        assert coordinators(tmp_path / "with" / "environment") == []
        assert not (tmp_path / "with" / "environment").exists()
        assert sum(isinstance(outcome[0], list) for outcome in wanted) > 80
        with pytest.raises(SqlError, match="Spark runs here without the jar of Slackwater"):
            plain.python(CONFIGURED)


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
