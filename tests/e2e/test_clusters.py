"""Clusters: views are right whatever replicas come and go, and each replica has what is its own."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, SqlError, kill, only_coordinator
from tests.support.applications.fixtures import Workplace
from tests.support.applications.indexed import hydrated, uses
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

TOTALS = "SELECT k, sum(v) AS s, count(*) AS n FROM t GROUP BY k"
JOINED = "SELECT t.k, t.v, u.w FROM t JOIN u ON t.k = u.k"


def tables(place):
    place.sql("CREATE TABLE t (k INT, v INT)")
    place.sql("CREATE TABLE u (k INT, w INT)")
    place.sql("INSERT INTO t SELECT id % 10, id FROM range(100)")
    place.sql("INSERT INTO u SELECT id, id * 7 FROM range(10)")


def defined_elsewhere(place, view):
    """Makes a materialized view while another schema is current, which is dropped then."""
    place.sql("CREATE SCHEMA slackwater.passed")
    place.sql("USE slackwater.passed", session="passing")
    place.sql(f"CREATE MATERIALIZED VIEW {view}", session="passing")
    place.sql("DROP SCHEMA slackwater.passed")


def change(place, number):
    place.sql(f"INSERT INTO t VALUES ({number % 10}, {number}), (1, {number})")
    place.sql(f"UPDATE u SET w = w + {number} WHERE k = {number % 10}")
    return place.value("SELECT mz_now()")


def same(place, view, query, at=""):
    """The view has the rows of its query, at the time or now."""
    found = sorted(place.rows(f"SELECT * FROM {view}{at}"))
    assert found == sorted(place.rows(f"{query}{at}")), (view, at)


def keepers(place):
    """The ids of the replicas that keep arrangements of the schema's tables."""
    rows = place.rows(
        "SELECT DISTINCT a.replica_id FROM mz_internal.mz_arrangement_sizes a,"
        " mz_catalog.mz_tables t WHERE t.name IN ('t', 'u') AND array_contains(a.object_ids, t.id)"
    )
    return {row[0] for row in rows}


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    with Application(tmp_path_factory.mktemp("clusters") / "environment") as started:
        yield started


@pytest.fixture
def place(application, tmp_path):
    """A schema with the tables. At its end no cluster is left but that of the beginning."""
    made = Workplace(application, "place", tmp_path)
    tables(made)
    yield made
    made.sql("RESET cluster")
    made.drop()
    for cluster, *_ in made.rows("SHOW CLUSTERS"):
        if cluster != "quickstart":
            made.sql(f"DROP CLUSTER {cluster} CASCADE")


def test_views_of_two_clusters_are_right_and_keep_what_is_their_own(place):
    place.sql("CREATE CLUSTER heavy (SIZE = '200cc')")
    place.sql("CREATE CLUSTER light REPLICAS (only (SIZE = '25cc'))")
    place.sql(f"CREATE MATERIALIZED VIEW a IN CLUSTER heavy AS {JOINED}")
    place.sql("SET cluster = light")
    place.sql(f"CREATE MATERIALIZED VIEW b AS {JOINED}")
    place.sql(f"CREATE MATERIALIZED VIEW c AS {TOTALS}")
    for number in range(3):
        change(place, number)
        for view, query in (("a", JOINED), ("b", JOINED), ("c", TOTALS)):
            same(place, view, query)
    assert place.rows("SHOW CLUSTERS") == [
        ["heavy", "r1 (200cc)", ""],
        ["light", "only (25cc)", ""],
        ["quickstart", "r1 (100cc)", ""],
    ]
    shown = {row[0]: row[1] for row in place.rows("SHOW MATERIALIZED VIEWS")}
    assert shown == {"a": "heavy", "b": "light", "c": "light"}
    ids = dict(
        place.rows(
            "SELECT c.name, r.id FROM mz_catalog.mz_clusters c"
            " JOIN mz_catalog.mz_cluster_replicas r ON r.cluster_id = c.id"
        )
    )
    wait_until(lambda: keepers(place) == {ids["heavy"], ids["light"]}, what="arrangements of both")
    place.sql("DROP CLUSTER heavy CASCADE")
    wait_until(lambda: keepers(place) == {ids["light"]}, what="the memory of the dropped one")
    change(place, 7)
    same(place, "b", JOINED)
    assert [row[0] for row in place.rows("SHOW MATERIALIZED VIEWS")] == ["b", "c"]


def test_two_replicas_race_and_nobody_notices_that_one_goes(place):
    place.sql("CREATE CLUSTER two (SIZE = '100cc', REPLICATION FACTOR = 2)")
    place.sql("SET cluster = two")
    place.sql(f"CREATE MATERIALIZED VIEW a WITH (RETAIN HISTORY FOR '1 hour') AS {JOINED}")
    place.sql(f"CREATE MATERIALIZED VIEW c WITH (RETAIN HISTORY FOR '1 hour') AS {TOTALS}")
    passing = "SELECT k, v FROM slackwater.place.t"
    defined_elsewhere(place, f"slackwater.place.d IN CLUSTER two AS {passing}")
    for table in ("t", "u"):
        place.sql(f"ALTER TABLE {table} SET (RETAIN HISTORY FOR '1 hour')")
    times = [change(place, number) for number in range(4)]
    (cluster,) = place.rows("SELECT id FROM mz_catalog.mz_clusters WHERE name = 'two'")[0]
    ids = {
        row[0]
        for row in place.rows(
            f"SELECT id FROM mz_catalog.mz_cluster_replicas WHERE cluster_id = '{cluster}'"
        )
    }
    assert len(ids) == 2
    wait_until(lambda: ids <= keepers(place), what="both replicas keep what they look up")
    statuses = "SELECT replica_id FROM mz_internal.mz_hydration_statuses WHERE hydrated"
    wait_until(lambda: ids <= {row[0] for row in place.rows(statuses)}, what="both are hydrated")
    place.sql("ALTER CLUSTER two SET (REPLICATION FACTOR = 1)")
    times += [change(place, number) for number in range(4, 7)]
    place.sql("ALTER CLUSTER two SET (MANAGED = FALSE)")
    # It plans by what it is told: the schema in which `d` was defined has gone.
    place.sql("CREATE CLUSTER REPLICA two.other SIZE = '50cc'")
    place.sql("DROP CLUSTER REPLICA two.r1")
    times += [change(place, number) for number in range(7, 10)]
    for at in times:
        same(place, "a", JOINED, f" AS OF {at}")
        same(place, "c", TOTALS, f" AS OF {at}")
    same(place, "d", passing)


def test_a_cluster_without_replicas_can_be_read_up_to_where_it_is(place):
    place.sql("CREATE CLUSTER c (SIZE = '25cc')")
    place.sql(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {TOTALS}")
    place.sql("CREATE MATERIALIZED VIEW w AS SELECT k, s FROM v WHERE s > 0")
    reached = change(place, 1)
    before = sorted(place.rows("SELECT * FROM v"))
    place.sql("ALTER CLUSTER c SET (REPLICATION FACTOR = 0)")
    change(place, 2)
    assert sorted(place.rows(f"SELECT * FROM v AS OF {reached}")) == before
    place.sql("SET transaction_isolation = 'serializable'")
    assert sorted(place.rows("SELECT * FROM v")) == before
    place.sql("RESET transaction_isolation")
    place.sql("SET statement_timeout = '2s'")
    for relation in ("v", "w"):
        with pytest.raises(SqlError) as refused:
            place.rows(f"SELECT * FROM {relation}")
        assert refused.value.condition == "SLACKWATER_WAIT_TIMEOUT"
        reason = "The cluster c, which maintains slackwater.place.v, has no replicas."
        assert reason in refused.value.message
    place.sql("RESET statement_timeout")
    place.sql("ALTER CLUSTER c SET (REPLICATION FACTOR = 1)")
    same(place, "v", TOTALS)
    same(place, "w", f"SELECT k, s FROM ({TOTALS}) WHERE s > 0")


def test_views_and_indexes_move_to_another_cluster(place):
    place.sql("CREATE CLUSTER c (SIZE = '50cc')")
    place.sql(f"CREATE MATERIALIZED VIEW v AS {JOINED}")
    place.sql("CREATE MATERIALIZED VIEW w AS SELECT k, count(*) AS n FROM v GROUP BY k")
    place.sql("CREATE INDEX i ON t (k)")
    query = "SELECT sum(v) FROM t WHERE k = 1"
    wait_until(lambda: uses(place, query, "i"), what="the index")
    change(place, 1)
    for kind, name in (("MATERIALIZED VIEW", "v"), ("INDEX", "i")):
        place.sql(f"ALTER {kind} {name} SET CLUSTER c")
        [(_, shown)] = place.rows(f"SHOW CREATE {kind} {name}")
        assert "IN CLUSTER `c`" in shown
    for number in range(2, 5):
        change(place, number)
        same(place, "v", JOINED)
        same(place, "w", f"SELECT k, count(*) AS n FROM ({JOINED}) GROUP BY k")
    # Reads use the indexes of the session's cluster.
    assert not uses(place, query, "i")
    total = place.value(query)
    place.sql("SET cluster = c")
    wait_until(lambda: uses(place, query, "i"), what="the index of the other cluster")
    assert place.value(query) == total
    place.sql("ALTER CLUSTER c RENAME TO d")
    place.sql("ALTER CLUSTER d SWAP WITH quickstart")
    assert {row[0]: row[1] for row in place.rows("SHOW MATERIALIZED VIEWS")} == {
        "v": "quickstart",
        "w": "d",
    }
    place.sql("ALTER CLUSTER d SWAP WITH quickstart")
    assert {row[0]: row[1] for row in place.rows("SHOW MATERIALIZED VIEWS")} == {
        "v": "d",
        "w": "quickstart",
    }


def test_clusters_are_there_after_a_restart(place):
    before = place.value("SELECT max(id) FROM mz_catalog.mz_audit_events")
    place.sql("CREATE CLUSTER c (SIZE = '50cc', REPLICATION FACTOR = 2)")
    place.sql("COMMENT ON CLUSTER c IS 'the other one'")
    place.sql(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {JOINED}")
    place.sql("CREATE INDEX i IN CLUSTER c ON v (k)")
    hydrated(place, "i")
    change(place, 1)
    kill(only_coordinator(place.application.location))
    change(place, 2)
    same(place, "v", JOINED)
    assert place.rows("SHOW CLUSTERS") == [
        ["c", "r1 (50cc), r2 (50cc)", "the other one"],
        ["quickstart", "r1 (100cc)", ""],
    ]
    place.sql("SET cluster = c")
    wait_until(lambda: uses(place, "SELECT w FROM v WHERE k = 1", "i"), what="the index")
    events = place.rows(
        "SELECT event_type, object_type FROM mz_catalog.mz_audit_events"
        f" WHERE object_type LIKE 'cluster%' AND id > {before} ORDER BY id"
    )
    assert events == [
        ["create", "cluster"],
        ["create", "cluster-replica"],
        ["create", "cluster-replica"],
        ["alter", "cluster"],
    ]
