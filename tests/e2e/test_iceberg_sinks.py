"""Sinks that write Iceberg tables, over a coordinator and Spark, read back by libraries alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.iceberg.lakes import a_lake, expire, insisting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

INTERVAL = "WITH (COMMIT INTERVAL '200 ms')"


@pytest.fixture
def lake(request, workplace, iceberg_java):
    return a_lake(workplace, request.param, iceberg_java)


def view(place, name):
    return sorted(map(tuple, place.rows(f"SELECT * FROM {name}")), key=str)


def follows(place, lake, table, name):
    """Waits until the table has the view."""
    wait_until(lambda: lake.rows(table) == view(place, name), what="the table has the view")


def rewrite(lake, name):
    """Writes all rows anew, which are the same, and one of another writer."""
    table = lake.table(name)
    rows = table.scan().to_arrow()
    table.overwrite(rows)
    theirs = rows.slice(0, 1).set_column(2, rows.schema.field(2), pa.nulls(1, pa.int32()))
    lake.table(name).append(theirs)


def statuses(place, name):
    return place.rows(
        "SELECT status, error FROM slackwater.mz_internal.mz_sink_statuses s "
        f"JOIN slackwater.mz_catalog.mz_sinks k ON k.id = s.id WHERE k.name = '{name}'"
    )


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_tables_follow_a_view_whatever_others_do(workplace, lake):
    """Others append, write files anew and let snapshots expire; the leader is killed."""
    place = workplace
    place.sql("CREATE TABLE sales (item STRING, amount INT)")
    place.sql(
        "CREATE MATERIALIZED VIEW total AS "
        "SELECT item, sum(amount) AS amount FROM sales GROUP BY item"
    )
    place.sql("INSERT INTO sales VALUES ('a', 1), ('b', 2), (NULL, 3)")
    place.sql(
        f"CREATE SINK one FROM total INTO {lake.into('one')} KEY (item) MODE UPSERT {INTERVAL}"
    )
    place.sql(f"CREATE SINK all FROM total INTO {lake.into('all')} MODE APPEND {INTERVAL}")
    follows(place, lake, "one", "total")
    place.sql("INSERT INTO sales VALUES ('a', 10), ('c', 1), (NULL, 4)")
    place.sql("DELETE FROM sales WHERE item = 'b'")
    follows(place, lake, "one", "total")
    wait_until(lambda: lake.summed("all")[0] == view(place, "total"), what="all changes are there")
    insisting(lambda: expire(lake, "one"))
    insisting(lambda: rewrite(lake, "all"))
    place.sql("INSERT INTO sales VALUES ('b', 7), ('a', 1)")
    follows(place, lake, "one", "total")
    kill(only_coordinator(place.application.location))
    place.sql("INSERT INTO sales VALUES ('d', 1), ('a', 1)")
    place.sql("UPDATE sales SET amount = 9 WHERE item = 'c'")
    follows(place, lake, "one", "total")
    wait_until(lambda: lake.summed("all")[0] == view(place, "total"), what="all changes are there")
    assert len(lake.summed("all")[1]) >= 5
    ((_, created),) = place.rows("SHOW CREATE SINK one")
    assert created.endswith(
        f"INTO ICEBERG CATALOG CONNECTION `slackwater`.`{place.schema}`.`lake` (NAMESPACE "
        f"'{lake.namespace}', TABLE 'one') KEY (`item`) MODE UPSERT WITH (COMMIT INTERVAL '200 ms')"
    )
    shown = "SELECT type, envelope_type, format FROM slackwater.mz_catalog.mz_sinks WHERE name = "
    assert place.rows(f"{shown}'one'") == [["iceberg", "upsert", None]]
    assert statuses(place, "one") == [["running", None]]
    tables = "SELECT namespace, `table` FROM slackwater.mz_catalog.mz_iceberg_sinks"
    assert sorted(place.rows(f"{tables} WHERE namespace = '{lake.namespace}'")) == [
        [lake.namespace, "all"],
        [lake.namespace, "one"],
    ]
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("DROP CONNECTION lake")


@pytest.mark.parametrize("lake", ["sql"], indirect=True)
def test_columns_of_the_relation_become_columns_of_the_table(workplace, lake):
    """ALTER SINK ... SET FROM a relation that has more."""
    place = workplace
    place.sql("CREATE TABLE t (k INT, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    compacting = INTERVAL.replace(")", ", COMPACT EVERY = 1)")
    place.sql(f"CREATE SINK one FROM t INTO {lake.into('one')} KEY (k) MODE UPSERT {compacting}")
    rewriting = INTERVAL.replace(")", ", DELETES = 'rewrite')")
    place.sql(f"CREATE SINK plain FROM t INTO {lake.into('plain')} KEY (k) MODE UPSERT {rewriting}")
    place.sql(f"CREATE SINK every FROM t INTO {lake.into('every')} MODE APPEND {INTERVAL}")
    wait_until(lambda: lake.rows("one") == [(1, "a"), (2, "b")], what="the snapshot is there")
    place.sql("CREATE MATERIALIZED VIEW w AS SELECT k, v, 2 * k AS twice FROM t")
    for sink in ("one", "plain", "every"):
        place.sql(f"ALTER SINK {sink} SET FROM w")
    place.sql("UPDATE t SET v = 'c' WHERE k = 1")
    wait_until(
        lambda: lake.rows("one") == [(1, "c", 2), (2, "b", None)],
        what="the other relation is written",
    )

    def plain():
        rows = lake.table("plain").scan().to_arrow().to_pylist()
        return sorted((each["k"], each["v"], each.get("twice")) for each in rows)

    wait_until(lambda: plain() == [(1, "c", 2), (2, "b", None)], what="a file is written anew")

    def every():
        rows = lake.table("every").scan().to_arrow().to_pylist()
        return sorted((each["k"], each["v"], each["_mz_diff"], each.get("twice")) for each in rows)

    changes = [(1, "a", -1, 2), (1, "a", 1, None), (1, "c", 1, 2), (2, "b", 1, None)]
    wait_until(lambda: every() == changes, what="each change is there")
    place.sql("CREATE MATERIALIZED VIEW fewer AS SELECT k, v FROM t")
    place.sql("ALTER SINK one SET FROM fewer")
    place.sql("UPDATE t SET v = 'd' WHERE k = 1")
    wait_until(
        lambda: lake.rows("one") == [(1, "d", None), (2, "b", None)],
        what="the column is empty again",
    )

    def operations():
        return {each.summary.operation.value for each in lake.table("one").metadata.snapshots}

    wait_until(lambda: "replace" in operations(), what="small files are written together")
    assert lake.rows("one") == [(1, "d", None), (2, "b", None)]


@pytest.mark.parametrize("lake", ["sql"], indirect=True)
def test_a_table_belongs_to_its_sink(workplace, lake):
    """DROP leaves the table, another sink takes it without rows, and one that is gone stalls."""
    place = workplace
    place.sql("CREATE TABLE t (k INT NOT NULL, v STRING, f DOUBLE)")
    place.sql("INSERT INTO t VALUES (1, 'a', 0.5)")
    made = f"FROM t INTO {lake.into('t')}"
    place.sql(f"CREATE SINK s {made} KEY (k) MODE UPSERT {INTERVAL}")
    wait_until(lambda: lake.rows("t") == [(1, "a", 0.5)], what="the snapshot is there")
    assert lake.table("t").schema().identifier_field_ids == [1]
    for mode in ("KEY (k) MODE UPSERT", "MODE APPEND"):
        with pytest.raises(SqlError, match=r"COLUMN_MISMATCH|LOCATION_IN_USE"):
            place.sql(f"CREATE SINK other {made} {mode}")
    place.sql("DROP SINK s")
    with pytest.raises(SqlError, match="SLACKWATER_SINK_LOCATION_IN_USE"):
        place.sql(f"CREATE SINK s {made} KEY (k) MODE UPSERT")
    insisting(lake.table("t").delete)
    place.sql(f"CREATE SINK s {made} KEY (k) MODE UPSERT {INTERVAL}")
    wait_until(lambda: lake.rows("t") == [(1, "a", 0.5)], what="another sink has the table")
    place.sql("DROP SINK s")
    for key, reason in (("f", "f is DOUBLE"), ("`K`", "no column K")):
        with pytest.raises(SqlError, match=f"SLACKWATER_SINK_KEY.*{reason}"):
            place.sql(f"CREATE SINK s FROM t INTO {lake.into('u')} KEY ({key}) MODE UPSERT")
    place.sql(f"CREATE SINK s FROM t INTO {lake.into('u')} MODE APPEND {INTERVAL}")
    wait_until(lambda: lake.summed("u")[0] == [(1, "a", 0.5)], what="the snapshot is there")
    lake.catalog.drop_table((lake.namespace, "u"))
    place.sql("INSERT INTO t VALUES (2, 'b', NULL)")

    def error():
        return [text for _, text in statuses(place, "s") if text and "PROGRESS_LOST" in text]

    (found,) = wait_until(error, what="the sink is stalled")
    assert f"the table {lake.namespace}.u does not say where: it is gone" in found
