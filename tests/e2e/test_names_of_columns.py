"""Columns of users whose names are ours, or Spark's own, in what it makes of a statement."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

NAMES = [
    "__time",
    "__diff",
    "__TIME",
    "__Diff",
    "__time'",
    "__t\u0131me",
    "__D\u0130FF",
    "__row",
    "__ROW",
    "__row_",
    "__row_operation",
    "__Row_Operation",
    "__row_id",
    "__row_from_source",
    "__row_from_target",
    "__original_row_id___row",
    "target_0",
    "source_0",
    "id",
    "k0",
    "_metadata",
    "mz_timestamp",
    "Mz_Diff",
    "mz_progressed",
    "mz_state",
    "key",
    "value",
    "a.b",
    'e "f',
]


CASES = [
    *((name, "") for name in NAMES),
    # What Spark adds to rows may be NULL, and so could what it takes for that.
    *((name, " NOT NULL") for name in NAMES if name.startswith("__")),
]


@pytest.mark.parametrize(("name", "null"), CASES, ids=map("".join, CASES))
def test_every_statement_takes_the_name(workplace, name, null):
    sql, rows = workplace.sql, workplace.rows
    sql(f"CREATE TABLE t (k INT, `{name}` INT{null})")
    sql("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    sql(f"CREATE VIEW v AS SELECT k, `{name}` FROM t")
    sql(f"CREATE MATERIALIZED VIEW m AS SELECT `{name}`, count(*) AS n FROM t GROUP BY `{name}`")
    sql("DELETE FROM t WHERE k = 1")
    sql(f"UPDATE t SET `{name}` = `{name}` + 10 WHERE k = 2")
    sql(
        f"MERGE INTO t USING (SELECT 3 AS k, 30 AS `{name}` UNION ALL SELECT 5, 50) s "
        f"ON t.k = s.k WHEN MATCHED THEN UPDATE SET `{name}` = s.`{name}` "
        f"WHEN NOT MATCHED THEN INSERT (k, `{name}`) VALUES (s.k, s.`{name}`)"
    )
    sql(
        "MERGE INTO t USING (SELECT * FROM t UNION ALL SELECT * FROM t) s "
        "ON t.k = s.k AND s.k = 4 WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED BY SOURCE AND t.k = 5 THEN UPDATE SET `{name}` = 51"
    )
    sql(
        f"UPDATE t SET k = k + (SELECT count(*) FROM v) - 3 "
        f"WHERE k > 0 AND EXISTS (SELECT 1 FROM t u WHERE u.`{name}` = t.`{name}`)"
    )
    sql(
        f"MERGE INTO t USING (SELECT 9 AS k, 9 AS `{name}`) s ON t.k = s.k "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    sql(
        f"DELETE FROM t WHERE `{name}` = 9 "
        f"AND EXISTS (SELECT 1 FROM t u WHERE u.`{name}` = t.`{name}`)"
    )
    expected = [[2, 12], [3, 30], [5, 51]]
    for relation in ("t", "v"):
        assert sorted(rows(f"SELECT k, `{name}` FROM {relation}")) == expected
    assert sorted(rows(f"SELECT `{name}`, n FROM m")) == [[12, 1], [30, 1], [51, 1]]
    sql("BEGIN")
    sql("DECLARE c CURSOR FOR SUBSCRIBE TO t")
    fetched = sql("FETCH 3 c")
    sql("COMMIT")
    assert fetched.columns[-1] == name
    assert sorted(row[-2:] for row in fetched.rows) == expected
    described = [row[0] for row in rows("DESCRIBE EXTENDED t")]
    assert described.count(name) == 1
    assert "# Metadata Columns" not in described
    sql("CREATE TABLE copied AS SELECT * FROM v")
    sql(f"INSERT OVERWRITE t SELECT k, `{name}` + 1 FROM t")
    assert sorted(rows("SELECT * FROM t")) == [[k, v + 1] for k, v in expected]
    sql("TRUNCATE TABLE t")
    assert rows("SELECT * FROM m") == []


def test_no_statement_can_name_what_identifies_a_row(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("INSERT INTO t VALUES (1)")
    for statement in (
        "SELECT __row FROM t",
        "DELETE FROM t WHERE __row.k = 1",
        "UPDATE t SET k = __row.k",
        "MERGE INTO t USING t s ON t.k = s.__row.k WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
            workplace.sql(statement)
    assert workplace.rows("SELECT * FROM t") == [[1]]
