"""What `slackwater sql` lets the JVM write beside answers."""

import os
from pathlib import Path

import pytest

from slackwater import cli


@pytest.fixture(autouse=True)
def nobody_has_said(monkeypatch):
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)


def test_errors_alone_and_what_slackwater_says(monkeypatch):
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m")
    option, given = cli._quiet_log()["SPARK_SUBMIT_OPTS"].split()
    assert given == "-Xss4m"
    log = Path(option.removeprefix("-Dlog4j2.configurationFile=file:")).read_text()
    assert "rootLogger.level = error" in log
    assert "logger.console.level = info" in log


def test_a_log_of_the_users_own_counts(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert cli._quiet_log()
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert cli._quiet_log() == {}


def started(monkeypatch, *, terminal):
    seen = {}
    monkeypatch.setattr(cli, "_become", lambda *given: seen.update(given=given))
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    cli.sql(execute="SELECT 1")
    program, arguments, _ = seen["given"]
    assert program == "spark-sql"
    return arguments


@pytest.mark.parametrize("terminal", [True, False])
def test_people_see_headers_and_programs_rows_alone(monkeypatch, terminal):
    wanted = f"spark.sql.cli.print.header={str(terminal).lower()}"
    assert wanted in started(monkeypatch, terminal=terminal)


@pytest.mark.parametrize(("given", "taken"), [("C", "C.UTF-8"), ("tr_TR.UTF-8", "tr_TR.UTF-8")])
def test_a_shell_takes_statements_for_utf_8(monkeypatch, given, taken):
    seen = {}
    monkeypatch.setenv("LC_ALL", given)
    monkeypatch.setattr(os, "execvpe", lambda *_: seen.update(environment=_[2]))
    cli._become("spark-sql", [])
    assert seen["environment"]["LC_ALL"] == taken
