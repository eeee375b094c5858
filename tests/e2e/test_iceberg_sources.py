"""Sources that read Iceberg tables, over a coordinator and Spark; libraries alone write them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.types import StringType
from tests.support.applications.application import SqlError, kill, only_coordinator
from tests.support.iceberg.lakes import a_lake, expire, insisting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

INTERVAL = "WITH (TIMESTAMP INTERVAL '100 ms')"
SALES = pa.schema([("item", pa.string()), ("amount", pa.int64())])


@pytest.fixture
def lake(request, workplace, iceberg_java):
    return a_lake(workplace, request.param, iceberg_java)


def sales(*rows):
    return pa.Table.from_pylist([dict(zip(SALES.names, row, strict=True)) for row in rows], SALES)


def view(place, name):
    return sorted(map(tuple, place.rows(f"SELECT * FROM {name}")), key=str)


def follows(place, lake, name, table):
    """Waits until a source has what Iceberg's own reader finds in a table."""
    wait_until(lambda: view(place, name) == lake.rows(table), what=f"{name} has the table")


def status(place, name):
    ((found, error),) = place.rows(
        "SELECT status, error FROM slackwater.mz_internal.mz_source_statuses s "
        f"JOIN slackwater.mz_catalog.mz_sources k ON k.id = s.id WHERE k.name = '{name}'"
    )
    return found, error


def stalls(place, name, condition):
    def is_stalled():
        found, error = status(place, name)
        return found == "stalled" and condition in error

    return is_stalled


@pytest.mark.parametrize("lake", ["rest"], indirect=True)
def test_a_source_follows_what_a_sink_and_others_do(workplace, lake):
    """A sink upserts into the table, others append; the leader is killed."""
    place = workplace
    place.sql("CREATE TABLE sales (item STRING, amount BIGINT)")
    place.sql("INSERT INTO sales VALUES ('a', 1), ('b', 2), (NULL, 3)")
    place.sql(
        f"CREATE SINK out FROM sales INTO {lake.into('t')} KEY (item) MODE UPSERT "
        "WITH (COMMIT INTERVAL '200 ms')"
    )
    wait_until(lambda: lake.rows("t") == view(place, "sales"), what="the table has the rows")
    place.sql(f"CREATE SOURCE back FROM {lake.into('t')} EXPOSE PROGRESS AS p {INTERVAL}")
    assert view(place, "back") == lake.rows("t")
    place.sql("CREATE MATERIALIZED VIEW total AS SELECT count(*) n, sum(amount) s FROM back")
    place.sql("UPDATE sales SET amount = 10 WHERE item = 'a' OR item IS NULL")
    place.sql("DELETE FROM sales WHERE item = 'b'")
    wait_until(lambda: lake.rows("t") == view(place, "sales"), what="the table has the rows")
    follows(place, lake, "back", "t")
    kill(only_coordinator(place.application.location))
    theirs = sales(("theirs", 5), ("theirs", 5))
    insisting(lambda: lake.table("t").append(theirs))
    place.sql("INSERT INTO sales VALUES ('c', 1)")
    wait_until(lambda: len(lake.rows("t")) == 5, what="the table has the rows")
    follows(place, lake, "back", "t")
    wait_until(lambda: view(place, "total") == [(5, 31)], what="the view follows")
    ((_, created),) = place.rows("SHOW CREATE SOURCE back")
    assert f"(NAMESPACE '{lake.namespace}', TABLE 't') EXPOSE PROGRESS AS" in created
    assert f"FROM ICEBERG CATALOG CONNECTION `slackwater`.`{place.schema}`.`lake`" in created
    assert status(place, "back") == ("running", None)
    kinds = "SELECT type, connection_id IS NOT NULL FROM slackwater.mz_catalog.mz_sources"
    assert place.rows(f"{kinds} WHERE name = 'back'") == [["iceberg", True]]
    with pytest.raises(SqlError, match="DEPENDENT"):
        place.sql("DROP CONNECTION lake")


@pytest.mark.parametrize("lake", ["sql"], indirect=True)
def test_a_source_goes_on_after_resnapshot(workplace, lake):
    """Snapshots expire before they are read, the table is set back, its columns change."""
    place = workplace
    lake.catalog.create_namespace_if_not_exists("n")
    lake.catalog.create_namespace_if_not_exists(lake.namespace)
    table = (lake.namespace, "t")
    lake.catalog.create_table(table, SALES)
    lake.table("t").append(sales(("a", 1), ("b", 2)))
    place.sql(f"CREATE SOURCE s FROM {lake.into('t')} {INTERVAL}")
    assert view(place, "s") == [("a", 1), ("b", 2)]
    first = lake.table("t").metadata.current_snapshot_id

    def lose():
        lake.table("t").append(sales(("c", 3)))
        lake.table("t").append(sales(("d", 4)))
        expire(lake, "t")
        return stalls(place, "s", "SLACKWATER_SOURCE_HISTORY_LOST")()

    wait_until(lose, what="the snapshots are lost")
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert view(place, "s") == lake.rows("t")
    lake.table("t").append(sales(("e", 5)))
    follows(place, lake, "s", "t")
    kept = lake.table("t").metadata.current_snapshot_id
    assert kept != first
    lake.table("t").overwrite(sales(("f", 6)))
    follows(place, lake, "s", "t")
    lake.table("t").manage_snapshots().set_current_snapshot(snapshot_id=kept).commit()
    wait_until(stalls(place, "s", "SLACKWATER_SOURCE_REPLACED"), what="it is told")
    assert view(place, "s") == [("f", 6)]
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert view(place, "s") == lake.rows("t")
    with lake.table("t").update_schema() as schema:
        schema.add_column("later", StringType())
    lake.table("t").append(sales(("g", 7)).append_column("later", pa.array(["x"])))
    wait_until(lambda: ("g", 7) in view(place, "s"), what="the row is there")
    with lake.table("t").update_schema() as schema:
        schema.rename_column("amount", "price")
    lake.table("t").delete("item = 'g'")
    wait_until(stalls(place, "s", "SLACKWATER_SOURCE_TABLE_CHANGED"), what="it is told")
    with pytest.raises(SqlError, match="its column amount was renamed to price"):
        place.rows("SELECT * FROM s")
    with lake.table("t").update_schema() as schema:
        schema.rename_column("price", "amount")
    lake.table("t").delete("item = 'c'")
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert view(place, "s") == [row[:2] for row in lake.rows("t")]
    lake.table("t").append(sales(("h", 8)).append_column("later", pa.array(["y"])))
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    assert ("h", 8, "y") in view(place, "s")
    assert view(place, "s") == lake.rows("t")
