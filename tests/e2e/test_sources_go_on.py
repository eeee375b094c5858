"""A source goes on while a statement that reads it runs, and the statement is right."""

from __future__ import annotations

import pytest
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t SELECT block(max(counter)), count(*) FROM s",
        "INSERT INTO t SELECT block(n), n FROM v",
        "UPDATE t SET n = (SELECT block(max(counter)) FROM s) WHERE k IN (SELECT counter FROM s)",
    ],
    ids=["insert", "view", "update"],
)
def test_a_source_goes_on_while_a_statement_reads_it(workplace, gate, tmp_path, statement):
    at = tmp_path / "at"
    for session in ("stopping", "other"):
        workplace.use(session)
    workplace.application.python(gate.block(at), session="stopping")
    workplace.sql("CREATE TABLE t (k BIGINT, n BIGINT)")
    workplace.sql("INSERT INTO t VALUES (1, 0)")
    workplace.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100ms')")
    workplace.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
    wait_until(lambda: count(workplace) > 2, what="the source runs")
    running = workplace.application.start(statement, session="stopping")
    wait_until(at.exists, what="the statement has read")
    before, upper = count(workplace), upper_of(workplace)
    wait_until(lambda: count(workplace) > before + 5, what="the source goes on")
    assert upper_of(workplace) > upper
    assert workplace.rows("SELECT k, n FROM t", session="other") == [[1, 0]]
    gate.open()
    running.result()
    written = workplace.rows("SELECT k, n FROM t WHERE n > 0", session="other")
    assert len(written) == 1
    if not statement.startswith("UPDATE"):
        assert written[0][0] == written[0][1]
    assert 2 < written[0][1] <= before


def count(workplace):
    return workplace.value("SELECT count(*) FROM s", session="other")


def upper_of(workplace):
    return workplace.value(
        "SELECT f.write_frontier FROM mz_internal.mz_frontiers f "
        "JOIN mz_catalog.mz_sources s ON f.object_id = s.id WHERE s.name = 's'",
        session="other",
    )
