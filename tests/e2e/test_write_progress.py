"""How far a large write is can be seen while its jobs run."""

from __future__ import annotations

import contextlib

import pytest
from tests.e2e.test_hydration_progress import WATCHED
from tests.support.applications.application import Application, SqlError
from tests.support.applications.gate import Gate
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

TASK_ROWS = 100_000
AT_GATE = """
def {name}(k):
    if k == {at}:
        open({gate!r}).close()
    return k

spark.udf.register("{name}", {name}, "bigint")
result = None
"""
"""A function that waits at one row until the gate is open."""

WAITS = "SELECT session_id, statement, waits_for FROM mz_internal.mz_statement_waits"
RUNNING = """SELECT session_id, statement, sql FROM mz_internal.mz_recent_activity_log
WHERE finished_at IS NULL"""
"""Each without a job of executors, which are busy."""
INSERT = f"INSERT INTO t SELECT at_first(id) AS k FROM range(0, {4 * TASK_ROWS}, 1, 4)"


def test_what_a_write_has_done_is_told_until_it_has_ended(tmp_path):
    with (
        contextlib.closing(Gate(tmp_path / "inserts")) as inserts,
        contextlib.closing(Gate(tmp_path / "updates")) as updates,
        Application(tmp_path / "environment") as place,
    ):
        place.sql("USE slackwater")
        place.sql("CREATE TABLE t (k BIGINT)")
        place.sql("USE slackwater", session="writer")
        first = AT_GATE.format(name="at_first", at=3 * TASK_ROWS, gate=str(inserts.path))
        second = AT_GATE.format(name="at_second", at=0, gate=str(updates.path))
        for code in (first, second, WATCHED):
            place.python(code, session="writer")

        def writing():
            """The texts of the statements that write now, and how far they are."""
            texts = {(session, number): sql for session, number, sql in place.rows(RUNNING)}
            waits = place.rows(WAITS)
            return {texts[s, n]: waits_for for s, n, waits_for in waits if (s, n) in texts}

        written = place.start(INSERT, session="writer")
        told = "300,000 rows are written, 3 of 4 tasks are done."
        wait_until(lambda: writing() == {INSERT: told}, what="three tasks have ended")
        wait_until(lambda: told in place.log.read_text(), what="the line of who waits")
        inserts.open()
        written.result(PATIENCE)
        wait_until(lambda: not writing(), what="the write has ended")
        assert place.value("SELECT count(*) FROM t") == 4 * TASK_ROWS
        update = "UPDATE t SET k = -at_second(k) WHERE k < 5"
        refused = place.start(update, session="writer")
        wait_until(lambda: writing(), what="an update is told of")
        assert writing()[update].endswith("tasks are done.")
        place.sql("DROP TABLE t")
        updates.open()
        with pytest.raises(SqlError):
            refused.result(PATIENCE)
        wait_until(lambda: not writing(), what="the update has ended")
