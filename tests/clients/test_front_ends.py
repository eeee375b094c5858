"""One script through every front end: the same rows, the same errors."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.applications.application import (
    Application,
    SqlError,
    kill,
)
from tests.support.applications.class_archive import SHORT_LIVED
from tests.support.applications.spark_servers import (
    beeline,
    command,
    environment,
    jvm_below,
    server,
)
from tests.support.applications.terminals import at_terminal
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).with_name("script.sql")
SHOWING = ("SELECT", "SHOW", "EXPLAIN", "WITH", "DESCRIBE")
MARK = "@@"
_ERROR = re.compile(r"\[([A-Z_]+(?:\.[A-Z_]+)?)\].*?SQLSTATE: (\w{5})", re.DOTALL)
_TIMES = re.compile(r"\b\d{13}\b|\d{4}-\d\d-\d\d[ T][\d:.]+|\b[us]\d+\b")


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    error: tuple[str, str] | None

    @property
    def shows(self):
        return self.text.lstrip().upper().startswith(SHOWING)


def statements():
    found = []
    for text in SCRIPT.read_text().split(";\n"):
        marked = re.search(r"-- @error (\S+) (\S+)", text)
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        body = "\n".join(lines).strip()
        if body:
            found.append(Statement(body, (marked[1], marked[2]) if marked else None))
    return found


def normalised(cell):
    """Times and ids differ from run to run; NULL and booleans are written differently."""
    if cell is None:
        return "NULL"
    if isinstance(cell, bool):
        return str(cell).lower()
    # beeline puts NUL around a cell that has line ends.
    return re.sub(r"\s+", " ", _TIMES.sub("#", str(cell).replace("\0", ""))).strip()


def over_pyspark(application):
    """What each statement gave: its rows as texts, or its error."""
    outcomes = []
    for statement in statements():
        try:
            result = application.sql(statement.text)
            rows = [" ".join(normalised(cell) for cell in row) for row in result.rows]
            outcomes.append(" ".join(rows) if statement.shows else "")
        except SqlError as error:
            outcomes.append((error.condition, error.sqlstate))
    return outcomes


def from_text(output):
    """The outcomes in the output of a shell, from one mark to the next."""
    outcomes = []
    for statement, part in zip(statements(), split_at_marks(output), strict=True):
        error = _ERROR.search(part)
        if error is not None:
            outcomes.append((error[1], error[2]))
        elif statement.shows:
            outcomes.append(part)
        else:
            outcomes.append("")
    return outcomes


def split_at_marks(output):
    parts = re.split(rf"^.*{MARK} (\d+) {MARK}.*$\n?", output, flags=re.MULTILINE)
    assert len(parts) == 2 * len(statements()) + 1, output[-3000:]
    return parts[0:-1:2]


def marked_script(path):
    lines = []
    for number, statement in enumerate(statements()):
        lines.append(f"{statement.text};")
        lines.append(f"SELECT '{MARK} {number} {MARK}';")
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of_shell(outcomes, null="NULL"):
    """Texts of shells in the form of `over_pyspark`."""
    found = []
    for outcome in outcomes:
        if isinstance(outcome, tuple):
            found.append(outcome)
            continue
        rows = [line for line in outcome.splitlines() if line.strip()]
        found.append(
            " ".join(" ".join(normalised(cell) for cell in row.split("\t")) for row in rows)
        )
    return found


def explanation(text):
    """Without blanks, as beeline leaves out the line ends of a cell, and without what varies.

    Whether a query could answer at once depends on the tick that may just be under way.
    """
    return re.sub(r"immediately:(true|false)", "immediately:", text.replace(" ", ""))


def check(outcomes, wanted):
    for statement, outcome, expected in zip(statements(), outcomes, wanted, strict=True):
        if statement.text.startswith("EXPLAIN TIMESTAMP"):
            outcome, expected = explanation(outcome), explanation(expected)
        assert outcome == expected, statement.text
    assert not any("Traceback" in str(outcome) for outcome in outcomes)


@pytest.fixture(scope="module")
def reference(shared_application):
    """What PySpark gives; the errors are those that the script states."""
    outcomes = over_pyspark(shared_application)
    for statement, outcome in zip(statements(), outcomes, strict=True):
        if statement.error is not None or isinstance(outcome, tuple):
            assert outcome == statement.error, statement.text
    shared_application.sql("USE spark_catalog.default")
    return outcomes


def test_pyspark_gives_the_right_rows(reference):
    found = {}
    for statement, outcome in zip(statements(), reference, strict=True):
        found.setdefault(statement.text, []).append(outcome)
    revenue = found["SELECT * FROM revenue ORDER BY country"]
    assert revenue == ["at 2 12.50 de 1 5.25", "at 2 14.50", "ch 2 14.50"]
    totals = ["3 17.75", "3 19.75", "3 15.50", ("TABLE_OR_VIEW_NOT_FOUND", "42P01")]
    assert found["SELECT * FROM total"] == totals
    assert found["SELECT 1 AS of"] == ["1"]
    assert "revenue" in found["SHOW MATERIALIZED VIEWS"][0]


def test_spark_sql(reference, tmp_path):
    script = marked_script(tmp_path / "script.sql")
    done = subprocess.run(
        command(
            "sql",
            tmp_path / "environment",
            "--conf",
            "spark.hadoop.hive.cli.errors.ignore=true",
            "-f",
            str(script),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=len(statements()) * PATIENCE,
        check=False,
    )
    output = "\n".join(
        line
        for line in done.stdout.splitlines()
        if not line.startswith(("Time taken", "NOTICE", "WARNING"))
    )
    check(rows_of_shell(from_text(output)), reference)


def is_waiting(pid):
    """Whether a query waits for its time of reading, as the stacks of a driver's threads say."""
    command = ["jstack", *(f"-J{option}" for option in SHORT_LIVED.split()), str(pid)]
    stacks = subprocess.run(command, capture_output=True, text=True, check=False)
    return any(
        "slackwater.binding.normalization.Binding" in stack
        and "slackwater.process.Connection.receive" in stack
        for stack in stacks.stdout.split("\n\n")
    )


def waiting_script():
    """Statements of which one waits for an hour, if nobody ends it."""
    later = int(time.time() * 1000) + 3_600_000
    return f"""
CREATE TABLE IF NOT EXISTS slackwater.default.waited (k INT);
SET slackwater.statement_timeout = '1h';
SELECT k FROM slackwater.default.waited AS OF {later};
"""


@pytest.mark.nightly
def test_ctrl_c_in_spark_sql(tmp_path):
    """Who types at the shell sees what a statement waits for, and may end it."""
    with at_terminal(command("sql", tmp_path / "environment"), tmp_path) as terminal:
        terminal.type(waiting_script())
        terminal.shows("waited is 3,")
        terminal.shows(" s behind the time of the read.")
        os.kill(jvm_below(terminal.process), signal.SIGINT)
        terminal.shows("[SLACKWATER_CANCELED]")
        assert re.search(r"\r {30,}\r.*\[SLACKWATER_CANCELED\]", terminal.seen, re.DOTALL)
        terminal.type("SELECT 'still ' || 'here';\n")
        terminal.shows("still here")


@pytest.fixture(scope="module")
def thrift_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("thrift")
    with server("thriftserver", folder / "environment", folder) as served:
        yield served


def test_thrift(reference, thrift_server, tmp_path):
    script = marked_script(tmp_path / "script.sql")
    shell = beeline(thrift_server.port, tmp_path, "-f", str(script))
    output, _ = shell.communicate(timeout=len(statements()) * PATIENCE)
    check(rows_of_shell(from_text(output)), reference)


def test_ctrl_c_in_beeline(thrift_server, tmp_path):
    """Beeline goes on afterwards, and prints notices: it fetches the log of an operation.

    Another server that ends takes all logs along that lie where Hive has them.
    """
    script = tmp_path / "waiting.sql"
    noticed = "USE slackwater.default;\nBEGIN;\nBEGIN;\nCOMMIT;\n"
    script.write_text(f"{waiting_script()}{noticed}SELECT 'still ' || 'here';\n")
    process = beeline(thrift_server.port, tmp_path, "--silent=false", "-f", str(script))
    jvm = thrift_server.jvm
    try:
        wait_until(lambda: is_waiting(jvm), what="the wait")
        shutil.rmtree(f"/tmp/{getpass.getuser()}/operation_logs", ignore_errors=True)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: not is_waiting(jvm), what="the end of the wait")
        output, _ = process.communicate(timeout=PATIENCE)
        assert "still here" in output
        assert "WARNING: There is a transaction in progress already." in output
    finally:
        kill(process.pid)


@pytest.fixture(scope="module")
def connect_client(tmp_path_factory):
    """A client of a Connect server, and the server."""
    folder = tmp_path_factory.mktemp("connect")
    with (
        server("connect", folder / "environment", folder) as served,
        Application(folder / "client" / "none", remote=f"sc://127.0.0.1:{served.port}") as client,
    ):
        yield client, served


def test_connect(reference, connect_client):
    client, _ = connect_client
    check(over_pyspark(client), reference)
    time = noticed(client)
    # No call goes from the server to this program: it asks.
    code = "slackwater.warn_of_notices(spark)\nresult = str(slackwater.notices(spark)[-1])"
    assert time in client.python(f"import slackwater\n{code}")


INTERRUPTED = """
import threading

def fetch():
    global result
    spark.addTag('mine')
    try:
        result = str(spark.sql('FETCH ALL cc').collect())
    except Exception as error:
        result = str(error)

thread = threading.Thread(target=fetch)
thread.start()
while thread.is_alive():
    thread.join(0.2)
    """


@pytest.mark.parametrize("interrupt", ["spark.interruptAll()", "spark.interruptTag('mine')"])
def test_interrupts_of_connect(connect_client, interrupt):
    client, _ = connect_client
    client.sql("USE slackwater.default")
    client.sql("CREATE TABLE waited (k INT)")
    client.sql("DECLARE cc CURSOR FOR SUBSCRIBE waited WITH (snapshot = false)")
    message = client.python(INTERRUPTED + interrupt)
    assert "OPERATION_CANCELED" in message
    client.sql("INSERT INTO waited VALUES (1)")
    assert len(client.rows("FETCH ALL cc")) == 1, "the FETCH that was interrupted took nothing"
    client.sql("CLOSE cc")
    client.sql("DROP TABLE waited")


def test_a_python_program_shows_notices(workplace):
    time = noticed(workplace.application, session="noticed")
    wait_until(
        lambda: time in workplace.application.log.read_text(),
        what="the notice on standard error",
    )


def noticed(application, session="main"):
    """The time in the notice about a read, which SHOW NOTICES has shown."""
    application.sql("USE slackwater.default", session=session)
    application.sql("SET emit_timestamp_notice = 'on'", session=session)
    application.sql("CREATE TABLE noticed (k INT)", session=session)
    application.sql("SELECT * FROM noticed", session=session)
    (severity, _, message, _) = application.rows("SHOW NOTICES", session=session)[-1]
    application.sql("DROP TABLE noticed", session=session)
    assert severity == "NOTICE"
    return re.search(r"\d{13}", message)[0]
