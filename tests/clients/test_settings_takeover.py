"""Definitions keep their settings when another application leads, whose defaults are others."""

from __future__ import annotations

import json

import pytest
from tests.support.applications.application import Application, SqlError, coordinators
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

NEW_YORK = {"spark.sql.session.timeZone": "America/New_York"}

OTHERS = {
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}

LENIENT = "lenient"
STRICT = "main"

QUERIES = {
    "linear": "SELECT id, date(ts) AS day, CAST(ts AS STRING) AS shown, "
    "CAST(CAST(shown AS TIMESTAMP) AS BIGINT) AS seconds, CAST(word AS INT) AS number FROM e",
    "grouped": "SELECT date(ts) AS day, count(*) AS n, max(CAST(word AS INT)) AS number "
    "FROM e GROUP BY date(ts)",
    "recomputed": "SELECT date(ts) AS day, CAST(word AS INT) AS number, "
    "row_number() OVER (ORDER BY id) AS place FROM e",
    "joined": "SELECT l.id, hour(r.ts) AS hour FROM e l JOIN e r ON date(l.ts) = date(r.ts) "
    "WHERE l.ID = r.Id",
}


@pytest.fixture
def location(tmp_path):
    path = tmp_path / "environment"
    yield path
    wait_until(lambda: not coordinators(path), what="the end of all coordinators")


@pytest.mark.nightly
def test_definitions_mean_under_another_leader_what_they_meant_to_their_session(location, tmp_path):
    """Those of before, and those of a session whose application does not lead."""
    with Application(location, conf=NEW_YORK) as first:
        define(first, STRICT, "strict", tmp_path)
        first.sql("SET spark.sql.ansi.enabled = false", session=LENIENT)
        define(first, LENIENT, "lenient", tmp_path)
        shown = shown_definitions(first)
    with Application(location, conf=OTHERS) as second:
        second.sql("USE slackwater")
        for schema, word in (("strict", "30"), ("lenient", "three")):
            changed(second, schema, word)
            check(second, schema, [*BEFORE, *AFTER], word, tmp_path)
        assert shown_definitions(second) == shown
        second.sql("INSERT INTO strict.e SELECT id + 10, ts, shown, 'ten' FROM strict.e")
        for name in ("linear", "grouped", "recomputed"):
            with pytest.raises(SqlError) as refused:
                second.sql(f"SELECT * FROM strict.{name}")
            assert refused.value.condition == "SLACKWATER_DATA_ERROR"
        with Application(location, conf=NEW_YORK) as joiner:
            check_declarations(second, joiner, tmp_path / "in")


BEFORE = [(1, "2024-03-01 23:30:00"), (2, "2024-03-02 00:30:00")]
AFTER = [(3, "2024-03-02 23:45:00"), (4, "2024-03-10 12:00:00")]
SECONDS = {1: 1709353800, 2: 1709357400, 3: 1709441100, 4: 1710086400}
"""What the times of New York above are; on March 10 it has daylight saving time."""


def define(application, session, schema, folder):
    application.sql("USE slackwater", session=session)
    application.sql(f"CREATE SCHEMA {schema}", session=session)
    application.sql(f"USE {schema}", session=session)
    application.sql(
        "CREATE TABLE e (id INT, ts TIMESTAMP, shown STRING, word STRING)", session=session
    )
    for name, query in QUERIES.items():
        application.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}", session=session)
        application.sql(f"CREATE VIEW plain_{name} AS {query}", session=session)
    application.sql(
        "CREATE MATERIALIZED VIEW above AS SELECT day, seconds FROM plain_linear", session=session
    )
    application.sql(
        f"CREATE SINK out FROM linear INTO FILES (PATH '{folder / schema}', FORMAT JSON)",
        session=session,
    )
    rows = ", ".join(f"({id}, TIMESTAMP'{at}', '{at}', '{id}')" for id, at in BEFORE)
    application.sql(f"INSERT INTO e VALUES {rows}", session=session)
    check(application, schema, BEFORE, None, folder)


def changed(application, schema, word):
    """By a session whose literals mean something else: the times are given in numbers."""
    rows = ", ".join(
        f"({id}, timestamp_seconds({SECONDS[id]}), '{at}', '{id if id < 4 else word}')"
        for id, at in AFTER
    )
    application.sql(f"INSERT INTO {schema}.e VALUES {rows}")


def check(application, schema, wanted, word, folder):
    linear = sorted([id, at[:10], at, SECONDS[id], number(id, word)] for id, at in wanted)
    days = sorted({at[:10] for _, at in wanted})
    grouped = [
        [day, len(of), max((n for n in of if n is not None), default=None)]
        for day in days
        for of in [[number(id, word) for id, at in wanted if at.startswith(day)]]
    ]
    expected = {
        "linear": linear,
        "grouped": grouped,
        "recomputed": [[at[:10], number(id, word), id] for id, at in wanted],
        "joined": [[id, int(at[11:13])] for id, at in wanted],
    }
    for name, rows in expected.items():
        for relation in (f"{schema}.{name}", f"{schema}.plain_{name}"):
            got = application.rows(f"SELECT * FROM {relation}")
            assert sorted(got, key=str) == sorted(rows, key=str), relation
    for relation in (f"{schema}.grouped", f"{schema}.plain_linear"):
        rows = expected[relation.rpartition("_")[2].rpartition(".")[2]]
        assert sorted(followed(application, relation), key=str) == sorted(rows, key=str), relation
    above = application.rows(f"SELECT * FROM {schema}.above ORDER BY seconds")
    assert above == [[day, seconds] for _, day, _, seconds, _ in linear]
    wait_until(lambda: sunk(folder / schema) == linear, what=f"the sink of {schema}")


def number(id, word):
    if id < 4 or word is None:
        return id
    return int(word) if word.isdigit() else None


def followed(application, relation):
    """The rows of a relation as a SUBSCRIBE to it gives them."""
    application.sql(f"DECLARE c CURSOR FOR SUBSCRIBE TO {relation}")
    rows = [row[2:] for row in application.rows("FETCH ALL c")]
    application.sql("CLOSE c")
    return rows


def sunk(folder):
    """What a reader that follows the manifest has seen; every update of it inserts."""
    manifest = folder / "manifest.json"
    if not manifest.exists():
        return []
    rows = [
        json.loads(line)
        for file in json.loads(manifest.read_text())["files"]
        for line in (folder / file["path"]).read_text().splitlines()
    ]
    names = ("id", "day", "shown", "seconds", "number")
    return sorted([row.get(name) for name in names] for row in rows)


def shown_definitions(application):
    return [
        application.rows(f"SHOW CREATE {kind} slackwater.{schema}.{name}")
        for schema in ("strict", "lenient")
        for kind, name in (
            *(("MATERIALIZED VIEW", name) for name in QUERIES),
            *(("TABLE", f"plain_{name}") for name in QUERIES),
            ("SINK", "out"),
            ("TABLE", "e"),
        )
    ]


def check_declarations(leader, joiner, folder):
    """The leader reads TIMESTAMP as TIMESTAMP_NTZ, the session that declares does not."""
    folder.mkdir()
    (folder / "1.csv").write_text("1,2024-03-01 23:30:00,a\n")
    for number, application in enumerate((leader, joiner)):
        application.sql("USE slackwater")
        application.sql("SET spark.sql.parser.escapedStringLiterals = false")
        application.sql(
            f"CREATE TABLE t{number} (ts TIMESTAMP, at TIMESTAMP DEFAULT "
            "TIMESTAMP'2024-03-01 23:30:00') WITH (RETAIN HISTORY FOR '1 hour')"
        )
        for switch in ("false", "true"):
            application.sql(f"SET spark.sql.parser.escapedStringLiterals = {switch}")
            application.sql(
                f"CREATE SOURCE s{number}_{switch} (id INT, ts TIMESTAMP, note STRING "
                f"COMMENT 'a note') FROM FILES (PATH '{folder}', FORMAT CSV)"
            )
    assert types(leader, "t0") == ["timestamp_ntz", "timestamp_ntz"]
    assert types(leader, "t1") == ["timestamp", "timestamp"]
    for switch in ("false", "true"):
        assert types(leader, f"s0_{switch}") == ["int", "timestamp_ntz", "string"]
        assert types(leader, f"s1_{switch}") == ["int", "timestamp", "string"]
    # What a text in a file says depends on no session: without an offset it is UTC.
    seconds = "SELECT CAST(ts AS BIGINT) FROM s1_false"
    assert leader.rows(seconds) == joiner.rows(seconds) == [[1709335800]]
    # A DEFAULT is an expression of the INSERT, as for Spark's own tables.
    leader.sql("INSERT INTO t1 (ts) VALUES (timestamp_seconds(1))")
    joiner.sql("INSERT INTO t1 (ts) VALUES (timestamp_seconds(2))")
    defaults = leader.rows("SELECT CAST(at AS BIGINT) FROM t1 ORDER BY ts")
    assert defaults == [[1709303400], [1709353800]]


def types(application, relation):
    described = application.rows(f"DESCRIBE {relation}")
    return [row[1] for row in described if row[1] and not row[0].startswith("#")]
