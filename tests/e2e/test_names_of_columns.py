"""Columns of users whose names are ours, or Spark's own, in what it makes of a statement."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

# Of names that Spark takes for one, such as `__time` and `__TIME`, each table has one.
GROUPS = [
    ["__time", "__diff", "__row", "__row_operation", "id", "mz_timestamp"],
    ["__TIME", "__Diff", "__ROW", "__Row_Operation", "k0", "Mz_Diff"],
    ["__t\u0131me", "__D\u0130FF", "__row_", "__row_id", "_metadata", "mz_progressed", "a.b"],
    ["__time'", "__row_from_source", "target_0", "source_0", "mz_state", "key", 'e "f'],
    ["__row_from_target", "__original_row_id___row", "value"],
]
CASES = [
    *((names, "") for names in GROUPS),
    # What Spark adds to rows may be NULL, and so could what it takes for that.
    *(([name for name in names if name.startswith("__")], " NOT NULL") for names in GROUPS),
]


def each(names, form, between=", "):
    """The form once for each name, which stands for `@` in it."""
    return between.join(form.replace("@", f"`{name}`") for name in names)


@pytest.mark.parametrize(
    ("names", "null"), CASES, ids=[f"{names[0]}...{null}" for names, null in CASES]
)
@pytest.mark.sampled(4)
def test_every_statement_takes_the_names(workplace, names, null):
    sql, rows = workplace.sql, workplace.rows
    listed = each(names, "@")

    def row(k, value):
        return [k, *[value] * len(names)]

    def values(*wanted):
        return ", ".join(f"({', '.join(map(str, row(k, value)))})" for k, value in wanted)

    sql(f"CREATE TABLE t (k INT, {each(names, f'@ INT{null}')})")
    sql(f"INSERT INTO t VALUES {values((1, 1), (2, 2), (3, 3), (4, 4))}")
    sql(f"CREATE VIEW v AS SELECT k, {listed} FROM t")
    sql(f"CREATE MATERIALIZED VIEW m AS SELECT {listed}, count(*) AS n FROM t GROUP BY {listed}")
    sql("DELETE FROM t WHERE k = 1")
    sql(f"UPDATE t SET {each(names, '@ = @ + 10')} WHERE k = 2")
    sql(
        f"MERGE INTO t USING (SELECT * FROM VALUES {values((3, 30), (5, 50))} AS s (k, {listed})) s"
        f" ON t.k = s.k WHEN MATCHED THEN UPDATE SET {each(names, '@ = s.@')}"
        f" WHEN NOT MATCHED THEN INSERT (k, {listed}) VALUES (s.k, {each(names, 's.@')})"
    )
    sql(
        "MERGE INTO t USING (SELECT * FROM t UNION ALL SELECT * FROM t) s "
        "ON t.k = s.k AND s.k = 4 WHEN MATCHED THEN DELETE "
        f"WHEN NOT MATCHED BY SOURCE AND t.k = 5 THEN UPDATE SET {each(names, '@ = 51')}"
    )
    same = each(names, "u.@ = t.@", " AND ")
    sql(
        f"UPDATE t SET k = k + (SELECT count(*) FROM v) - 3 "
        f"WHERE k > 0 AND EXISTS (SELECT 1 FROM t u WHERE {same})"
    )
    sql(
        f"MERGE INTO t USING (SELECT 9 AS k, {each(names, '9 AS @')}) s ON t.k = s.k "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    sql(
        f"DELETE FROM t WHERE {each(names, '@ = 9', ' AND ')} "
        f"AND EXISTS (SELECT 1 FROM t u WHERE {same})"
    )
    expected = [row(2, 12), row(3, 30), row(5, 51)]
    for relation in ("t", "v"):
        assert sorted(rows(f"SELECT k, {listed} FROM {relation}")) == expected
    counted = sorted(rows(f"SELECT n, {listed} FROM m"))
    assert counted == [row(1, 12), row(1, 30), row(1, 51)]
    sql("BEGIN")
    sql("DECLARE c CURSOR FOR SUBSCRIBE TO t")
    fetched = sql("FETCH 3 c")
    sql("COMMIT")
    assert list(fetched.columns[-len(names) :]) == names
    assert sorted(found[-len(names) - 1 :] for found in fetched.rows) == expected
    described = [found[0] for found in rows("DESCRIBE EXTENDED t")]
    assert [described.count(name) for name in names] == [1] * len(names)
    assert "# Metadata Columns" not in described
    sql("CREATE TABLE copied AS SELECT * FROM v")
    sql(f"INSERT OVERWRITE t SELECT k, {each(names, '@ + 1')} FROM t")
    assert sorted(rows("SELECT * FROM t")) == [row(k, v + 1) for k, v, *_ in expected]
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
