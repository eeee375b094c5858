"""Indexes while things happen: writes, ends of processes, lack of memory, other applications."""

from __future__ import annotations

import threading

import pytest
from tests.e2e.test_indexes import uses
from tests.support.applications.application import Application, kill, only_coordinator
from tests.support.applications.fixtures import Workplace
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


def test_each_read_sees_the_write_before_it(workplace):
    """A read after an acknowledged write has it, from whichever session, by index or not."""
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE INDEX i ON t (k)")
    workplace.sql("INSERT INTO t SELECT id, 0 FROM range(100)")
    workplace.use("other")
    wait_until(lambda: uses(workplace, "SELECT v FROM t WHERE k = 7", "i"), what="the index")
    for number in range(1, 41):
        workplace.sql(f"UPDATE t SET v = {number} WHERE k = 7")
        for session in ("main", "other"):
            found = workplace.rows("SELECT v FROM t WHERE k = 7", session=session)
            assert found == [[number]]


def test_reads_are_of_one_time_while_others_write(workplace):
    """Two rows always add up to nothing, however they are read."""
    workplace.sql("CREATE TABLE t (k INT, v INT)")
    workplace.sql("CREATE INDEX i ON t (k)")
    workplace.sql("INSERT INTO t VALUES (1, 0), (2, 0)")
    workplace.use("writer")
    ended = threading.Event()

    def write():
        number = 0
        while not ended.is_set():
            number += 1
            changed = f"UPDATE t SET v = CASE k WHEN 1 THEN {number} ELSE -{number} END"
            workplace.sql(changed, session="writer")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        while len(seen) < 10:
            rows = workplace.rows("SELECT k, v FROM t WHERE k IN (1, 2)")
            assert sorted(k for k, _ in rows) == [1, 2]
            assert sum(v for _, v in rows) == 0, rows
            seen.add(rows[0][1])
    finally:
        ended.set()
        writer.join()


def test_indexes_keep_as_much_history_as_the_parameter_says(workplace):
    for name in ("earlier", "later"):
        workplace.sql(f"CREATE TABLE {name} (k INT, v INT)")
    workplace.sql("CREATE INDEX i_earlier ON earlier (k)")
    workplace.sql("ALTER SYSTEM SET default_retain_history = '1 hour'")
    try:
        workplace.sql("CREATE INDEX i_later ON later (k)")
        for name in ("earlier", "later"):
            workplace.sql(f"INSERT INTO {name} VALUES (1, 1)")
            query = f"SELECT v FROM {name} WHERE k = 1"
            wait_until(lambda q=query, n=name: uses(workplace, q, f"i_{n}"), what="the index")
        time = workplace.value("SELECT mz_now()")
        for name in ("earlier", "later"):
            workplace.sql(f"UPDATE {name} SET v = 2")
        # Longer than indexes keep it otherwise.
        wait_until(
            lambda: workplace.value("SELECT mz_now() FROM later") > time + 3000, what="time to pass"
        )
        for name in ("earlier", "later"):
            past = f"SELECT v FROM {name} WHERE k = 1 AS OF {time}"
            assert workplace.rows(past) == [[1]]
            assert uses(workplace, past, f"i_{name}")
    finally:
        workplace.sql("ALTER SYSTEM RESET default_retain_history")


def test_an_index_comes_back_and_other_applications_ask_the_leader(tmp_path):
    location = tmp_path / "environment"
    with Application(location) as first, Application(location) as second:
        place, joined = Workplace(first, "place", tmp_path), second
        place.sql("CREATE TABLE t (k INT, v STRING)")
        place.sql("CREATE INDEX i ON t (k)")
        place.sql("CREATE VIEW w AS SELECT k, count(*) AS n FROM t GROUP BY k")
        place.sql("CREATE INDEX j ON w (k)")
        place.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        query = "SELECT v FROM slackwater.place.t WHERE k = 1"
        counted = "SELECT n FROM slackwater.place.w WHERE k = 1"
        wait_until(lambda: uses(place, query, "i"), what="the index")
        wait_until(lambda: uses(place, counted, "j"), what="the index on the view")
        assert place.rows(counted) == joined.rows(counted) == [[1]]
        assert joined.rows(query) == [["a"]]
        for text, index in ((query, "i"), (counted, "j")):
            plan = str(joined.rows(f"EXPLAIN EXTENDED {text}"))
            assert f"by index slackwater.place.{index}" in plan
        joined.sql("UPDATE slackwater.place.t SET v = 'c' WHERE k = 1")
        assert place.rows(query) == joined.rows(query) == [["c"]]
        kill(only_coordinator(location))
        assert place.rows(query) == joined.rows(query) == [["c"]]
        joined.sql("INSERT INTO slackwater.place.t VALUES (1, 'd')")
        wait_until(lambda: uses(place, query, "i"), what="the index has come back")
        assert sorted(place.rows(query)) == sorted(joined.rows(query)) == [["c"], ["d"]]
        wait_until(lambda: uses(place, counted, "j"), what="the index on the view has come back")
        assert place.rows(counted) == joined.rows(counted) == [[2]]


@pytest.mark.nightly
def test_without_memory_reads_scan(tmp_path):
    memory = {
        "spark.slackwater.arrangements.memory": "1m",
        "spark.slackwater.arrangements.disk": "0",
    }
    with Application(tmp_path / "environment", conf=memory) as application:
        place = Workplace(application, "place", tmp_path)
        place.sql("CREATE TABLE t (k INT, v STRING)")
        place.sql("INSERT INTO t SELECT id, repeat(uuid(), 4) FROM range(40000)")
        place.sql("CREATE INDEX i ON t (k)")
        place.sql("CREATE VIEW w AS SELECT k + 1 AS k, v FROM t")
        place.sql("CREATE INDEX j ON w (k)")
        told = "SELECT message FROM slackwater.mz_internal.mz_notices"
        said = "slackwater.place.{} is not there, and reads scan: [SLACKWATER_INDEX_MEMORY]"
        for index in ("i", "j"):
            wait_until(lambda n=index: said.format(n) in str(place.rows(told)), what="the notice")
        assert place.value("SELECT count(v) FROM t WHERE k = 7") == 1
        assert place.value("SELECT count(v) FROM w WHERE k = 8") == 1
        assert not uses(place, "SELECT v FROM t WHERE k = 7", "i")
        place.sql("DELETE FROM t WHERE k > 100")

        def is_back():
            place.sql("INSERT INTO t VALUES (-1, '')")
            asked = {"i": "SELECT v FROM t WHERE k = 7", "j": "SELECT v FROM w WHERE k = 8"}
            return all(uses(place, query, index) for index, query in asked.items())

        wait_until(is_back, what="the indexes have room")
        assert place.value("SELECT count(v) FROM t WHERE k = 7") == 1
        assert place.value("SELECT count(v) FROM w WHERE k = 8") == 1
