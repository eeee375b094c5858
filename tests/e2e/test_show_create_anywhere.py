"""SHOW CREATE prints what makes the same object from any session, with any schema and settings."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.spark

DEFINER = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.ansi.enabled": "false"}
ANOTHER = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "true"}

# By what they answer one sees the schema, the time zone and the ANSI mode of their definition.
QUERY = "SELECT k, hour(at) AS of_day, CAST(word AS INT) AS number FROM e"


def objects(folder):
    """Kind, name, definition; each may read those before it."""
    return (
        (
            "TABLE",
            "e",
            "CREATE TABLE e (k INT NOT NULL COMMENT 'the key', at TIMESTAMP, "
            "word STRING DEFAULT 'x') COMMENT 'events' TBLPROPERTIES ('p' = 'q')",
        ),
        ("VIEW", "v", f"CREATE VIEW v AS {QUERY}"),
        (
            "VIEW",
            "w",
            "CREATE VIEW w (a COMMENT 'the ''a''', b) COMMENT 'of v' TBLPROPERTIES ('p' = 'q') "
            "WITH SCHEMA BINDING AS WITH x AS (SELECT * FROM v) SELECT k, number FROM x",
        ),
        (
            "MATERIALIZED VIEW",
            "m",
            "CREATE MATERIALIZED VIEW m (k, hours, number) WITH (RETAIN HISTORY FOR '2 hours', "
            f"ASSERT NOT NULL k) AS {QUERY}",
        ),
        (
            "MATERIALIZED VIEW",
            "n",
            "CREATE MATERIALIZED VIEW n AS SELECT a, b FROM w, v WHERE a = k",
        ),
        (
            "SINK",
            "out",
            f"CREATE SINK out FROM m INTO FILES (PATH '{folder}/out', FORMAT JSON) "
            "ENVELOPE UPSERT KEY (k)",
        ),
        (
            "SOURCE",
            "files",
            f"CREATE SOURCE files FROM FILES (PATH '{folder}/in', FORMAT CSV, HEADER true)",
        ),
        (
            "SOURCE",
            "auction",
            "CREATE SOURCE auction FROM LOAD GENERATOR AUCTION (TICK INTERVAL '1 hour', SEED 4) "
            "FOR ALL TABLES",
        ),
    )


def test_each_kind_is_made_again_from_elsewhere(workplace):
    folder, home = workplace.folder, workplace.schema
    (folder / "in").mkdir()
    (folder / "in" / "one.csv").write_text("id,name\n1,a\n")
    workplace.sql(f"CREATE SCHEMA slackwater.{home}_else")
    for session, schema, settings in (
        ("definer", home, DEFINER),
        ("other", f"{home}_else", ANOTHER),
    ):
        workplace.sql(f"USE slackwater.{schema}", session=session)
        for key, value in settings.items():
            workplace.sql(f"SET {key} = {value}", session=session)
    # A table of that name in the other schema: a name that is looked up there is seen.
    workplace.sql("CREATE TABLE e (k INT)", session="other")

    def fill():
        workplace.sql(
            "INSERT INTO e VALUES (1, TIMESTAMP '2024-01-01 05:00:00 UTC', '7'), (2, NULL, 'no')",
            session="definer",
        )

    def answers():
        return {
            name: workplace.rows(f"SELECT * FROM slackwater.{home}.{name} ORDER BY 1")
            for name in ("v", "w", "m", "n", "files")
        }

    def shown():
        return {
            name: workplace.rows(f"SHOW CREATE {kind} slackwater.{home}.{name}", session="other")[
                0
            ][-1]
            for kind, name, _ in objects(folder)
        }

    for _, _, text in objects(folder):
        workplace.sql(text, session="definer")
    fill()
    before, rows = shown(), answers()
    assert rows["v"] == [[1, 0, 7], [2, None, None]]
    assert "`id` INT" in before["files"]
    for kind, name, _ in reversed(objects(folder)):
        cascade = " CASCADE" if kind == "SOURCE" else ""
        workplace.sql(f"DROP {kind} slackwater.{home}.{name}{cascade}")
    (folder / "out").rename(folder / "out of before")
    for _, name, _ in objects(folder):
        workplace.sql(before[name], session="other")
    fill()
    assert shown() == before
    assert answers() == rows
    workplace.sql("USE spark_catalog", session="other")
    workplace.sql(f"DROP SCHEMA slackwater.{home}_else CASCADE")
