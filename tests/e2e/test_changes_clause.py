"""Spark's clause CHANGES over collections."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark

GROUPED = "SELECT k % 2 AS g, count(*) AS n FROM t GROUP BY k % 2"
WITHOUT_MOMENT = "* EXCEPT (_commit_timestamp), unix_millis(_commit_timestamp)"
KEPT = "WITH (RETAIN HISTORY FOR '1 hour')"
ROWS = 3_000
"""So many, of a thousand characters, are more than the metastore keeps."""


@pytest.fixture
def changed(workplace):
    """A table with changes at known times, in files and beside them, and a view over it."""
    workplace.sql(f"CREATE TABLE t (k INT, v MAP<STRING, INT>) {KEPT}")
    workplace.sql(f"CREATE MATERIALIZED VIEW m {KEPT} AS {GROUPED}")
    workplace.times = [workplace.value("SELECT mz_now()")]
    for statement in (
        f"INSERT INTO t SELECT id, map(repeat('x', 1000), id) FROM range({ROWS})",
        "DELETE FROM t WHERE k >= 4",
        "INSERT INTO t VALUES (9, NULL), (9, NULL)",
        "UPDATE t SET v = map('y', 1) WHERE k = 1",
    ):
        workplace.sql(statement)
        workplace.times.append(workplace.value("SELECT mz_now() FROM t LIMIT 1"))
    return workplace


def changes(place, relation, clause):
    asked = f"SELECT * FROM {relation} CHANGES {clause}"
    return sorted(map(str, map(tuple, place.rows(asked))))


def moment(time):
    """The time (ms) as a literal: Spark takes no function there."""
    at = datetime.fromtimestamp(time / 1000, timezone.utc)
    return f"TIMESTAMP '{at.isoformat(timespec='milliseconds')}'"


def subscribed(place, relation, after, until):
    """The same by SUBSCRIBE."""
    asked = f"SUBSCRIBE {relation} WITH (SNAPSHOT = false) AS OF {after} UP TO {until + 1}"
    found = []
    for time, diff, *row in place.rows(asked):
        kind = "insert" if diff > 0 else "delete"
        found += [(*row, kind, time)] * abs(diff)
    return sorted(found, key=str)


@pytest.mark.parametrize("relation", ["t", "m"])
def test_changes_are_those_of_subscribe(changed, relation):
    times = changed.times
    for after, until in ((times[0], times[-1]), (times[1], times[3]), (times[2], times[2])):
        clause = f"CHANGES FROM VERSION {after} EXCLUSIVE TO VERSION {until}"
        rows = changed.rows(f"SELECT {WITHOUT_MOMENT} FROM {relation} {clause}")
        assert all(row[-1] == row[-2] for row in rows)
        found = sorted((tuple(row[:-1]) for row in rows), key=str)
        assert list(map(str, found)) == list(map(str, subscribed(changed, relation, after, until)))


@pytest.mark.nightly
def test_bounds_by_version_and_by_moment(changed):
    first, *_, before, last = changed.times
    by_version = changes(changed, "t", f"FROM VERSION {before + 1} TO VERSION {last}")
    assert len(by_version) == 2
    by_moment = f"FROM TIMESTAMP {moment(before + 1)} TO TIMESTAMP {moment(last)}"
    assert changes(changed, "t", by_moment) == by_version
    exclusive = f"FROM VERSION {before} EXCLUSIVE TO VERSION {last + 1} EXCLUSIVE"
    assert changes(changed, "t", exclusive) == by_version
    assert changes(changed, "t", f"FROM VERSION {before + 1}") == by_version
    assert len(changes(changed, "t", f"FROM VERSION {first} EXCLUSIVE")) == ROWS + ROWS - 4 + 2 + 2


def test_queries_over_changes(changed):
    first = changed.times[0]
    asked = (
        f"SELECT c._change_type, count(*) FROM t CHANGES FROM VERSION {first} EXCLUSIVE c"
        " JOIN t ON t.k = c.k GROUP BY 1 ORDER BY 1"
    )
    assert changed.rows(asked) == [["delete", 3], ["insert", 11]]
    known = changed.value(f"SELECT count(*) FROM t CHANGES FROM VERSION {first} EXCLUSIVE")
    changed.sql(f"CREATE VIEW v AS SELECT * FROM t CHANGES FROM VERSION {first} EXCLUSIVE")
    changed.sql(f"CACHE TABLE cached AS SELECT * FROM t CHANGES FROM VERSION {first} EXCLUSIVE")
    changed.sql("DELETE FROM t WHERE k = 9")
    for relation in ("v", "cached"):
        assert changed.value(f"SELECT count(*) FROM {relation}") == known + 2


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("SELECT * FROM t CHANGES FROM VERSION 1", "SLACKWATER_NO_VALID_TIMESTAMP"),
        ("SELECT * FROM t CHANGES FROM VERSION 'x'", "SLACKWATER_INVALID_AS_OF"),
        (
            "SELECT * FROM t CHANGES FROM VERSION 1 WITH (deduplicationMode = 'netChanges')",
            "SLACKWATER_UNSUPPORTED",
        ),
        (
            "SELECT * FROM t CHANGES FROM VERSION 1 WITH (computeUpdates = 'true')",
            "SLACKWATER_UNSUPPORTED",
        ),
        ("SELECT * FROM p CHANGES FROM VERSION 1", "SLACKWATER_UNSUPPORTED"),
        ("SELECT * FROM own CHANGES FROM VERSION 1", "SLACKWATER_UNSUPPORTED"),
        (
            "CREATE MATERIALIZED VIEW x AS SELECT k FROM t CHANGES FROM VERSION 1",
            "SLACKWATER_UNSUPPORTED",
        ),
    ],
)
def test_what_is_refused(workplace, statement, condition):
    workplace.sql("CREATE TABLE t (k INT)")
    workplace.sql("CREATE VIEW p AS SELECT k FROM t")
    workplace.sql("CREATE TABLE own (k INT, _CHANGE_TYPE INT)")
    with pytest.raises(SqlError, match=condition):
        workplace.sql(statement)
