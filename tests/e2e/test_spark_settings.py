"""What is stored is the same whatever the settings of the application are."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.support.applications.application import Application

pytestmark = pytest.mark.spark

LISTED = Path(__file__).with_name("spark_settings.txt")

# Other settings than Spark SQL's that jobs of an application run under.
OF_JOBS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrationRequired": "true",
    "spark.hadoop.parquet.writer.version": "PARQUET_2_0",
    "spark.hadoop.parquet.compression": "GZIP",
}

# A tenth of the dates lie before the calendar's reform of 1582.
ROWS = """
SELECT CAST(id AS INT) AS k, DATE'1500-01-01' + CAST(id % 500 * 400 AS INT) AS d,
       TIMESTAMP'1500-01-01 01:02:03.123456' + make_dt_interval(CAST(id % 500 * 400 AS INT)) AS ts,
       TIMESTAMP_NTZ'1500-01-01 01:02:03.123456' + make_dt_interval(CAST(id % 500 AS INT)) AS n,
       CAST(concat('bytes ', id % 7) AS BINARY) AS b, concat('text ', repeat(id, 20)) AS s,
       CAST(id / 8 AS DECIMAL(25, 3)) AS x, CAST(id AS DECIMAL(9, 2)) AS y,
       map(concat('k', id % 3), id % 5) AS m, array(id, NULL) AS a,
       named_struct('l', DATE'1500-01-01', 'r', CAST(NULL AS STRING)) AS st
FROM range(0, 3000, 1, 4)
"""

SHOWN = """
SELECT k, CAST(d AS STRING), CAST(ts AS STRING), CAST(n AS STRING), hex(b), s, CAST(x AS STRING),
       CAST(y AS STRING), to_json(m), to_json(a), to_json(st) FROM {} WHERE k % 249 = 1 ORDER BY k
"""


def patterns() -> list[tuple[str, str, str | None]]:
    lines = (line.split() for line in LISTED.read_text().splitlines())
    return [
        (line[0], line[1], line[2] if len(line) > 2 else None)
        for line in lines
        if line and line[0] != "#"
    ]


def stored_and_read(application: Application) -> dict[str, list]:
    """What statements say of rows that executors have written, changed, merged and followed."""
    application.sql("USE slackwater")
    application.sql(f"CREATE TABLE t AS {ROWS}")
    application.sql(
        "CREATE MATERIALIZED VIEW v AS"
        " SELECT d, min(ts) AS ts, max(n) AS n, max(b) AS b, count(*) AS c FROM t GROUP BY d"
    )
    answers = {"written": application.rows(SHOWN.format("t"))}
    application.sql("DELETE FROM t WHERE k % 3 = 0")
    application.sql("UPDATE t SET s = 'other' WHERE k % 5 = 0")
    answers["changed"] = application.rows(SHOWN.format("t"))
    answers["counted"] = application.rows("SELECT count(*), count(DISTINCT d) FROM t")
    # As many dates come as go, so that a date that was read otherwise would be there twice.
    application.sql(
        "MERGE INTO t USING (SELECT * FROM t WHERE k % 7 = 1) c ON t.k = c.k"
        " WHEN MATCHED THEN UPDATE SET *"
    )
    answers["merged"] = application.rows(SHOWN.format("t"))
    answers["view"] = application.rows(
        "SELECT CAST(d AS STRING), CAST(ts AS STRING), CAST(n AS STRING), hex(b), c"
        " FROM v ORDER BY d"
    )
    application.sql(
        "DECLARE c CURSOR FOR SUBSCRIBE (SELECT k, d, ts, n, b, x, y, st FROM t)"
        " WITH (PROGRESS = false)"
    )
    followed = application.rows("FETCH ALL c")
    application.sql("CLOSE c")
    answers["followed"] = sorted([str(value) for value in row[1:]] for row in followed)
    application.sql("INSERT OVERWRITE t SELECT * FROM t WHERE k < 500")
    answers["replaced"] = application.rows("SELECT count(*), CAST(min(d) AS STRING) FROM t")
    return answers


def test_the_list_names_every_setting_of_spark(workplace):
    entries = workplace.application.python(
        "module = getattr(spark._jvm, 'org.apache.spark.sql.internal.SQLConf$')\n"
        "found = getattr(module, 'MODULE$').getConfigEntries().iterator()\n"
        "result = []\n"
        "while found.hasNext():\n"
        "    result.append(found.next().key())\n"
    )
    names = [pattern for pattern, _, _ in patterns()]
    assert [key for key in entries if not any(fnmatchcase(key, name) for name in names)] == []
    first = {next(name for name in names if fnmatchcase(key, name)) for key in entries}
    assert [name for name in names if name not in first] == []
    assert {verdict for _, verdict, _ in patterns()} == {"ours", "user", "none"}


@pytest.mark.nightly
def test_what_is_stored_depends_on_no_setting(tmp_path):
    ours = {key: value for key, verdict, value in patterns() if verdict == "ours"}
    assert None not in ours.values()
    answers = []
    for name, master, conf in (
        ("plain", "local[2]", {}),
        ("other", "local-cluster[1,2,1024]", {**ours, **OF_JOBS}),
    ):
        with Application(tmp_path / name / "environment", master=master, conf=conf) as started:
            answers.append(stored_and_read(started))
    plain, other = answers
    assert len(plain["followed"]) == plain["counted"][0][0]
    for question, answer in plain.items():
        assert other[question] == answer, question
