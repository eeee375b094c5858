"""UPDATE, DELETE and MERGE of rows whose first column has any type, of tables with retractions."""

from __future__ import annotations

import pytest
from tests.support.applications.indexed import KINDS
from tests.support.applications.many_relations import interpret

pytestmark = pytest.mark.spark

MAPS = {"map": ("MAP<STRING, INT>", ["map('a', 1)", "map()", "map('b', NULL)", "NULL"])}
ALL = {**KINDS, **MAPS}
SOME = ("collated", "double", "map")
SAME = {"map": "to_json({a}) <=> to_json({b})", "char": "{a} <=> rpad({b}, 5, ' ')"}
"""How values are compared: maps as texts, and a cast to CHAR adds no blanks."""
SESSION = "changes"
IN_THE_METASTORE = (
    "DELETE FROM {t} WHERE v = 0",
    "UPDATE {t} SET v = v + 10 WHERE v = 1",
    "MERGE INTO {t} USING (SELECT 12 AS v) s ON {t}.v = s.v"
    " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (v, w) VALUES (s.v, 'new')",
)
INTO_FILES = (
    "INSERT INTO {t} SELECT NULL, -id - 1, repeat('z', 100000) FROM range(22)",
    "DELETE FROM {t} WHERE v = -7",
)
IN_FILES = (
    "DELETE FROM {t} WHERE w = 'x2' AND v % 2 = 0",
    "MERGE INTO {t} USING (SELECT 12 AS v) s ON {t}.v = s.v WHEN MATCHED THEN UPDATE SET w = 'y'",
)


@pytest.mark.parametrize("kinds", [SOME, pytest.param(ALL, marks=pytest.mark.nightly)])
def test_rows_are_changed_as_they_are(workplace, kinds):
    """In the metastore first, then beside many that are in files, with retractions."""
    place = workplace
    place.use(SESSION)
    interpret(place.application, SESSION)
    checks = []
    for kind in kinds:
        declared, values = ALL[kind]
        table = f"t_{kind}"

        def sql(text):
            place.sql(text, session=SESSION)

        sql(f"CREATE TABLE {table} (k {declared}, v INT, w STRING)")
        rows = ", ".join(f"({value}, {i}, 'x{i}')" for i, value in enumerate(values))
        sql(f"INSERT INTO {table} VALUES {rows}")
        for change in (*IN_THE_METASTORE, *INTO_FILES, *IN_FILES):
            sql(change.format(t=table))
        left = {11: (values[1], "x1"), 12: ("NULL", "y")}
        left |= {i: (value, f"x{i}") for i, value in enumerate(values) if i > 2}
        expected = ", ".join(f"({v}, {value}, '{w}')" for v, (value, w) in left.items())
        same = SAME.get(kind, "{a} <=> {b}")
        checks.append(
            f"SELECT '{kind}' AS kind, count(*) AS n, count_if(t.v = x.v AND t.w = x.w"
            f" AND {same.format(a='t.k', b=f'CAST(x.k AS {declared})')}) AS same"
            f" FROM {table} t LEFT JOIN (VALUES {expected}) AS x(v, k, w) ON t.v = x.v"
            f" WHERE t.v >= 0 HAVING n <> {len(left)} OR same <> {len(left)}"
        )
    assert place.rows(" UNION ALL ".join(checks), session=SESSION) == []
