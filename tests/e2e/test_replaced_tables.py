"""Tables made and replaced with their contents, from DataFrames and by several sessions at once."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark


def frames(workplace, code):
    """Runs code with `name`, which gives the full name of a table; what it leaves as `result`."""
    name = f"name = lambda own: 'slackwater.{workplace.schema}.' + own"
    return workplace.application.python(f"{name}\n{code}")


def identity(workplace, name):
    return workplace.value(
        "SELECT t.id FROM slackwater.mz_catalog.mz_tables t JOIN slackwater.mz_catalog.mz_schemas s"
        f" ON t.schema_id = s.id WHERE t.name = '{name}' AND s.name = '{workplace.schema}'"
    )


def refused(workplace, code):
    with pytest.raises(SqlError) as caught:
        frames(workplace, code)
    return caught.value.sqlstate


def test_frames_make_and_replace_tables(workplace):
    frames(workplace, "spark.range(3).write.saveAsTable(name('a')); result = None")
    first = identity(workplace, "a")
    workplace.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(id) AS s FROM a")
    again = "a = spark.table(name('a')); a.union(a).write.mode('overwrite').saveAsTable(name('a'))"
    frames(workplace, f"{again}; result = None")
    assert workplace.rows("SELECT count(*), (SELECT s FROM total) FROM a") == [[6, 6]]
    frames(
        workplace,
        "a = spark.table(name('a')); a.distinct().writeTo(name('a')).replace(); result = None",
    )
    assert workplace.rows("SELECT count(*), (SELECT s FROM total) FROM a") == [[3, 3]]
    assert identity(workplace, "a") == first
    wider = "spark.table(name('a')).selectExpr('id', 'id + 1 AS more')"
    overwrite = f"{wider}.write.mode('overwrite').saveAsTable(name('a')); result = None"
    assert refused(workplace, overwrite) == "2BP01"
    assert workplace.rows("SELECT count(*) FROM a") == [[3]]
    workplace.sql("DROP MATERIALIZED VIEW total")
    frames(workplace, f"cached = spark.table(name('a')).cache(); cached.count(); {overwrite}")
    assert workplace.rows("SELECT * FROM a ORDER BY id") == [[0, 1], [1, 2], [2, 3]]
    assert frames(workplace, "result = spark.table(name('a')).count()") == 3
    assert identity(workplace, "a") != first

    assert refused(workplace, f"{wider}.writeTo(name('b')).replace()") == "42P01"
    frames(workplace, f"{wider}.writeTo(name('b')).createOrReplace(); result = None")
    assert refused(workplace, f"{wider}.writeTo(name('b')).create()") == "42P07"
    assert refused(workplace, f"{wider}.write.saveAsTable(name('b'))") == "42P07"
    frames(workplace, f"{wider}.write.mode('ignore').saveAsTable(name('b')); result = None")
    frames(workplace, f"{wider}.write.mode('append').saveAsTable(name('b')); result = None")
    assert workplace.value("SELECT count(*) FROM b") == 6


def test_no_acknowledged_write_is_lost_to_a_replacement(workplace):
    workplace.sql("CREATE TABLE t AS SELECT -1 AS k")
    sessions = [f"{workplace.schema}_{number}" for number in range(2)]
    for session in sessions:
        workplace.use(session)
    inserts, replacements = [], []
    for number in range(12):
        insert = f"INSERT INTO t VALUES ({number})"
        inserts.append(workplace.application.start(insert, session=sessions[0]))
        if number % 4 == 0:
            replacement = "CREATE OR REPLACE TABLE t AS SELECT DISTINCT * FROM t"
            replacements.append(workplace.application.start(replacement, session=sessions[1]))
    for each in [*inserts, *replacements]:
        each.result()
    found = sorted(row[0] for row in workplace.rows("SELECT k FROM t"))
    assert found == list(range(-1, 12))


def test_of_two_sessions_that_make_one_table_one_does(workplace):
    sessions = [f"{workplace.schema}_{number}" for number in range(2)]
    for session in sessions:
        workplace.use(session)
    pending = [
        workplace.application.start(
            f"CREATE TABLE made AS SELECT '{session}' AS who, id FROM range(30000)", session=session
        )
        for session in sessions
    ]
    made, states = [], []
    for session, each in zip(sessions, pending, strict=True):
        try:
            each.result()
            made.append([session, 30000])
        except SqlError as error:
            states.append(error.sqlstate)
    assert states == ["42P07"]
    assert workplace.rows("SELECT who, count(*) FROM made GROUP BY who") == made
