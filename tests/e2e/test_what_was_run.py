"""What was run, in two applications and under two leaders, as the system relations show it."""

from __future__ import annotations

import gzip
from contextlib import nullcontext

import pytest
from tests.support.applications.application import Application, SqlError, kill, only_coordinator
from tests.support.applications.indexed import hydrated, leading_and_joined
from tests.support.applications.stopped import stopped
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


STRATEGY = (
    "SELECT execution_strategy, finished_status"
    " FROM slackwater.mz_internal.mz_recent_activity_log"
    " WHERE sql = {!r} AND database_name = 'slackwater' AND search_path = array({!r})"
    " ORDER BY began_at"
)
"""Of a text in a schema: others may have run the same one in theirs."""


def strategies(place, text, runs):
    """How each of so many runs of the text in the place has read, once they have ended."""

    def ended():
        found = place.rows(STRATEGY.format(text, place.schema))
        assert len(found) <= runs
        return found if [row[-1] for row in found] == ["success"] * runs else None

    found = wait_until(ended, what=f"the end of {text}")
    return {row[0] for row in found}


TEXT = "SELECT v AS read FROM t WHERE k = 2"
ACTIONS = f"""
rows = spark.sql({TEXT!r})
result = [len(rows.toPandas()), len(rows.collect()), rows.count(), len(rows.take(1))]
"""
SERIALIZABLE = "SET transaction_isolation = 'serializable'"
READS = {
    "SELECT v FROM t WHERE k = 1": "fast-path",
    "SELECT v FROM t WHERE k IN (1, 7) AND v > 0": "fast-path",
    "SELECT count(*) FROM t a JOIN t b ON a.v = b.k WHERE a.k = 1": "fast-path",
    "SELECT n, v FROM VALUES (1, 'x') AS p(k, n) JOIN t ON t.k = p.k": "fast-path",
    "SELECT s FROM totals WHERE s > 1 AND k < 5": "fast-path",
    "SELECT count(*), sum(s) FROM totals": "fast-path",
    # No index serves these, or not all of them.
    "SELECT v FROM t WHERE v = 1": "standard",
    "SELECT k FROM u WHERE k = 1": "standard",
    "SELECT t.v, u.w FROM t JOIN u ON u.k = t.k WHERE t.k = 1": "standard",
    "SELECT t.v FROM t JOIN u ON u.w = t.k WHERE u.v < 5": "standard",
    "SELECT v FROM t WHERE k = 1 UNION ALL SELECT w FROM u": "standard",
    "SELECT v FROM t WHERE k = (SELECT min(k) FROM u)": "standard",
    "SELECT count(*) FROM slackwater.mz_catalog.mz_tables": "standard",
    "SELECT sum(v) FROM kept": "standard",
    # An index would serve these, but for how many rows there are when they run.
    "SELECT count(*) FROM t WHERE k = 3": "standard",
    "SELECT count(v) FROM (SELECT explode(sequence(1, 20000)) AS k) JOIN t USING (k)": "standard",
    # Nothing is read.
    "SELECT v FROM t WHERE false": "constant",
    "SELECT k FROM u WHERE v <> v AND false": "constant",
    # These are no reads.
    "EXPLAIN SELECT v FROM t WHERE k = 1": None,
    "SHOW cluster": None,
    "INSERT INTO written SELECT k, v FROM t WHERE k = 1": None,
}


def test_how_each_read_was_served_is_known(tmp_path):
    with leading_and_joined(tmp_path) as (first, second):
        first.sql("CREATE TABLE t (k INT NOT NULL, v INT)")
        first.sql("CREATE TABLE u (k INT, v INT, w INT)")
        first.sql("CREATE INDEX by_k ON t (k)")
        first.sql("CREATE TABLE written (k INT, v INT)")
        first.sql("CREATE VIEW totals AS SELECT k, sum(v) AS s FROM u GROUP BY k")
        first.sql("CREATE INDEX by_total ON totals (k)")
        first.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
        first.sql("INSERT INTO t SELECT 3, id FROM range(10001)")
        first.sql("INSERT INTO u SELECT id, id, id FROM range(20000)")
        hydrated(first, "by_k", "by_total")
        asked_nobody(first, only_coordinator(tmp_path / "environment"))
        session = "serializable"
        first.use(session)
        first.sql(SERIALIZABLE, session=session)
        for application, own in ((first, {"session": session}), (second, {})):
            now = application.value("SELECT mz_now() FROM t LIMIT 1", **own)
            application.sql(f"CACHE TABLE kept AS SELECT v FROM t AS OF {now}", **own)
            for text in READS:
                application.sql(text, **own)
        for text, wanted in READS.items():
            assert strategies(first, text, runs=2) == {wanted}, text
        assert second.python(ACTIONS) == [1, 1, 1, 1]
        assert strategies(first, TEXT, runs=4) == {"fast-path"}
        second.sql("SELECT 1 AS nothing")
        assert first.rows(STRATEGY.format("SELECT 1 AS nothing", first.schema)) == []


def asked_nobody(place, coordinator):
    """A read by an index is the same before and after it needs no bind."""
    text, runs = "SELECT v AS again FROM t WHERE k = 1", []

    def answered():
        runs.extend((place.rows(text), text))
        with stopped([coordinator]):
            asked = place.application.start(text)
            try:
                return asked.result(2).rows == [[1]]
            except TimeoutError:
                return False

    wait_until(answered, what="a read that asks nobody")
    assert strategies(place, text, len(runs)) == {"fast-path"}


WRITES = """
for number in range(25):
    spark.sql(f"UPDATE slackwater.{schema}.t SET v = {number} WHERE k = 1")
"""


def test_what_is_added_to_an_index_that_is_behind_is_of_those_that_read_it(workplace):
    workplace.sql("CREATE TABLE t (k INT NOT NULL, v INT)")
    workplace.sql("CREATE INDEX by_k ON t (k)")
    workplace.sql("INSERT INTO t VALUES (1, 0), (2, 0)")
    hydrated(workplace, "by_k")
    code = f"schema = {workplace.schema!r}{WRITES}"
    writing = workplace.application.begin_python(code, session="writer")
    runs = 0
    while not writing.is_done:
        for key in (1, 2):
            assert len(workplace.rows(f"SELECT v FROM t WHERE k = {key}")) == 1
        runs += 1
    writing.result()
    assert strategies(workplace, "SELECT v FROM t WHERE k = 2", runs) == {"fast-path"}
    found = strategies(workplace, "SELECT v FROM t WHERE k = 1", runs)
    assert found in ({"fast-path"}, {"fast-path", "standard"})
    # Each was told of with its end, whether it was bound or not.
    unknown = (
        "SELECT count(*) FROM mz_internal.mz_recent_activity_log"
        " WHERE sql LIKE 'SELECT v FROM t WHERE k = _' AND rows_returned IS NULL"
        f" AND search_path[0] = '{workplace.schema}'"
    )
    assert workplace.value(unknown) == 0
