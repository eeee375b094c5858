"""What was run, in two applications and under two leaders, as the system relations show it."""

from __future__ import annotations

import gzip
from contextlib import nullcontext

import pytest
from tests.support.applications.application import Application, SqlError, kill, only_coordinator
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

NAME = "<b>\"Reports\"</b> 'x'"
SLOW = "SELECT k AS slow FROM t WHERE reflect('java.lang.Thread', 'sleep', 600000L) IS NULL"
GROUP = f"""
spark.sparkContext.setJobGroup('slow', 'test', True)
result = [list(row) for row in spark.sql({SLOW!r}).collect()]
"""
CANCEL = "spark.sparkContext.cancelJobGroup('slow')"
PANDAS = "result = len(spark.table('slackwater.default.t').filter('k > 0').toPandas())"
COUNT = "result = spark.sql('SELECT k FROM slackwater.default.t').count()"
WRITE = "result = spark.table('slackwater.default.t').writeTo('slackwater.default.u').append()"
LOG = (
    "SELECT statement_type, finished_status, condition, rows_returned, rows_written, sql"
    " FROM mz_internal.mz_recent_activity_log WHERE session_id = '{}' ORDER BY began_at"
)

RUN = [
    ("CREATE TABLE t (k INT, v STRING)", ("create_table", "success", None, None, None)),
    ("INSERT INTO t VALUES (1, 'a'), (2, 'b')", ("insert", "success", None, None, 2)),
    ("SELECT * FROM t WHERE k = 1", ("select", "success", None, 1, None)),
    ("SELECT raise_error(v) FROM t", ("select", "error", "USER_RAISED_EXCEPTION", None, None)),
    ("UPDATE t SET v = 'c' WHERE k = 2", ("update", "success", None, None, 2)),
    (
        "UPDATE t SET v = raise_error('no')",
        ("update", "error", "USER_RAISED_EXCEPTION", None, None),
    ),
    (
        "INSERT INTO t SELECT 1, raise_error(v) FROM t",
        ("insert", "error", "USER_RAISED_EXCEPTION", None, None),
    ),
    ("CREATE TABLE u AS SELECT * FROM t", ("create_table", "success", None, None, 2)),
    ("CREATE VIEW w AS SELECT k FROM t", ("create_view", "success", None, None, None)),
    ("SELECT * FROM w", ("select", "success", None, 2, None)),
    ("CREATE INDEX ON t (k)", ("create_index", "success", None, None, None)),
    ("SHOW cluster", ("show", "success", None, 1, None)),
    (
        "ALTER SYSTEM SET nothing = 1",
        ("alter_system", "error", "SLACKWATER_UNKNOWN_VARIABLE", None, None),
    ),
    ("BEGIN", ("begin", "success", None, None, None)),
    ("ROLLBACK", ("rollback", "success", None, None, None)),
    (
        "FROM t INSERT INTO t SELECT k, v WHERE k > 9 INSERT INTO u SELECT k, v",
        ("insert", "success", None, None, 2),
    ),
]


def session_of(application, name="main"):
    code = """
session = spark._jsparkSession
result = f"{spark.sparkContext.applicationId}/{session.sessionUUID()}"
"""
    return application.python(code, session=name)


def log(application, session):
    return [(tuple(row[:5]), row[5]) for row in application.rows(LOG.format(session))]


def of_text(application, session, text):
    return [row for row, sql in log(application, session) if sql == text]


def stored(location):
    """All that the files of the history have."""
    files = sorted((location / "history").glob("*.gz"))
    return b"".join(gzip.decompress(file.read_bytes()) for file in files if file.exists())


@pytest.fixture
def location(tmp_path):
    return tmp_path / "environment"


def test_all_that_was_run_is_known_and_the_next_leader_knows_it(location):
    with (
        Application(location, conf={"spark.app.name": NAME}) as leader,
        Application(location) as joined,
    ):
        for application in (leader, joined):
            application.sql("USE slackwater")
        joined.sql("USE slackwater", session="second")
        session, other = session_of(leader), session_of(joined, "second")
        for text, (_, status, *_) in RUN:
            with pytest.raises(SqlError) if status == "error" else nullcontext():
                leader.sql(text)
        wait_until(lambda: dict(RUN)[RUN[-1][0]] in of_text(leader, session, RUN[-1][0]))
        own = [(row, sql) for row, sql in log(leader, session) if "mz_recent" not in sql]
        assert own == [(row, text) for text, row in RUN]
        # Actions of DataFrames, with the text that they began with if there is one.
        for code in (PANDAS, COUNT, WRITE):
            leader.python(code)
        kinds = {row[0] for row, sql in log(leader, session) if sql is None}
        assert kinds == {"dataframe", "dataframe_write"}
        counted = of_text(leader, session, "SELECT k FROM slackwater.default.t")
        assert counted == [("select", "success", None, 1, None)]
        # A joined application, a secret, and one that is cancelled.
        joined.sql("CREATE SECRET s AS 'hunter2'", session="second")
        with pytest.raises(SqlError):
            joined.sql("CREATE SECRET s AS hunter2", session="second")
        running = joined.begin_python(GROUP, session="second")
        wait_until(lambda: of_text(leader, other, SLOW) == [("select", None, None, None, None)])

        def cancelled():
            joined.python(CANCEL)
            return running.is_done

        wait_until(cancelled)
        canceled = ("select", "canceled", "SPARK_JOB_CANCELLED", None, None)
        wait_until(lambda: of_text(leader, other, SLOW) == [canceled])
        shown = [row for row in log(joined, other) if row[0][0] == "create_secret"]
        failed = ("create_secret", "error", "SLACKWATER_SYNTAX_ERROR", None, None)
        assert shown == [
            (("create_secret", "success", None, None, None), "CREATE SECRET s AS '<REDACTED>'"),
            (failed, None),
        ]
        assert leader.rows(
            "SELECT DISTINCT initial_application_name FROM mz_internal.mz_session_history"
            f" WHERE session_id = '{session}'"
        ) == [[NAME]]
        steps = leader.rows(
            "SELECT event_type FROM mz_internal.mz_statement_lifecycle_history l"
            " JOIN mz_internal.mz_recent_activity_log a ON a.execution_id = l.statement_id"
            f" WHERE a.sql = '{RUN[7][0]}' AND session_id = '{session}' ORDER BY occurred_at"
        )
        assert {step for (step,) in steps} >= {
            "execution-began",
            "bound",
            "committed",
            "execution-finished",
        }
        # A leader is killed while something runs: what was stored is there, and that has no end.
        before = {sql for _, sql in log(leader, session)}
        running = joined.begin_python(GROUP.replace("slow FROM", "again FROM"), session="second")
        wait_until(lambda: b"again FROM" in stored(location))
        kill(only_coordinator(location))
        again = SLOW.replace("slow FROM", "again FROM")
        wait_until(lambda: of_text(leader, other, again))
        assert of_text(leader, other, again) == [("select", "aborted", None, None, None)]
        assert {sql for _, sql in log(leader, session)} >= before
        assert of_text(leader, other, SLOW) == [canceled]
        wait_until(cancelled)
        assert b"hunter2" not in stored(location)
