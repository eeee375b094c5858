"""Columns with names of ours, and odd ones, through sources, sinks, subscriptions and restarts."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.applications.odd_columns import (
    NAMES,
    OF_ENVELOPES,
    OURS,
    declared,
    quoted,
    row,
    values,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

LARGE = 60_000
"""More rows than are kept in the metastore: they are in a file."""


def filled(workplace, names=NAMES, numbers=(1, 2, 3)):
    workplace.sql(f"CREATE TABLE t ({declared(names)})")
    workplace.sql(f"INSERT INTO t VALUES {values(numbers, names)}")


def until(workplace, query, expected):
    wait_until(lambda: sorted(workplace.rows(query)) == sorted(expected), what=query)


KEYS = (*OURS, *OF_ENVELOPES, "before_key", "a`b")


@pytest.mark.parametrize("envelope", ["UPSERT", "DEBEZIUM"])
def test_subscriptions_have_the_columns(workplace, envelope):
    """Each name as the key in turn, with all other ones beside it."""
    filled(workplace, numbers=(1, 2))
    workplace.sql("DECLARE plain CURSOR FOR SUBSCRIBE TO t WITH (PROGRESS)")
    for number, key in enumerate(KEYS):
        keyed = f"SUBSCRIBE TO t ENVELOPE {envelope} (KEY ({quoted(key)}))"
        workplace.sql(f"DECLARE keyed_{number} CURSOR FOR {keyed}")
    workplace.sql(f"UPDATE t SET value = 7 WHERE {quoted(NAMES[0])} = 1")
    workplace.sql(f"DELETE FROM t WHERE {quoted(NAMES[0])} = 2")
    changed = [7 if name == "value" else cell for name, cell in zip(NAMES, row(1), strict=True)]
    columns, found = fetched(workplace, "plain", 5, lambda each: not each[1])
    assert columns == ["mz_timestamp", "mz_progressed", "mz_diff", *NAMES]
    found = [each[2:] for each in found]
    assert sorted(found[:2]) == [[1, *row(1)], [1, *row(2)]]
    assert sorted(found[2:4]) == [[-1, *row(1)], [1, *changed]]
    assert found[4:] == [[-1, *row(2)]]
    for number, key in enumerate(KEYS):
        others = [name for name in NAMES if name != key]
        at = NAMES.index(key)
        one, two, last = (
            [cells[at], *cells[:at], *cells[at + 1 :]] for cells in (row(1), row(2), changed)
        )
        nulls = [None] * len(others)
        columns, found = fetched(workplace, f"keyed_{number}", 4)
        found = [each[1:] for each in found]
        head = ["mz_timestamp", "mz_state", key]
        if envelope == "UPSERT":
            assert columns == [*head, *others]
            assert sorted(found[:2]) == [["upsert", *one], ["upsert", *two]]
            assert found[2:] == [["upsert", *last], ["delete", two[0], *nulls]]
        else:
            before, after = ([f"{side}_{each}" for each in others] for side in ("before", "after"))
            assert columns == [*head, *before, *after]
            assert sorted(found[:2]) == [
                ["insert", one[0], *nulls, *one[1:]],
                ["insert", two[0], *nulls, *two[1:]],
            ]
            assert found[2:] == [
                ["upsert", one[0], *one[1:], *last[1:]],
                ["delete", two[0], *two[1:], *nulls],
            ]


def fetched(workplace, cursor, count, counts=lambda row: True):
    """The columns of a cursor, which is closed, and so many of its rows that count."""
    found, columns = [], []
    while len(found) < count:
        answer = workplace.sql(f"FETCH ALL {cursor} WITH (timeout = '1s')")
        columns = list(answer.columns)
        found += filter(counts, answer.rows)
    workplace.sql(f"CLOSE {cursor}")
    return columns, found


def test_subscriptions_to_queries_and_cursors_have_the_columns(workplace):
    filled(workplace)
    query = f"SELECT *, {quoted('__time')}, {quoted('__time')} + 1 AS {quoted('__Time')} FROM t"
    now = workplace.value("EXPLAIN TIMESTAMP AS JSON FOR SELECT * FROM t")
    at = json.loads(now)["determination"]["timestamp_context"]["TimelineTimestamp"]["chosen_ts"]
    expected = [[*row(k), k, k + 1] for k in (1, 2, 3)]
    found = workplace.sql(f"SUBSCRIBE ({query}) AS OF {at} UP TO {at + 1}")
    assert list(found.columns) == ["mz_timestamp", "mz_diff", *NAMES, "__time", "__Time"]
    assert sorted(each[2:] for each in found.rows) == expected
    workplace.sql(f"DECLARE c CURSOR FOR {query} ORDER BY 1")
    found = workplace.sql("FETCH 2 c")
    assert list(found.columns) == [*NAMES, "__time", "__Time"]
    assert found.rows == expected[:2]
    assert workplace.rows("FETCH ALL c") == expected[2:]
    workplace.sql("CLOSE c")


def test_an_order_within_a_time_takes_the_names(workplace):
    filled(workplace)
    for name in NAMES:
        ordered = f"SUBSCRIBE TO t WITHIN TIMESTAMP ORDER BY {quoted(name)} DESC"
        if name == "mz_diff":
            with pytest.raises(SqlError) as refused:
                workplace.sql(f"DECLARE c CURSOR FOR {ordered}")
            assert refused.value.condition == "SLACKWATER_INVALID_OPTION"
            continue
        workplace.sql(f"DECLARE c CURSOR FOR {ordered}")
        assert [each[2] for each in workplace.rows("FETCH 3 c")] == [3, 2, 1]
        workplace.sql("CLOSE c")


def test_python_gets_the_columns(workplace):
    filled(workplace)
    found = workplace.application.python(
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
def test_sinks_write_the_columns(workplace, format, envelope):
    own = {"DIFF": {"mz_timestamp", "mz_diff"}, "UPSERT": {"mz_timestamp", "mz_op"}}
    names = [name for name in NAMES if name not in own.get(envelope, ())]
    filled(workplace, names)
    key = "" if envelope == "DIFF" else f" KEY ({quoted(names[0])}, {quoted(names[1])})"
    folder = workplace.folder / "out"
    workplace.sql(
        f"CREATE SINK s FROM t INTO FILES (PATH '{folder}', FORMAT {format})"
        f" ENVELOPE {envelope}{key}"
    )
    workplace.sql(f"DELETE FROM t WHERE {quoted(names[0])} = 2")
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
        workplace.sql(
            f"CREATE SOURCE back (mz_diff BIGINT, {declared(names)}) FROM FILES"
            f" (PATH '{folder}', FORMAT {format}, PATTERN '{pattern}')"
        )
        listed = ", ".join(map(quoted, names))
        until(
            workplace,
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
def test_sinks_refuse_the_columns_of_their_files(workplace, envelope, name):
    workplace.sql(f"CREATE TABLE t (k INT, {quoted(name)} INT)")
    workplace.sql("CREATE TABLE u (k INT)")
    into = f"INTO FILES (PATH '{workplace.folder}/out', FORMAT JSON) ENVELOPE {envelope}"
    with pytest.raises(SqlError) as refused:
        workplace.sql(f"CREATE SINK s FROM t {into}")
    assert refused.value.condition == "SLACKWATER_DUPLICATE_COLUMN"
    workplace.sql(f"CREATE SINK s FROM u {into}")
    with pytest.raises(SqlError) as refused:
        workplace.sql("ALTER SINK s SET FROM t")
    assert refused.value.condition == "SLACKWATER_DUPLICATE_COLUMN"


@pytest.mark.parametrize("types", ["declared", "inferred"])
@pytest.mark.parametrize("format", ["CSV", "JSON", "PARQUET"])
def test_files_have_the_columns(workplace, format, types):
    folder = workplace.folder / "in"
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
    workplace.sql(f"CREATE SOURCE s {columns}FROM FILES (PATH '{folder}', FORMAT {format}{header})")
    listed = ", ".join(map(quoted, names))
    until(workplace, f"SELECT {listed} FROM s", rows)
    shown = [each[0] for each in workplace.rows("DESCRIBE s")]
    assert sorted(shown) == sorted(names)
    workplace.sql(
        f"CREATE MATERIALIZED VIEW v AS SELECT {listed}, count(*) AS n FROM s GROUP BY ALL"
    )
    assert sorted(workplace.rows("SELECT * FROM v")) == [[*each, 1] for each in rows]


@pytest.mark.nightly
def test_large_tables_and_views_have_the_columns(workplace):
    """In files of executors, with views over them."""
    listed = ", ".join(
        f"id * 1000 + {at} AS {quoted(name)}" if at else f"id AS {quoted(name)}"
        for at, name in enumerate(NAMES)
    )
    time, diff = quoted("__time"), quoted("__DIFF")
    workplace.sql(f"CREATE TABLE big AS SELECT {listed} FROM range({LARGE})")
    workplace.sql("CREATE TABLE bare AS SELECT id AS k FROM range(10)")
    workplace.sql("CREATE MATERIALIZED VIEW all_of_it AS SELECT * FROM big")
    workplace.sql(
        f"CREATE MATERIALIZED VIEW joined ({time}, n, {diff}) AS"
        f" SELECT k, count(*), sum({diff}) FROM bare JOIN big ON k = {time} GROUP BY k"
    )
    workplace.sql(
        f"CREATE MATERIALIZED VIEW ranked AS SELECT {time}, {diff},"
        f" row_number() OVER (ORDER BY {diff} DESC) AS {quoted('__Row')} FROM big"
        f" WHERE {time} < 100"
    )
    workplace.sql(f"DELETE FROM big WHERE {time} % 3 = 0")
    workplace.sql(f"UPDATE big SET {diff} = -1 WHERE {time} = 1")
    workplace.sql(f"INSERT INTO big SELECT {', '.join(map(quoted, NAMES))} FROM all_of_it LIMIT 0")
    expected = [LARGE - LARGE // 3, sum(k for k in range(LARGE) if k % 3)]
    for relation in ("big", "all_of_it"):
        assert workplace.rows(f"SELECT count(*), sum({time}) FROM {relation}") == [expected]
        found = workplace.rows(f"SELECT * FROM {relation} WHERE {time} IN (1, 2, 3) ORDER BY 1")
        assert found == [[1, -1, *row(1)[2:]], row(2)]
        assert workplace.value(f"SELECT count(*) FROM {relation} WHERE {diff} < 0") == 1
    kept = [k for k in range(10) if k % 3]
    assert workplace.rows("SELECT * FROM joined ORDER BY 1") == [
        [k, 1, -1 if k == 1 else k * 1000 + 1] for k in kept
    ]
    assert workplace.rows("SELECT * FROM ranked ORDER BY 3 LIMIT 1") == [[98, 98001, 1]]
    workplace.sql(
        f"MERGE INTO big USING (SELECT k + 1 AS {time} FROM bare) s ON big.{time} = s.{time}"
        f" WHEN MATCHED THEN UPDATE SET {diff} = 0"
        f" WHEN NOT MATCHED THEN INSERT ({time}, {diff}) VALUES (s.{time}, -2)"
    )
    assert workplace.rows(f"SELECT count(*), sum({diff}) FROM big WHERE {time} <= 10") == [[10, -6]]
    workplace.sql("TRUNCATE TABLE big")
    assert workplace.value("SELECT count(*) FROM all_of_it") == 0


def test_columns_come_later(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("INSERT INTO t VALUES (1)")
    workplace.sql(f"CREATE TABLE u AS SELECT CAST(id AS INT) AS k FROM range({LARGE})")
    for table in ("t", "u"):
        workplace.sql(f"ALTER TABLE {table} ADD COLUMN `__diff` INT")
        workplace.sql(f"ALTER TABLE {table} ADD COLUMN `__Time` STRING")
        workplace.sql(f"INSERT INTO {table} VALUES (-2, 7, 'x')")
        assert workplace.rows(f"SELECT * FROM {table} WHERE k < 2 AND k <> 0 ORDER BY k") == [
            [-2, 7, "x"],
            [1, None, None],
        ]
        workplace.sql(f"UPDATE {table} SET `__diff` = 8, `__Time` = 'y' WHERE k = 1")
        assert workplace.rows(f"SELECT `__diff`, `__time` FROM {table} WHERE k = 1") == [[8, "y"]]
        with pytest.raises(SqlError) as refused:
            workplace.sql(f"ALTER TABLE {table} ADD COLUMN `__TIME` INT")
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
