"""Columns with names of ours, and odd ones, through sources, sinks, subscriptions and restarts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.applications.fixtures import Workplace
from tests.support.server.ingress import held_port, request
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

OURS = ("__time", "__DIFF", "__t\u0131me'", "__row", "_metadata", "__empty")
OF_ENVELOPES = ("mz_timestamp", "mz_diff", "mz_progressed", "Mz_State", "mz_op")
OTHERS = (
    "key",
    "value",
    "element",
    "before",
    "before_key",
    "after",
    "select",
    "a b",
    "a`b",
    "a.b",
    'e"f',
    "\u00fc,;(){}=",
    "\u0130",
    "'",
)
NAMES = (*OURS, *OF_ENVELOPES, *OTHERS)
LARGE = 60_000
"""More rows than are kept in the metastore: they are in a file."""


def quoted(name):
    return "`" + name.replace("`", "``") + "`"


def declared(names, kind="BIGINT"):
    return ", ".join(f"{quoted(name)} {kind}" for name in names)


def row(number, names=NAMES):
    """The number of the row, and other numbers in all other columns."""
    return [number, *(number * 1000 + at for at in range(1, len(names)))]


def values(numbers, names=NAMES):
    return ", ".join(f"({', '.join(map(str, row(number, names)))})" for number in numbers)


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    with held_port() as port:
        conf = {"spark.slackwater.ingress.address": f"127.0.0.1:{port}"}
        with Application(folder / "environment", conf=conf, master="local[2]") as running:
            yield running


@pytest.fixture
def place(application, request, tmp_path):
    schema = request.node.originalname[:40] + str(abs(hash(request.node.name)))
    made = Workplace(application, schema, tmp_path)
    yield made
    application.sql(f"DROP SCHEMA slackwater.{schema} CASCADE")


def filled(place, names=NAMES, numbers=(1, 2, 3)):
    place.sql(f"CREATE TABLE t ({declared(names)})")
    place.sql(f"INSERT INTO t VALUES {values(numbers, names)}")


def until(place, query, expected):
    wait_until(lambda: sorted(place.rows(query)) == sorted(expected), what=query)


@pytest.mark.parametrize("name", [*OURS, *OF_ENVELOPES, "before_key", "a`b"])
@pytest.mark.parametrize("envelope", ["UPSERT", "DEBEZIUM"])
def test_subscriptions_have_the_columns(place, envelope, name):
    names = [name, *(each for each in NAMES if each != name)]
    filled(place, names, (1, 2))
    place.sql("DECLARE plain CURSOR FOR SUBSCRIBE TO t WITH (PROGRESS)")
    place.sql(f"DECLARE keyed CURSOR FOR SUBSCRIBE TO t ENVELOPE {envelope} (KEY ({quoted(name)}))")
    place.sql(f"UPDATE t SET {quoted(names[1])} = 7 WHERE {quoted(name)} = 1")
    place.sql(f"DELETE FROM t WHERE {quoted(name)} = 2")
    one, two = row(1, names), row(2, names)
    changed = [1, 7, *one[2:]]
    nulls = [None] * (len(names) - 1)
    found, columns = [], ()
    while len(found) < 5:
        fetched = place.sql("FETCH ALL plain WITH (timeout = '1s')")
        columns = fetched.columns
        found += [each[2:] for each in fetched.rows if not each[1]]
    assert list(columns) == ["mz_timestamp", "mz_progressed", "mz_diff", *names]
    assert sorted(found[:2]) == [[1, *one], [1, *two]]
    assert sorted(found[2:4]) == [[-1, *one], [1, *changed]]
    assert found[4:] == [[-1, *two]]
    found = []
    while len(found) < 4:
        fetched = place.sql("FETCH ALL keyed WITH (timeout = '1s')")
        columns = fetched.columns
        found += [each[1:] for each in fetched.rows]
    head = ["mz_timestamp", "mz_state", name]
    if envelope == "UPSERT":
        assert list(columns) == [*head, *names[1:]]
        assert sorted(found[:2]) == [["upsert", *one], ["upsert", *two]]
        assert found[2:] == [["upsert", *changed], ["delete", 2, *nulls]]
    else:
        before, after = ([f"{side}_{each}" for each in names[1:]] for side in ("before", "after"))
        assert list(columns) == [*head, *before, *after]
        assert sorted(found[:2]) == [
            ["insert", 1, *nulls, *one[1:]],
            ["insert", 2, *nulls, *two[1:]],
        ]
        assert found[2:] == [
            ["upsert", 1, *one[1:], *changed[1:]],
            ["delete", 2, *two[1:], *nulls],
        ]
    place.sql("CLOSE plain")
    place.sql("CLOSE keyed")


def test_subscriptions_to_queries_and_cursors_have_the_columns(place):
    filled(place)
    query = f"SELECT *, {quoted('__time')}, {quoted('__time')} + 1 AS {quoted('__Time')} FROM t"
    now = place.value("EXPLAIN TIMESTAMP AS JSON FOR SELECT * FROM t")
    at = json.loads(now)["determination"]["timestamp_context"]["TimelineTimestamp"]["chosen_ts"]
    expected = [[*row(k), k, k + 1] for k in (1, 2, 3)]
    found = place.sql(f"SUBSCRIBE ({query}) AS OF {at} UP TO {at + 1}")
    assert list(found.columns) == ["mz_timestamp", "mz_diff", *NAMES, "__time", "__Time"]
    assert sorted(each[2:] for each in found.rows) == expected
    place.sql(f"DECLARE c CURSOR FOR {query} ORDER BY 1")
    found = place.sql("FETCH 2 c")
    assert list(found.columns) == [*NAMES, "__time", "__Time"]
    assert found.rows == expected[:2]
    assert place.rows("FETCH ALL c") == expected[2:]
    place.sql("CLOSE c")


def test_an_order_within_a_time_takes_the_names(place):
    filled(place)
    for name in NAMES:
        ordered = f"SUBSCRIBE TO t WITHIN TIMESTAMP ORDER BY {quoted(name)} DESC"
        if name == "mz_diff":
            with pytest.raises(SqlError) as refused:
                place.sql(f"DECLARE c CURSOR FOR {ordered}")
            assert refused.value.condition == "SLACKWATER_INVALID_OPTION"
            continue
        place.sql(f"DECLARE c CURSOR FOR {ordered}")
        assert [each[2] for each in place.rows("FETCH 3 c")] == [3, 2, 1]
        place.sql("CLOSE c")


def test_python_gets_the_columns(place):
    filled(place)
    found = place.application.python(
        "import slackwater\n"
        "updates, names, rows = slackwater.subscribe(spark, 't'), None, []\n"
        "while len(rows) < 3:\n"
        "    batch = next(updates)\n"
        "    names = batch.schema.names\n"
        "    rows += zip(*(column.to_pylist() for column in batch.columns[1:]))\n"
        "updates.close()\n"
        "result = [names, rows]"
    )
    assert found[0] == ["mz_timestamp", "mz_diff", *NAMES]
    assert sorted(found[1]) == [[1, *row(k)] for k in (1, 2, 3)]


@pytest.mark.parametrize("format", ["JSON", "PARQUET"])
@pytest.mark.parametrize("envelope", ["DIFF", "UPSERT", "DEBEZIUM"])
def test_sinks_write_the_columns(place, format, envelope):
    own = {"DIFF": {"mz_timestamp", "mz_diff"}, "UPSERT": {"mz_timestamp", "mz_op"}}
    names = [name for name in NAMES if name not in own.get(envelope, ())]
    filled(place, names)
    key = "" if envelope == "DIFF" else f" KEY ({quoted(names[0])}, {quoted(names[1])})"
    folder = place.folder / "out"
    place.sql(
        f"CREATE SINK s FROM t INTO FILES (PATH '{folder}', FORMAT {format})"
        f" ENVELOPE {envelope}{key}"
    )
    place.sql(f"DELETE FROM t WHERE {quoted(names[0])} = 2")
    gone = row(2, names)

    def written():
        found = []
        for file in sorted(folder.glob("*.jsonl")):
            found += map(json.loads, file.read_text().splitlines())
        for file in sorted(folder.glob("*.parquet")):
            found += pq.read_table(file).to_pylist()
        return found

    wait_until(lambda: len(written()) == 4, what="the sink has written")
    *first, last = written()
    as_rows = [dict(zip(names, row(k, names), strict=True)) for k in (1, 2, 3)]
    if envelope == "DIFF":
        assert last == {"mz_timestamp": last["mz_timestamp"], "mz_diff": -1, **as_rows[1]}
        shown = [{k: v for k, v in each.items() if k in names} for each in first]
    elif envelope == "UPSERT":
        assert [last["mz_op"], *(last[name] for name in names)] == [
            "delete",
            *gone[:2],
            *[None] * (len(names) - 2),
        ]
        shown = [{k: v for k, v in each.items() if k in names} for each in first]
    else:
        assert (last["before"], last["after"]) == (as_rows[1], None)
        shown = [each["after"] for each in first]
    assert sorted(shown, key=lambda each: each[names[0]]) == as_rows
    if envelope == "DIFF":
        pattern = "*.jsonl" if format == "JSON" else "*.parquet"
        place.sql(
            f"CREATE SOURCE back (mz_diff BIGINT, {declared(names)}) FROM FILES"
            f" (PATH '{folder}', FORMAT {format}, PATTERN '{pattern}')"
        )
        listed = ", ".join(map(quoted, names))
        until(
            place,
            f"SELECT {listed} FROM back GROUP BY {listed} HAVING sum(mz_diff) > 0",
            [row(1, names), row(3, names)],
        )


@pytest.mark.parametrize(
    ("envelope", "name"),
    [
        ("DIFF", "mz_timestamp"),
        ("DIFF", "Mz_Diff"),
        ("UPSERT KEY (k)", "MZ_TIMESTAMP"),
        ("UPSERT KEY (k)", "mz_op"),
    ],
)
def test_sinks_refuse_the_columns_of_their_files(place, envelope, name):
    place.sql(f"CREATE TABLE t (k INT, {quoted(name)} INT)")
    place.sql("CREATE TABLE u (k INT)")
    into = f"INTO FILES (PATH '{place.folder}/out', FORMAT JSON) ENVELOPE {envelope}"
    with pytest.raises(SqlError) as refused:
        place.sql(f"CREATE SINK s FROM t {into}")
    assert refused.value.condition == "SLACKWATER_DUPLICATE_COLUMN"
    place.sql(f"CREATE SINK s FROM u {into}")
    with pytest.raises(SqlError) as refused:
        place.sql("ALTER SINK s SET FROM t")
    assert refused.value.condition == "SLACKWATER_DUPLICATE_COLUMN"


@pytest.mark.parametrize("types", ["declared", "inferred"])
@pytest.mark.parametrize("format", ["CSV", "JSON", "PARQUET"])
def test_files_have_the_columns(place, format, types):
    folder = place.folder / "in"
    folder.mkdir()
    names = list(NAMES)
    rows = [row(k) for k in (1, 2, 3)]
    if format == "CSV":
        with open(folder / "f.csv", "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([names, *rows])
    elif format == "JSON":
        lines = [json.dumps(dict(zip(names, each, strict=True))) for each in rows]
        (folder / "f.json").write_text("\n".join(lines))
    else:
        table = pa.table([pa.array(each) for each in zip(*rows, strict=True)], names=names)
        pq.write_table(table, folder / "f.parquet")
    columns = f"({declared(names)}) " if types == "declared" else ""
    header = ", HEADER true" if format == "CSV" else ""
    place.sql(f"CREATE SOURCE s {columns}FROM FILES (PATH '{folder}', FORMAT {format}{header})")
    listed = ", ".join(map(quoted, names))
    until(place, f"SELECT {listed} FROM s", rows)
    shown = [each[0] for each in place.rows("DESCRIBE s")]
    assert sorted(shown) == sorted(names)
    place.sql(f"CREATE MATERIALIZED VIEW v AS SELECT {listed}, count(*) AS n FROM s GROUP BY ALL")
    assert sorted(place.rows("SELECT * FROM v")) == [[*each, 1] for each in rows]


def test_webhooks_have_the_columns(place):
    names = list(NAMES)
    headers = ", ".join(f"INCLUDE HEADER 'x-{at}' AS {quoted(n)}" for at, n in enumerate(names))
    place.sql("CREATE SECRET hidden AS 'z'")
    place.sql(
        f"CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, {headers}, CHECK (WITH"
        " (BODY AS `__time`, HEADERS AS `__diff`, SECRET hidden AS `__TIME'`)"
        " `__time` = 'hello' AND `__diff`['x-0'] = 'v0' AND `__TIME'` = 'z'))"
    )
    at = place.value(
        "SELECT url FROM mz_internal.mz_webhook_sources"
        f" WHERE name = 'w' AND url LIKE '%/{place.schema}/%'"
    )
    sent = [(f"x-{number}", f"v{number}") for number in range(len(names))]
    assert request(at, b"hello", sent).status == 200
    assert request(at, b"other", sent).status == 400
    listed = ", ".join(map(quoted, names))
    assert place.rows(f"SELECT {listed} FROM w") == [[f"v{n}" for n in range(len(names))]]


def test_changefeeds_have_the_columns(place):
    names = list(NAMES)
    place.sql(
        "CREATE SOURCE bank FROM CHANGEFEED (FORMAT COCKROACH)"
        f" FOR TABLES (a ({declared(names)}) KEY ({quoted(names[0])}, {quoted(names[1])})"
        f" EXTRAS `__Time'`)"
    )
    address = place.application.python(
        "result = spark.sparkContext.getConf().get('spark.slackwater.ingress.address')"
    )
    at = f"http://{address}/api/changefeed/slackwater/{place.schema}/bank"
    after = dict(zip(names, row(1), strict=True))
    change = {"topic": "a", "key": row(1)[:2], "after": {**after, "more": 1}, "updated": "5.0"}
    assert request(at, json.dumps({"payload": [change]}).encode()).status == 200
    assert request(at, b'{"resolved": "6.0"}').status == 200
    listed = ", ".join(map(quoted, [*names, "__Time'"]))
    until(place, f"SELECT {listed} FROM a", [[*row(1), '{"more":1}']])


def test_large_tables_and_views_have_the_columns(place):
    """In files of executors, with views over them."""
    listed = ", ".join(
        f"id * 1000 + {at} AS {quoted(name)}" if at else f"id AS {quoted(name)}"
        for at, name in enumerate(NAMES)
    )
    time, diff = quoted("__time"), quoted("__DIFF")
    place.sql(f"CREATE TABLE big AS SELECT {listed} FROM range({LARGE})")
    place.sql("CREATE TABLE bare AS SELECT id AS k FROM range(10)")
    place.sql("CREATE MATERIALIZED VIEW all_of_it AS SELECT * FROM big")
    place.sql(
        f"CREATE MATERIALIZED VIEW joined ({time}, n, {diff}) AS"
        f" SELECT k, count(*), sum({diff}) FROM bare JOIN big ON k = {time} GROUP BY k"
    )
    place.sql(
        f"CREATE MATERIALIZED VIEW ranked AS SELECT {time}, {diff},"
        f" row_number() OVER (ORDER BY {diff} DESC) AS {quoted('__Row')} FROM big"
        f" WHERE {time} < 100"
    )
    place.sql(f"DELETE FROM big WHERE {time} % 3 = 0")
    place.sql(f"UPDATE big SET {diff} = -1 WHERE {time} = 1")
    place.sql(f"INSERT INTO big SELECT {', '.join(map(quoted, NAMES))} FROM all_of_it LIMIT 0")
    expected = [LARGE - LARGE // 3, sum(k for k in range(LARGE) if k % 3)]
    for relation in ("big", "all_of_it"):
        assert place.rows(f"SELECT count(*), sum({time}) FROM {relation}") == [expected]
        found = place.rows(f"SELECT * FROM {relation} WHERE {time} IN (1, 2, 3) ORDER BY 1")
        assert found == [[1, -1, *row(1)[2:]], row(2)]
        assert place.value(f"SELECT count(*) FROM {relation} WHERE {diff} < 0") == 1
    kept = [k for k in range(10) if k % 3]
    assert place.rows("SELECT * FROM joined ORDER BY 1") == [
        [k, 1, -1 if k == 1 else k * 1000 + 1] for k in kept
    ]
    assert place.rows("SELECT * FROM ranked ORDER BY 3 LIMIT 1") == [[98, 98001, 1]]
    place.sql(
        f"MERGE INTO big USING (SELECT k + 1 AS {time} FROM bare) s ON big.{time} = s.{time}"
        f" WHEN MATCHED THEN UPDATE SET {diff} = 0"
        f" WHEN NOT MATCHED THEN INSERT ({time}, {diff}) VALUES (s.{time}, -2)"
    )
    assert place.rows(f"SELECT count(*), sum({diff}) FROM big WHERE {time} <= 10") == [[10, -6]]
    place.sql("TRUNCATE TABLE big")
    assert place.value("SELECT count(*) FROM all_of_it") == 0


def test_columns_come_later(place):
    place.sql("CREATE TABLE t (k INT)")
    place.sql("INSERT INTO t VALUES (1)")
    place.sql(f"CREATE TABLE u AS SELECT CAST(id AS INT) AS k FROM range({LARGE})")
    for table in ("t", "u"):
        place.sql(f"ALTER TABLE {table} ADD COLUMN `__diff` INT")
        place.sql(f"ALTER TABLE {table} ADD COLUMN `__Time` STRING")
        place.sql(f"INSERT INTO {table} VALUES (-2, 7, 'x')")
        assert place.rows(f"SELECT * FROM {table} WHERE k < 2 AND k <> 0 ORDER BY k") == [
            [-2, 7, "x"],
            [1, None, None],
        ]
        place.sql(f"UPDATE {table} SET `__diff` = 8, `__Time` = 'y' WHERE k = 1")
        assert place.rows(f"SELECT `__diff`, `__time` FROM {table} WHERE k = 1") == [[8, "y"]]
        with pytest.raises(SqlError) as refused:
            place.sql(f"ALTER TABLE {table} ADD COLUMN `__TIME` INT")
        assert refused.value.sqlstate in ("42710", "42701", "42711")


def test_all_of_it_is_there_after_a_kill(tmp_path):
    location = tmp_path / "environment"
    with Application(location, master="local[2]") as first:
        first.sql("USE slackwater")
        first.sql(f"CREATE TABLE t ({declared(NAMES)})")
        first.sql(f"INSERT INTO t VALUES {values((1, 2))}")
        first.sql(
            "CREATE TABLE big AS SELECT id AS `__time`, -id AS `__diff`"
            f" FROM range({LARGE}) WHERE id % 2 = 0"
        )
        first.sql("CREATE MATERIALIZED VIEW v AS SELECT `__time`, `__diff` FROM big")
        folder = Path(tmp_path) / "out"
        first.sql(f"CREATE SINK s FROM v INTO FILES (PATH '{folder}', FORMAT PARQUET)")
        assert first.value("SELECT count(*) FROM v") == LARGE // 2
        first.kill()
    with Application(location, master="local[2]") as second:
        second.sql("USE slackwater")
        assert sorted(second.rows("SELECT * FROM t")) == [row(1), row(2)]
        second.sql("INSERT INTO big VALUES (-1, 5)")
        second.sql("DELETE FROM big WHERE `__time` > 2")
        assert second.rows("SELECT * FROM v ORDER BY 1") == [[-1, 5], [0, 0], [2, -2]]

        def written():
            found = [pq.read_table(file) for file in folder.glob("*.parquet")]
            left = {}
            for each in found:
                for update in each.to_pylist():
                    key = (update["__time"], update["__diff"])
                    left[key] = left.get(key, 0) + update["mz_diff"]
            return sorted(key for key, count in left.items() if count)

        wait_until(lambda: written() == [(-1, 5), (0, 0), (2, -2)], what="the sink goes on")
