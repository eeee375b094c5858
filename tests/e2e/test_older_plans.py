"""What was planned for a table before its columns changed."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

STALE = """
frame = spark.table('slackwater.{schema}.t')
assert not frame.schema['k'].nullable
spark.sql('ALTER TABLE slackwater.{schema}.t ALTER COLUMN k DROP NOT NULL')
spark.sql('INSERT INTO slackwater.{schema}.t VALUES (NULL)')
try:
    result = frame.collect()
except Exception as error:
    result = error.getCondition()
fresh = spark.table('slackwater.{schema}.t').orderBy('k').collect()
result = [result, [tuple(row) for row in fresh]]
"""


def test_no_null_is_read_as_a_number(workplace):
    workplace.sql("CREATE TABLE t (k INT NOT NULL)")
    workplace.sql("INSERT INTO t VALUES (1)")
    workplace.sql("DECLARE c CURSOR FOR SUBSCRIBE TO t WITH (SNAPSHOT = false)")
    workplace.sql("DECLARE q CURSOR FOR SUBSCRIBE TO (SELECT k FROM t) WITH (SNAPSHOT = false)")
    outcome = workplace.application.python(STALE.format(schema=workplace.schema))
    assert outcome == [
        "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS.COLUMNS_MISMATCH",
        [[None], [1]],
    ]
    for cursor in ("c", "q"):
        ((_, diff, k),) = workplace.rows(f"FETCH 1 FROM {cursor}")
        assert (diff, k) == (1, None)
        workplace.sql(f"CLOSE {cursor}")
