"""Applications that have joined a leader find by its indexes what they would find by a scan."""

from __future__ import annotations

import threading

import pytest
from tests.e2e.test_index_joins import FORMS
from tests.support.applications.indexed import (
    COLUMNS_OF_KINDS,
    KINDS,
    RETAINED,
    ROWS_OF_KINDS,
    both,
    hydrated,
    leading_and_joined,
    uses,
)
from tests.support.applications.many_relations import interpret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def applications(tmp_path_factory):
    """A place in the leading application, and one that has joined."""
    folder = tmp_path_factory.mktemp("joined")
    with leading_and_joined(folder) as (place, joined):
        for each in (place.application, joined):
            each.sql("USE slackwater.place", session="interpreted")
            interpret(each, "interpreted")
        yield place, joined


ASKED = [
    (kind, number, sign, f"k_{kind} {sign} {value}")
    for kind, (_, values) in KINDS.items()
    for number, value in enumerate(values)
    for sign in ("=", "<=>")
]
"""Each key of each kind, as a condition on a column."""


def looked_up(application, at):
    """The rows of `a` for each of them, which has its own look-up in one read."""
    parts = [
        f"SELECT '{kind}' AS kind, {number} AS number, '{sign}' AS sign, v FROM a WHERE {condition}"
        for kind, number, sign, condition in ASKED
    ]
    text = f"{' UNION ALL '.join(parts)}{at}"
    return sorted(application.rows(text, session="interpreted"), key=repr)


def filtered(application, at):
    """The rows of `b` for each of them, out of one scan."""
    every = ", ".join(
        f"struct('{kind}' AS kind, {number} AS number, '{sign}' AS sign, {condition} AS holds)"
        for kind, number, sign, condition in ASKED
    )
    text = (
        "SELECT asked.kind, asked.number, asked.sign, v"
        f" FROM (SELECT v, explode(array({every})) AS asked FROM b) WHERE asked.holds{at}"
    )
    return sorted(application.rows(text, session="interpreted"), key=repr)


def joins(table):
    """Joins by every kind of key, and every form of join by one of them, as one query."""
    parts = [
        f"SELECT '{kind}' AS how, p.v AS n, t.v FROM p LEFT JOIN {table} t"
        f" ON t.k_{kind} {('=', '<=>')[number % 2]} p.k_{kind}"
        for number, kind in enumerate(KINDS)
    ]
    few = "(SELECT k_int AS k, v AS n FROM p)"
    parts += [
        f"SELECT '{name}' AS how, * FROM ({text.replace(' p ', f' {few} p ')})"
        for name, text in FORMS.items()
    ]
    return " UNION ALL ".join(parts).replace("{t}", f"(SELECT k_int AS k, v FROM {table})")


@pytest.mark.nightly
def test_every_kind_of_key(applications):
    place, joined = applications
    for name in ("a", "b"):
        place.sql(f"CREATE TABLE {name} ({COLUMNS_OF_KINDS}, v INT) {RETAINED}")
    for kind in KINDS:
        place.sql(f"CREATE INDEX by_{kind} ON a (k_{kind}) {RETAINED}")
    place.sql(f"CREATE TABLE p ({COLUMNS_OF_KINDS}, v INT) {RETAINED}")
    place.sql(f"INSERT INTO p VALUES {ROWS_OF_KINDS}")
    both(place, f"INSERT INTO {{}} VALUES {ROWS_OF_KINDS}")
    hydrated(place, *(f"by_{kind}" for kind in KINDS))
    times = [place.value("SELECT mz_now()")]
    for change in (
        f"INSERT INTO {{}} VALUES {ROWS_OF_KINDS}",
        "DELETE FROM {} WHERE v = 1",
        "UPDATE {} SET v = v + 10 WHERE v % 2 = 0",
    ):
        both(place, change)
        times.append(place.value("SELECT mz_now()"))
    for at in ("", *(f" AS OF {each}" for each in times)):
        assert looked_up(joined, at) == filtered(place, at), at
    at = f" AS OF {times[1]}"
    met = [
        sorted(where.rows(joins(table) + at, session="interpreted"), key=repr)
        for where, table in ((joined, "a"), (place, "b"))
    ]
    assert met[0] == met[1]
    joins_by = str(joined.rows(f"EXPLAIN EXTENDED {joins('a')}{at}"))
    for kind, (_, values) in KINDS.items():
        if kind == "char":
            continue
        text = f"SELECT v FROM a WHERE k_{kind} <=> {values[0]} AS OF {times[0]}"
        plan = str(joined.rows(f"EXPLAIN EXTENDED {text}", session="interpreted"))
        assert f"by index slackwater.place.by_{kind}" in plan, kind
        by = f"LEFT OUTER slackwater.place.a as of {times[1]} by index slackwater.place.by_{kind} "
        assert by in joins_by, kind


@pytest.mark.nightly
def test_views_and_what_the_leader_does_not_answer(applications):
    place, joined = applications
    place.sql(f"CREATE TABLE t (k INT, v STRING) {RETAINED}")
    place.sql("CREATE VIEW w AS SELECT k, count(*) AS n FROM t GROUP BY k")
    place.sql("CREATE INDEX i ON t (k)")
    place.sql("CREATE INDEX ON t (upper(v))")
    place.sql("CREATE INDEX j ON w (k)")
    place.sql("INSERT INTO t SELECT id % 100, repeat('x', 1000) FROM range(10000)")
    place.sql("INSERT INTO t SELECT 100 + id % 2, 'a' FROM range(30000)")
    place.sql("INSERT INTO t VALUES (-1, 'a')")
    by_index = "by index slackwater.place."

    def explained(text):
        return str(joined.rows(f"EXPLAIN EXTENDED {text}"))

    few = "SELECT v FROM t WHERE k = -1"
    wait_until(lambda: by_index in explained(few), what="the index")
    assert joined.rows(few) == [["a"]]
    counted = "SELECT n FROM w WHERE k IN (7, 101) ORDER BY n"
    wait_until(lambda: by_index in explained(counted), what="the index on the view")
    assert joined.rows(counted) == [[100], [15000]]
    whole = "SELECT min(n), max(n), count(*) FROM w"
    assert by_index in explained(whole)
    assert joined.rows(whole) == place.rows(whole) == [[1, 15000, 103]]
    # More rows, or more bytes, than come from the leader; a key that is an expression.
    for condition, count in (
        ("k = 101", 15000),
        ("k BETWEEN 0 AND 99 AND k IN (" + ", ".join(map(str, range(100))) + ")", 10000),
        ("upper(v) = 'A' AND k = -1", 1),
    ):
        text = f"SELECT count(v) FROM t WHERE {condition}"
        assert joined.value(text) == count
    assert by_index not in explained("SELECT v FROM t WHERE k = 101")
    assert by_index not in explained("SELECT v FROM t WHERE upper(v) = 'A'")
    # The same in joins; what is found is limited by bytes, and by more rows than a look-up of keys.
    for keys, count in (("(-1), (-2), (NULL)", 1), ("(101), (101)", 30000), ("(0), (1)", 200)):
        text = f"SELECT count(v) FROM VALUES {keys} AS p(k) JOIN t ON t.k = p.k"
        assert "IndexLookupJoin" in explained(text)
        assert joined.value(text) == count
    text = "SELECT count(v) FROM range(100) p JOIN t ON t.k = CAST(p.id AS INT)"
    assert "IndexLookupJoin" in explained(text)
    assert joined.value(text) == 10000
    text = "SELECT p.k, w.n FROM VALUES (7), (101), (102) AS p(k) LEFT JOIN w ON w.k = p.k"
    wait_until(lambda: "IndexLookupJoin" in explained(text), what="the index on the view")
    assert sorted(joined.rows(text)) == [[7, 100], [101, 15000], [102, None]]
    many = "SELECT CAST(id AS INT) AS k FROM range(30000) WHERE id % 2 = 0"
    for how, count in (("JOIN", 20000), ("LEFT SEMI JOIN", 51), ("LEFT ANTI JOIN", 14949)):
        text = f"SELECT count(*) FROM (SELECT p.k FROM ({many}) p {how} t ON t.k = p.k)"
        assert joined.value(text) == count
    by_expression = "SELECT p.x FROM VALUES ('A') AS p(x) JOIN t ON upper(t.v) = p.x AND t.k = -1"
    assert "IndexLookupJoin" not in explained(by_expression)
    joined.sql("UPDATE t SET v = 'b' WHERE k = -1")
    assert joined.rows(few) == place.rows(few) == [["b"]]
    one = "SELECT t.v FROM VALUES (-1), (-5) AS p(k) JOIN t ON t.k = p.k"
    assert joined.rows(one) == place.rows(one) == [["b"]]


def test_each_application_sees_what_the_other_wrote(applications):
    place, joined = applications
    place.sql("CREATE TABLE s (k INT, v INT)")
    place.sql("CREATE VIEW doubled AS SELECT k, sum(v) * 2 AS v FROM s GROUP BY k")
    place.sql("CREATE INDEX i_s ON s (k)")
    place.sql("CREATE INDEX i_doubled ON doubled (k)")
    place.sql("INSERT INTO s SELECT id, 0 FROM range(100)")
    wait_until(lambda: uses(place, "SELECT v FROM s WHERE k = 7", "i_s"), what="the index")
    for number in range(1, 9):
        writer = place if number % 2 else joined
        writer.sql(f"UPDATE s SET v = {number} WHERE k = 7")
        for reader in (place, joined):
            assert reader.rows("SELECT v FROM s WHERE k = 7") == [[number]]
            assert reader.rows("SELECT v FROM doubled WHERE k = 7") == [[2 * number]]


@pytest.mark.nightly
def test_reads_by_index_and_by_scan_are_of_one_order(applications):
    """Each value that is seen is seen by all later reads, whoever reads and however."""
    place, joined = applications
    place.sql("CREATE TABLE c (k INT, v INT)")
    place.sql("CREATE VIEW seen AS SELECT k, max(v) AS v FROM c GROUP BY k")
    place.sql("CREATE INDEX i_c ON c (k)")
    place.sql("CREATE INDEX i_seen ON seen (k)")
    place.sql("INSERT INTO c VALUES (1, 0), (2, 0)")
    place.use("writer")
    ended = threading.Event()
    written = [0]

    def write():
        while not ended.is_set():
            place.sql(f"UPDATE c SET v = {written[0] + 1}", session="writer")
            written[0] += 1

    ways = [
        "SELECT v FROM c WHERE k = 1",
        "SELECT v FROM seen WHERE k = 2",
        "SELECT max(v) FROM c WHERE k < 2",
    ]
    writer = threading.Thread(target=write)
    writer.start()
    try:
        last, reads = 0, 0
        while last < 12 or reads < 20:
            acknowledged = written[0]
            for text in ways:
                for reader in (place, joined):
                    found = reader.value(text)
                    assert found >= max(last, acknowledged), (text, found, last, acknowledged)
                    last = found
            reads += 1
    finally:
        ended.set()
        writer.join()
