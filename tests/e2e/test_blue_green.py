"""A deployment takes the place of another one: schemas and clusters swap names."""

from __future__ import annotations

import pytest
from tests.support.applications.application import kill, only_coordinator
from tests.support.applications.indexed import leading_and_joined, plan_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SUMS = "SELECT k, sum(v) AS s FROM slackwater.place.t {} GROUP BY k"
NEXT = '`Next "<b>é`'
IN_NEXT = (
    "SELECT o.id FROM mz_catalog.mz_objects o JOIN mz_catalog.mz_schemas s ON s.id = o.schema_id"
    " WHERE s.name = 'Next \"<b>é' AND o.type IN ('materialized-view', 'index')"
)
HYDRATED = (
    "SELECT count(*) = 3 AND every(hydrated) FROM mz_internal.mz_hydration_statuses"
    f" WHERE object_id IN ({IN_NEXT})"
)
HYDRATIONS = "SELECT object_id, count(*) FROM mz_internal.mz_object_hydration_history GROUP BY 1"
OBJECTS = (
    "SELECT o.id, s.name, o.name FROM mz_catalog.mz_objects o"
    " JOIN mz_catalog.mz_schemas s ON s.id = o.schema_id WHERE o.id LIKE 'u%' ORDER BY o.id"
)
AT_WORK = """
frame = spark.table("slackwater.live.largest")
frame.createOrReplaceTempView("of_before")
result = [row.s for row in frame.collect()]
"""


def deployed(place, schema, cluster, condition=""):
    """A schema with views over one another, some of which name others by the schema."""
    place.sql(f"CREATE SCHEMA slackwater.{schema}")
    place.sql(f"CREATE CLUSTER {cluster} (SIZE = '50cc')")
    place.sql(f"SET cluster = {cluster}")
    place.sql(f"CREATE MATERIALIZED VIEW {schema}.sums AS {SUMS.format(condition)}")
    place.sql(
        f"CREATE MATERIALIZED VIEW {schema}.largest WITH (RETAIN HISTORY FOR '1 hour') AS"
        f" SELECT max({schema}.sums.s) AS s FROM slackwater.{schema}.sums"
    )
    place.sql(f"CREATE VIEW {schema}.of_one AS SELECT s FROM {schema}.sums WHERE k = 1")
    place.sql(f"CREATE INDEX by_k ON {schema}.sums (k)")
    place.sql("RESET cluster")


def read(rows, schema=""):
    """What a reader finds in the schema: in the current one, if it names none."""
    prefix = f"slackwater.{schema}." if schema else ""
    found = [rows(f"SELECT s FROM {prefix}{each}") for each in ("largest", "of_one")]
    assert found[0] == found[1]
    return found[0][0][0]


@pytest.mark.nightly
def test_blue_green(tmp_path):
    with leading_and_joined(tmp_path) as (place, joined):
        place.sql("CREATE TABLE t (k INT, v INT)")
        place.sql("INSERT INTO t VALUES (1, 10), (1, -3), (2, 4)")
        deployed(place, "live", "serving")
        place.sql("CREATE MATERIALIZED VIEW reader AS SELECT s FROM live.largest")
        place.sql("USE slackwater.live", session="in_live")
        joined.sql("USE slackwater.live")
        readers = (place.rows, joined.rows, lambda text: place.rows(text, session="in_live"))
        for rows in readers:
            assert read(rows, "live") == 7
        assert place.python(AT_WORK) == [7]

        deployed(place, NEXT, "coming", "WHERE v > 0")
        wait_until(lambda: place.value(HYDRATED), what="the deployment")
        objects, hydrations = place.rows(OBJECTS), place.rows(HYDRATIONS)
        began = place.value("SELECT mz_now()")
        place.sql(f"ALTER SCHEMA live SWAP WITH {NEXT}")
        place.sql("ALTER CLUSTER serving SWAP WITH coming")

        for rows in readers:
            assert (read(rows, "live"), read(rows, NEXT)) == (10, 7)
        assert (read(joined.rows), read(readers[2])) == (10, 10)
        # A time from before is read by the names of now.
        assert place.value(f"SELECT s FROM live.largest AS OF {began}") == 10
        # What was made of an object goes on with that object.
        assert place.value("SELECT s FROM reader") == 7
        # Spark looks for the relations of a temporary view by their names.
        assert place.value("SELECT s FROM of_before") == 10
        names = {"live": 'Next "<b>é', 'Next "<b>é': "live"}
        assert place.rows(OBJECTS) == [
            [id_, names.get(schema, schema), name] for id_, schema, name in objects
        ]
        assert sorted(place.rows(HYDRATIONS)) == sorted(hydrations)
        place.sql("SET cluster = serving")
        lookup = "SELECT s FROM slackwater.live.sums WHERE k = 1"
        # The index has the name with which it was loaded.
        assert "by index slackwater.Next" in plan_of(place, lookup)
        assert place.value(lookup) == 10
        place.sql("INSERT INTO t VALUES (1, 5), (1, -1)")
        for rows in readers:
            assert (read(rows, "live"), read(rows, NEXT)) == (15, 11)

        # Another coordinator plans everything anew, and nothing is computed anew.
        kill(only_coordinator(place.application.location))
        place.sql("INSERT INTO t VALUES (1, 1)")
        for rows in readers:
            assert (read(rows, "live"), read(rows, NEXT)) == (16, 12)
        assert place.value("SELECT s FROM reader") == 12
        [(_, shown)] = place.rows("SHOW CREATE MATERIALIZED VIEW live.largest")
        assert "IN CLUSTER `serving`" in shown
        assert "max(`live`.sums.s) AS s FROM slackwater.`live`.sums" in shown
        place.sql("DROP MATERIALIZED VIEW reader")
        place.sql(f"DROP SCHEMA slackwater.{NEXT} CASCADE")
        place.sql("DROP CLUSTER coming")
        assert read(joined.rows) == 16
