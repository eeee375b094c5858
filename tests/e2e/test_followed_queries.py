"""SUBSCRIBE to a query: a dataflow of the session's cluster follows it, each change once."""

from __future__ import annotations

import pytest
from tests.support.applications.application import SqlError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def place(workplace):
    yield workplace
    for (cursor,) in workplace.rows("SELECT id FROM mz_internal.mz_subscriptions"):
        workplace.sql(f"CLOSE {cursor}")


QUERIES = {
    "filtered": "SELECT k, v + 1 AS x FROM t WHERE v > 1",
    "joined": "SELECT t.k, v, w FROM t LEFT JOIN u ON t.k = u.k",
    "grouped": "SELECT k, count(*) AS n, sum(v) AS s, max(v) AS m FROM t GROUP BY k",
    "total": "SELECT count(*) AS n, sum(v) AS s FROM t",
    "first": "SELECT k, v FROM t ORDER BY v DESC, k LIMIT 2",
    "twice": "SELECT a.k, b.k FROM t a JOIN u b ON a.k = b.k",
    "nested": "SELECT k, named_struct('a', v, 'b', array(v, NULL)) AS s, map('x', v) AS m FROM t",
    "typed": "SELECT CAST(v AS DECIMAL(20, 3)) AS d, CAST(v AS STRING) AS t, v / 3 AS f,"
    " timestamp_millis(v) AS ts, CAST(NULL AS DATE) AS none FROM t",
}
STEPS = (
    "INSERT INTO u VALUES (1, 'a'), (1, 'z'), (3, 'c'), (NULL, 'n')",
    "DELETE FROM t WHERE v = 2",
    "UPDATE t SET v = v + 1 WHERE k = 1",
    "INSERT INTO t SELECT k, v + 10 FROM t",
    "DELETE FROM t",
    "INSERT INTO t VALUES (1, 5), (2, 6)",
)


def tables(place):
    place.sql("CREATE TABLE t (k INT, v INT) WITH (RETAIN HISTORY FOR '1 hour')")
    place.sql("CREATE TABLE u (k INT, w STRING) WITH (RETAIN HISTORY FOR '1 hour')")
    place.sql("INSERT INTO t VALUES (1, 1), (1, 2), (2, 3), (NULL, 4)")


def now(place):
    return place.value("SELECT mz_now()")


def followed(place, cursor, upper, **session):
    """The rows of the cursor up to `upper`, which says when it is there (WITH PROGRESS)."""
    found = []

    def is_there():
        found.extend(place.rows(f"FETCH ALL {cursor} WITH (timeout = '1s')", **session))
        return any(row[1] and row[0] >= upper for row in found)

    wait_until(is_there, what=cursor)
    return [[row[0], *row[2:]] for row in found if not row[1]]


def added_up(changes, time):
    """The rows that the changes up to `time` make, each as often as it is there."""
    rows = {}
    for at, diff, *row in changes:
        if at <= time:
            rows[repr(row)] = rows.get(repr(row), 0) + diff
    return sorted(text for text, count in rows.items() for _ in range(count))


def ticked(place):
    """The ids of subscriptions whose dataflows have ticked, by programs."""
    ticks = place.rows("SELECT object_id, by_program FROM mz_internal.mz_recent_ticks")
    return {object_id for object_id, by_program in ticks if by_program and object_id[0] == "t"}


def test_each_answer_is_followed_by_its_changes(place):
    tables(place)
    before = ticked(place)
    for name, query in QUERIES.items():
        subscribed = f"SUBSCRIBE ({query}) WITH (PROGRESS)"
        place.sql(f"DECLARE {name} CURSOR FOR {subscribed}")
    times = [now(place)]
    for step in STEPS:
        place.sql(step)
        times.append(now(place))
    for name, query in QUERIES.items():
        changes = followed(place, name, times[-1])
        for time in times:
            expected = sorted(map(repr, place.rows(f"SELECT * FROM ({query}) AS OF {time}")))
            assert added_up(changes, time) == expected, (name, time)
    assert len(ticked(place) - before) == len(QUERIES)


def test_what_is_there_for_a_subscription_ends_with_it(place):
    tables(place)
    joined = f"SUBSCRIBE ({QUERIES['joined']}) WITH (PROGRESS)"

    def readers():
        found = place.rows("SELECT readers FROM mz_internal.mz_arrangement_sizes")
        return sorted(reader for row in found for reader in row[0] if reader[0] == "t")

    before = readers()
    place.sql(f"DECLARE c CURSOR FOR {joined}")
    place.use("other")
    place.sql(f"DECLARE c CURSOR FOR {joined}", session="other")
    for session in ("main", "other"):
        followed(place, "c", now(place), session=session)
    assert len(set(readers()) - set(before)) == 2
    for session in ("main", "other"):
        place.sql("CLOSE c", session=session)
    wait_until(lambda: readers() == before, what="the end of both dataflows")


def test_an_interval_in_the_past_is_the_same_from_a_view(place):
    tables(place)
    begin = now(place)
    query = QUERIES["grouped"]
    place.sql(f"CREATE MATERIALIZED VIEW grouped WITH (RETAIN HISTORY FOR '1 hour') AS {query}")
    begin = now(place)
    for step in STEPS:
        place.sql(step)
    end = now(place)
    place.rows(f"SELECT * FROM grouped AS OF {end}")
    for upper in (begin + 1, end, end + 1):
        interval = f"AS OF {begin} UP TO {upper}"
        of_view = place.rows(f"SUBSCRIBE grouped {interval}")
        assert of_view[0][0] == begin
        assert sorted(place.rows(f"SUBSCRIBE ({query}) {interval}"), key=repr) == sorted(
            of_view, key=repr
        )


def test_where_no_program_can_follow_the_answer_has_the_change(place):
    """A row makes the query fail in between; another query has no program at all."""
    tables(place)
    query = "SELECT k, 12 DIV v AS q FROM t"
    place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS)")
    first = now(place)
    changes = followed(place, "c", first)
    place.sql("INSERT INTO t VALUES (5, 0)")
    with pytest.raises(SqlError) as failed:
        followed(place, "c", now(place))
    assert failed.value.sqlstate == "22012"
    place.sql("CLOSE c")
    place.sql("DELETE FROM t WHERE v = 0")
    place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS)")
    assert added_up(followed(place, "c", now(place)), now(place)) == added_up(changes, first)
    recursive = (
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < "
        "(SELECT count(*) FROM t)) SELECT n FROM r"
    )
    place.sql(f"DECLARE r CURSOR FOR SUBSCRIBE ({recursive}) WITH (PROGRESS)")
    place.sql("INSERT INTO t VALUES (9, 9)")
    time = now(place)
    changes = followed(place, "r", time)
    assert added_up(changes, time) == sorted(f"[{n}]" for n in range(1, 6))


def test_rows_come_and_go_by_their_times(place):
    place.sql("CREATE TABLE t (k INT, ends BIGINT)")
    time = now(place)
    place.sql(f"INSERT INTO t VALUES (1, {time + 3000}), (2, {time + 3600000})")
    place.sql(
        "DECLARE c CURSOR FOR SUBSCRIBE (SELECT k FROM t WHERE mz_now() < ends) WITH (PROGRESS)"
    )
    changes = followed(place, "c", time + 3000)
    assert [row[1:] for row in changes if row[1] > 0] == [[1, 1], [1, 2]]
    assert [row for row in changes if row[1] < 0] == [[time + 3000, -1, 1]]
    with pytest.raises(SqlError) as refused:
        place.sql("DECLARE d CURSOR FOR SUBSCRIBE (SELECT mz_now() AS n, k FROM t)")
    assert refused.value.condition == "SLACKWATER_TEMPORAL_FILTER"


def test_clusters_and_inputs_may_go(place, cluster):
    tables(place)
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR = 2)")
    place.sql(f"SET cluster = {cluster}")
    query = QUERIES["grouped"]
    place.sql(f"DECLARE c CURSOR FOR SUBSCRIBE ({query}) WITH (PROGRESS)")
    changes = followed(place, "c", now(place))
    place.sql("INSERT INTO t VALUES (2, 7)")
    changes += followed(place, "c", now(place))
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR = 1)")
    place.sql("INSERT INTO t VALUES (3, 8)")
    changes += followed(place, "c", now(place))
    place.sql("RESET cluster")
    ((found,),) = place.rows(
        "SELECT c.name FROM mz_internal.mz_subscriptions s JOIN mz_catalog.mz_clusters c"
        " ON c.id = s.cluster_id WHERE s.id = 'c'"
    )
    assert found == cluster
    place.sql(f"DROP CLUSTER {cluster}")
    place.sql("DELETE FROM t WHERE k = 1")
    changes += followed(place, "c", now(place))
    time = now(place)
    expected = sorted(map(repr, place.rows(f"SELECT * FROM ({query}) AS OF {time}")))
    assert added_up(changes, time) == expected
    place.sql("DROP TABLE t")
    with pytest.raises(SqlError) as gone:
        place.rows("FETCH ALL c")
    assert gone.value.sqlstate.startswith("42")


def test_without_replicas_it_waits_and_says_so(place, cluster):
    tables(place)
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR = 0)")
    place.sql(f"SET cluster = {cluster}")
    declared = f"DECLARE c CURSOR FOR SUBSCRIBE ({QUERIES['total']}) WITH (PROGRESS)"
    place.sql(declared)
    assert f"The cluster {cluster} has no replicas" in str(place.rows("SHOW NOTICES"))
    assert place.rows("FETCH ALL c WITH (timeout = '10ms')") == []
    place.sql(f"ALTER CLUSTER {cluster} SET (REPLICATION FACTOR = 1)")
    time = now(place)
    assert added_up(followed(place, "c", time), time) == ["[4, 10]"]
    place.sql("CLOSE c")
