"""Structured Streaming reads collections: contents, inserts and changes, each of them once."""

from __future__ import annotations

import pytest
from tests.support.applications.application import (
    Application,
    SqlError,
    kill,
    only_coordinator,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

HISTORY = "WITH (RETAIN HISTORY FOR '1 hour')"
SINCE = (
    "SELECT read_frontier FROM mz_internal.mz_frontiers f"
    " JOIN mz_catalog.mz_tables t ON f.object_id = t.id WHERE t.name = 't'"
)
STREAM = """
streams = vars(spark).setdefault('streams', {{}})
found = vars(spark).setdefault('batches', {{}}).setdefault({name!r}, [])

def keep(batch, number):
    found.append(sorted((tuple(row) for row in batch.collect()), key=str))

reader = spark.readStream
for option, value in {options!r}.items():
    reader = reader.option(option, value)
writer = reader.table({table!r}).writeStream.option('checkpointLocation', {checkpoint!r})
result = None
"""


class Stream:
    """A stream of a relation in an application, with a checkpoint of its own."""

    def __init__(self, place, table, name, **options):
        self._python = place.python
        self._this = f"spark.streams[{name!r}]"
        self._batches = f"spark.batches[{name!r}]"
        self._code = STREAM.format(
            name=name, options=options, table=table, checkpoint=str(place.folder / name)
        )

    def start(self):
        self._python(f"{self._code}{self._this} = writer.foreachBatch(keep).start()")
        return self

    def run(self):
        """Reads what there is, and ends."""
        begun = "writer.foreachBatch(keep).trigger(availableNow=True).start()"
        self._python(f"{self._code}{begun}.awaitTermination()")
        return self._taken()

    def all(self):
        """The batches with rows since the last time that somebody asked."""
        self._python(f"{self._this}.processAllAvailable()\nresult = None")
        return self._taken()

    def stop(self):
        self._python(f"{self._this}.stop()\nresult = None")

    def _taken(self):
        found = self._python(f"result = list({self._batches})\n{self._batches}.clear()")
        return [[tuple(row) for row in batch] for batch in found if batch]


def test_contents_and_what_is_inserted(workplace):
    workplace.sql("CREATE TABLE t (k INT, v STRING)")
    workplace.sql("INSERT INTO t VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    workplace.sql("CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v")
    stream = Stream(workplace, "t", "inserts").start()
    grouped = Stream(workplace, "m", "grouped").start()
    assert stream.all() == [[(1, "a"), (1, "a"), (2, None)]]
    assert grouped.all() == [[("a", 2), (None, 1)]]
    workplace.sql("UPDATE t SET v = 'b' WHERE k = 2")
    assert stream.all() == [[(2, "b")]]
    assert grouped.all() == [[("b", 1)]]
    workplace.sql("DELETE FROM t WHERE k = 1")
    assert stream.all() == grouped.all() == []
    stream.stop()
    grouped.stop()


def test_changes_are_those_of_subscribe(workplace):
    """Also of rows in files, of types that have no order, and at each time."""
    workplace.sql(f"CREATE TABLE t (k INT, m MAP<STRING, INT>, c CHAR(3)) {HISTORY}")
    workplace.sql("INSERT INTO t SELECT id, map('x', id), 'a' FROM range(30000)")
    begun = workplace.value("SELECT mz_now() FROM t LIMIT 1")
    stream = Stream(workplace, "t", "changes", changes=True, snapshot=False, asOf=begun).start()
    assert stream.all() == []
    workplace.sql("DELETE FROM t WHERE k >= 3")
    workplace.sql("INSERT INTO t VALUES (1, map('x', 1), 'a'), (7, map('y', 2, 'x', 1), NULL)")
    found = [row for batch in stream.all() for row in batch]
    end = workplace.value("SELECT mz_now() FROM t LIMIT 1")
    stream.stop()
    asked = f"SUBSCRIBE t WITH (SNAPSHOT = false) AS OF {begun} UP TO {end + 1}"
    expected = [tuple(row) for row in workplace.rows(asked)]
    assert len(found) == len(expected) == 29_999
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_a_checkpoint_goes_on_where_it_was(workplace):
    workplace.sql(f"CREATE TABLE t (k INT) {HISTORY}")
    workplace.sql("CREATE TABLE short (k INT)")
    workplace.sql("INSERT INTO t VALUES (1)")
    workplace.sql("INSERT INTO short VALUES (1)")
    first, second = Stream(workplace, "t", "kept"), Stream(workplace, "short", "forgotten")
    assert first.run() == second.run() == [[(1,)]]
    assert first.run() == []
    workplace.sql("INSERT INTO t VALUES (2), (3)")
    workplace.sql("DELETE FROM t WHERE k = 2")
    assert first.run() == [[(2,), (3,)]]


def test_a_collection_that_was_made_anew_is_another_one(workplace):
    workplace.sql(f"CREATE TABLE t (k INT) {HISTORY}")
    stream = Stream(workplace, "t", "first")
    stream.run()
    workplace.sql("DROP TABLE t")
    workplace.sql("CREATE TABLE t (k INT)")
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_REPLACED"):
        stream.run()


def test_columns_of_changes_have_names_everywhere(workplace):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("INSERT INTO t VALUES (1), (2)")
    changes = "spark.readStream.option('changes', True).table('t')"
    frame = f"{changes}.withColumn('one', F.lit(1)).select('*', F.col('mz_diff').alias('d'))"
    code = f"from pyspark.sql import functions as F\nresult = {frame}.columns"
    assert workplace.python(code) == ["mz_timestamp", "mz_diff", "k", "one", "d"]


@pytest.mark.parametrize(
    ("code", "condition"),
    [
        ("spark.readStream.option('ignoreDeletes', True).table('t')", "SLACKWATER_UNKNOWN_OPTION"),
        ("spark.readStream.option('changes', 'some').table('t')", "SLACKWATER_INVALID_OPTION"),
        ("spark.readStream.option('asOf', 'noon').table('t')", "SLACKWATER_INVALID_AS_OF"),
        ("spark.readStream.table('slackwater.mz_catalog.mz_tables')", "SLACKWATER_UNSUPPORTED"),
        ("spark.readStream.table('nothing')", "TABLE_OR_VIEW_NOT_FOUND"),
        (
            "spark.readStream.table('t').writeStream.option('checkpointLocation', '$FOLDER')"
            ".toTable('t')",
            "SLACKWATER_UNSUPPORTED",
        ),
        (
            "spark.sql('CREATE MATERIALIZED VIEW m AS SELECT * FROM STREAM t')",
            "SLACKWATER_UNSUPPORTED",
        ),
    ],
)
def test_what_is_refused(workplace, code, condition):
    workplace.sql("CREATE TABLE t (k INT)")
    with pytest.raises(SqlError, match=condition):
        workplace.python(code.replace("$FOLDER", str(workplace.folder)) + "\nresult = None")


def test_a_leader_that_is_killed_and_a_history_that_is_gone(tmp_path):
    """A stream goes on under the next leader if the collection remembers, and else says so."""
    with Application(tmp_path / "environment") as application:
        application.sql("USE slackwater.default")
        place = Here(application, tmp_path)
        application.sql(f"CREATE TABLE t (k INT) {HISTORY}")
        application.sql("INSERT INTO t VALUES (1)")
        stream = Stream(place, "t", "t", changes=True).start()
        assert [row[1:] for batch in stream.all() for row in batch] == [(1, 1)]
        kill(only_coordinator(application.location))
        application.sql("DELETE FROM t")
        application.sql("INSERT INTO t VALUES (2)")
        found = [row[1:] for batch in stream.all() for row in batch]
        assert sorted(found) == [(-1, 1), (1, 2)]
        stream.stop()
        application.sql("ALTER TABLE t RESET (RETAIN HISTORY)")
        now = application.value("SELECT mz_now() FROM t LIMIT 1")
        wait_until(lambda: application.value(SINCE) > now, what="the history is forgotten")
        with pytest.raises(SqlError, match="SLACKWATER_NO_VALID_TIMESTAMP"):
            Stream(place, "t", "t", changes=True).start().all()


class Here:
    """What `Stream` needs of a place."""

    def __init__(self, application, folder):
        self.python = application.python
        self.folder = folder
