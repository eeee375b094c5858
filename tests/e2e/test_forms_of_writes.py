"""Which form of write takes which kind of object, and what the modes of overwriting mean."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark

FRAME = "spark.createDataFrame([(1, 1)], 'k INT, v INT')"
FORMS = {
    "insert values": "INSERT INTO {o} VALUES (1, 1)",
    "insert query": "INSERT INTO {o} SELECT * FROM t",
    "insert columns": "INSERT INTO {o} (v, k) VALUES (1, 1)",
    "insert by name": "INSERT INTO {o} BY NAME SELECT 1 AS k, 1 AS v",
    "overwrite": "INSERT OVERWRITE {o} VALUES (1, 1)",
    "several": "FROM t INSERT INTO t SELECT k, v INSERT INTO {o} SELECT k, v",
    "update": "UPDATE {o} SET v = 2",
    "update where": "UPDATE {o} SET v = 2 WHERE k = 1",
    "delete": "DELETE FROM {o}",
    "delete where": "DELETE FROM {o} WHERE k = 1",
    "merge insert": "MERGE INTO {o} USING t s ON {o}.k = s.k WHEN NOT MATCHED THEN INSERT *",
    "merge update": "MERGE INTO {o} USING t s ON {o}.k = s.k WHEN MATCHED THEN UPDATE SET *",
    "merge delete": "MERGE INTO {o} USING t s ON {o}.k = s.k WHEN MATCHED THEN DELETE",
    "truncate": "TRUNCATE TABLE {o}",
    "writeTo append": f"{FRAME}.writeTo('{{o}}').append()",
    "writeTo overwrite": f"{FRAME}.writeTo('{{o}}').overwrite(lit(True))",
    "writeTo partitions": f"{FRAME}.writeTo('{{o}}').overwritePartitions()",
    "insertInto": f"{FRAME}.write.insertInto('{{o}}')",
    "insertInto overwrite": f"{FRAME}.write.mode('overwrite').insertInto('{{o}}')",
    "saveAsTable append": f"{FRAME}.write.mode('append').saveAsTable('{{o}}')",
    "mergeInto": f"{FRAME}.mergeInto('{{o}}', expr('true')).whenMatched().delete().merge()",
}
OBJECTS = {
    "view": "CREATE VIEW o AS SELECT k, v FROM t",
    "materialized view": "CREATE MATERIALIZED VIEW o AS SELECT k, v FROM t",
    "source": "CREATE SOURCE o FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 hour')",
    "system relation": None,
    "sink": "CREATE SINK o FROM t INTO FILES (PATH '{folder}/out', FORMAT 'parquet')",
}


def write(place, form, name):
    text = FORMS[form].format(o=name)
    if "spark." not in text:
        place.sql(text)
        return
    code = f"from pyspark.sql.functions import expr, lit\n{text}\nresult = None"
    place.application.python(code)


@pytest.mark.parametrize("kind", OBJECTS)
def test_what_is_no_table_is_not_written(workplace, kind):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("INSERT INTO t VALUES (1, 7)")
    made = OBJECTS[kind]
    if made is not None:
        workplace.sql(made.format(folder=workplace.folder))
    name = "o" if made is not None else "mz_internal.mz_sessions"
    told = {}
    for form in FORMS:
        try:
            write(workplace, form, name)
        except SqlError as error:
            told[form] = error.sqlstate
        else:
            told[form] = "no error"
    assert told == dict.fromkeys(FORMS, "42809")
    assert workplace.rows("SELECT * FROM t") == [[1, 7]]


def test_a_table_takes_every_form(workplace):
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE TABLE o (k INT, v INT)")
    for form in FORMS:
        write(workplace, form, "o")


REPLACING = {
    "setting": "SET spark.sql.sources.partitionOverwriteMode = dynamic",
    "static": "SET spark.sql.sources.partitionOverwriteMode = static",
}


@pytest.mark.parametrize("mode", REPLACING)
def test_overwriting_partitions_replaces_a_table(workplace, mode):
    """A table without partitions is one, also for dbt, which sets the mode."""
    workplace.sql("CREATE TABLE t (k INT, v INT NOT NULL)")
    workplace.sql(REPLACING[mode])
    forms = (
        "spark.sql('INSERT OVERWRITE t VALUES (1, {n})')",
        "spark.sql('INSERT OVERWRITE t SELECT k, v + {n} - 1 FROM t')",
        "spark.sql('INSERT OVERWRITE TABLE t (v, k) VALUES ({n}, 1)')",
        "spark.sql('FROM VALUES (1, {n}) AS x(k, v) INSERT OVERWRITE t SELECT k, v')",
        "frame.writeTo('t').overwritePartitions()",
        "frame.writeTo('t').option('partitionOverwriteMode', 'dynamic').overwritePartitions()",
        "frame.write.mode('overwrite').insertInto('t')",
        "frame.write.mode('overwrite').option('partitionOverwriteMode', 'dynamic').insertInto('t')",
        "frame.write.mode('overwrite').option('partitionOverwriteMode', 'static').saveAsTable('t')",
    )
    try:
        for n, form in enumerate(forms, start=1):
            workplace.application.python(
                f"frame = spark.sql('SELECT 1 AS k, {n} AS v')\n{form.format(n=n)}\nresult = None"
            )
            expected = [[1, 2 if n == 2 else n]]
            assert workplace.rows("SELECT k, v FROM t") == expected, form
        with pytest.raises(SqlError) as refused:
            workplace.sql("INSERT OVERWRITE t VALUES (1, NULL)")
        assert refused.value.sqlstate == "23502"
    finally:
        workplace.sql("RESET spark.sql.sources.partitionOverwriteMode")
