"""How a statement ends before its time: cancelled or late, wherever it waits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.clock import MovableClock
from tests.support.persist.persistence import new_environment
from tests.support.planner.planned import Answers
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.ddl.views import ATTEMPTS
from slackwater.adapter.system.tables import WRITING_S
from slackwater.adapter.time.watch import LONGEST_S, Cancellation, FrontierWatch
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc

FAR = 2**60
HOUR_S = 3600.0


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
def place(tmp_path, clock):
    environment = new_environment(f"sqlite:///{tmp_path}/metastore.db", tmp_path / "environment")
    made = Place(environment, monotonic=clock)
    made.table("t", k="integer")
    yield made
    made.close()
    environment.engine.dispose()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def call(place, path, **body):
    return calls_of(place.coordinator)[path](body)


def refusal(future):
    error = future.exception(PATIENCE)
    assert isinstance(error, SlackwaterError), error
    return error.condition, error.sqlstate


def shard(place):
    return place.item("t").shard_id


def comes_too_late(place, clock, action, *arguments, pool):
    """The future of a statement that had an hour, when it has ended because more has passed."""
    place.sql("SET statement_timeout = '1h'")
    running = place.env.sessions.find("app/1").running
    future = pool.submit(action, place, *arguments)
    place.wait(lambda: len(running) == 1)

    def ended():
        # A wait may count what was left of the hour from when the hour had passed.
        clock.passes(HOUR_S + 1)
        return future.done()

    place.wait(ended)
    return future


def is_cancelled(place, action, *arguments, pool):
    """The future of a statement that may take for ever, when it was cancelled after it began."""
    place.sql("SET statement_timeout = '0'")
    running = place.env.sessions.find("app/1").running
    future = pool.submit(action, place, *arguments)
    place.wait(lambda: len(running) == 1)
    call(place, "/v1/cancel", session="app/1", execution="another")
    assert len(running) == 1
    call(place, "/v1/cancel", session="app/1", execution="e")
    return future


# What a statement can wait for, as a call that waits.


def for_a_frontier(place):
    relations = [{"id": place.item("t").id, "as_of": {"at": FAR}}]
    return call(place, "/v1/bind", session="app/1", relations=relations, execution="e")


def for_a_lock(place):
    target = place.item("t").id
    body = {"session": "app/1", "relations": [], "write_targets": [target], "execution": "e"}
    return call(place, "/v1/bind", **body)


def for_rows(place):
    return call(place, "/v1/execute", session="app/1", text="FETCH c", execution="e")


def to_write(place):
    return place.write("t", {"k": 1}, execution="e")


def for_the_end(place):
    text = f"SUBSCRIBE t AS OF {FAR - 1} UP TO {FAR}"
    return call(place, "/v1/execute", session="app/1", text=text, execution="e")


LATE = {
    for_a_frontier: ("SLACKWATER_WAIT_TIMEOUT", "57014"),
    for_a_lock: ("SLACKWATER_LOCK_TIMEOUT", "55P03"),
    for_rows: ("SLACKWATER_STATEMENT_TIMEOUT", "57014"),
    to_write: ("SLACKWATER_LOCK_TIMEOUT", "55P03"),
    for_the_end: ("SLACKWATER_STATEMENT_TIMEOUT", "57014"),
}


@pytest.fixture
def crowded(place, pool):
    """Somebody else holds the table, and a cursor that has no rows is open.

    That ends before the threads of `pool`, which may wait for it.
    """
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE t WITH (snapshot = false)")
    place.env.committer.lock(frozenset({shard(place)}), "other")
    yield place
    place.env.committer.release("other")


@pytest.mark.parametrize("wait", LATE, ids=lambda each: each.__name__)
def test_every_wait_ends_at_the_deadline(crowded, clock, pool, wait):
    assert refusal(comes_too_late(crowded, clock, wait, pool=pool)) == LATE[wait]
    crowded.env.committer.release("other")
    crowded.write("t", {"k": 2})
    crowded.wait(lambda: crowded.rows("t") == [{"k": 2}])


@pytest.mark.parametrize("wait", LATE, ids=lambda each: each.__name__)
def test_every_wait_ends_when_it_is_cancelled(crowded, pool, wait):
    future = is_cancelled(crowded, wait, pool=pool)
    assert refusal(future) == ("SLACKWATER_CANCELED", "57014")
    assert crowded.env.sessions.find("app/1").running == {}
    crowded.env.committer.release("other")
    crowded.write("t", {"k": 2})
    crowded.wait(lambda: crowded.rows("t") == [{"k": 2}])


def test_a_timeout_of_its_own_answers_without_rows(crowded, clock, pool):
    crowded.sql("SET statement_timeout = '1h'")
    fetched = pool.submit(crowded.sql, "FETCH ALL c WITH (timeout = '2h')")

    def ended():
        clock.passes(HOUR_S)
        return fetched.done()

    crowded.wait(ended)
    assert fetched.result() == []


def test_a_timeout_of_its_own_comes_on_top_of_the_deadline():
    cancellation = Cancellation(10_000, lambda: 7.0)
    cancellation.extend(3_600_000)
    assert cancellation.left_s() == 3_610
    without = Cancellation(0, lambda: 7.0)
    without.extend(1)
    assert without.left_s() == LONGEST_S


def test_a_write_that_is_being_committed_is_not_cancelled(place, clock, pool, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    commit = place.env.committer._log.append

    def slow(*arguments):
        if len(arguments[4]):
            begun.set()
            assert go_on.wait(PATIENCE)
        return commit(*arguments)

    monkeypatch.setattr(place.env.committer._log, "append", slow)
    place.sql("SET statement_timeout = '1h'")
    write = pool.submit(place.write, "t", {"k": 1}, execution="e")
    assert begun.wait(PATIENCE)
    (running,) = place.env.sessions.find("app/1").running.values()
    call(place, "/v1/cancel", session="app/1", execution="e")
    clock.passes(HOUR_S + 1)
    assert running.cancellation.left_s() == 0
    assert not write.done()
    go_on.set()
    assert write.result(PATIENCE) > 0
    assert place.rows("t") == [{"k": 1}]


def test_a_lock_that_was_granted_is_kept_when_the_statement_is_cancelled_then(place):
    committer = place.env.committer
    cancellation = Cancellation()
    committer.lock(frozenset({7}), "mine", cancellation=cancellation)
    cancellation.cancel()
    with pytest.raises(SlackwaterError, match="LOCK_TIMEOUT"):
        committer.lock(frozenset({7}), "other", wait_ms=20)
    committer.release("mine")
    committer.lock(frozenset({7}), "other", wait_ms=PATIENCE * 1000)
    committer.release("other")


# What waits for the catalog: any definition.

COLUMNS = RelationDesc.of(k="integer").to_json()
BY_SPARK = {
    "create_namespace": {"namespace": ["more"]},
    "alter_namespace": {"comment": "other"},
    "drop_namespace": {},
    "create_table": {"name": "u", "schema": COLUMNS},
    "alter_table": {"name": "t", "changes": [{"set_comment": "other"}]},
    "rename_table": {"name": "t", "to_namespace": ["default"], "to_name": "u"},
    "drop_table": {"name": "t"},
    "create_view": {"name": "v", "schema": COLUMNS, "query": "SELECT k FROM t"},
}
BY_US = (
    "CREATE VIEW v AS SELECT k FROM t",
    "CREATE MATERIALIZED VIEW v AS SELECT k + 1 AS k FROM t",
    "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')",
    "CREATE SINK s FROM t INTO FILES (PATH '{folder}', FORMAT JSON)",
    "DROP TABLE t CASCADE",
    "ALTER TABLE t SET (RETAIN HISTORY FOR '1 hour')",
    "COMMENT ON COLUMN t.k IS 'other'",
)


@pytest.fixture
def changing(place, pool):
    """Another definition is under way."""
    place.env.engine = Answers(place)
    locked, go_on = threading.Event(), threading.Event()

    def change():
        with place.env.catalog.lock:
            locked.set()
            assert go_on.wait(PATIENCE)

    other = pool.submit(change)
    assert locked.wait(PATIENCE)
    yield place
    go_on.set()
    other.result(PATIENCE)


def define(place, definition, folder):
    body = {"session": "app/1", "execution": "e", "context": {"user": "me"}}
    if definition in BY_SPARK:
        more = {"namespace": ["default"], **BY_SPARK[definition]}
        return call(place, f"/v1/catalog/{definition}", **body, **more)
    text = definition.format(folder=folder)
    return call(place, "/v1/execute", **body, text=text)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("definition", [*BY_SPARK, *BY_US])
def test_no_definition_waits_for_another_for_ever(
    changing, clock, pool, tmp_path, definition, late
):
    before = changing.env.state
    arguments = (define, definition, tmp_path / "out")
    if late:
        future = comes_too_late(changing, clock, *arguments, pool=pool)
    else:
        future = is_cancelled(changing, *arguments, pool=pool)
    condition = "SLACKWATER_STATEMENT_TIMEOUT" if late else "SLACKWATER_CANCELED"
    assert refusal(future) == (condition, "57014")
    assert changing.env.state == before


class Busy:
    """Spark that computes until it is told to end, as the bridge tells it."""

    def __init__(self):
        self.asked, self.ended = threading.Event(), threading.Event()
        self.interruption = None

    @contextmanager
    def ended_by(self, interruption):
        self.interruption = interruption
        yield

    def under(self, settings):
        return self

    def on_replica(self, share):
        return self

    def end_replica(self, name):
        pass

    def analyze(self, text, catalog, namespace, functions=()):
        with self.interruption.on_cancel_or_deadline(self.ended.set):
            self.asked.set()
            assert self.ended.wait(PATIENCE)
        self.interruption.check_deadline("Spark had answered")


@pytest.mark.parametrize("late", [True, False])
def test_spark_is_told_to_end(place, clock, pool, late):
    place.env.engine = Busy()
    place.sql(f"SET statement_timeout = '{'1h' if late else '0'}'")
    text = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"
    body = {"session": "app/1", "text": text, "execution": "e"}
    future = pool.submit(call, place, "/v1/execute", **body)
    assert place.env.engine.asked.wait(PATIENCE)
    if late:
        clock.passes(HOUR_S + 1)
    else:
        call(place, "/v1/cancel", session="app/1", execution="e")
    condition = "SLACKWATER_STATEMENT_TIMEOUT" if late else "SLACKWATER_CANCELED"
    assert refusal(future) == (condition, "57014")
    assert place.env.state.find("default", "v") is None


def test_what_is_cancelled_is_so_for_ever_and_at_once():
    cancellation, told = Cancellation(60_000), []
    with cancellation.on_cancel(lambda: told.append(1)):
        cancellation.cancel()
        cancellation.cancel()
    with cancellation.on_cancel(lambda: told.append(2)):
        pass
    assert told == [1, 2]
    with pytest.raises(SlackwaterError, match="57014"):
        FrontierWatch().wait_until(lambda: False, 60.0, cancellation)


def test_what_has_an_end_is_told_to_end_at_the_deadline_and_not_after_it(clock):
    cancellation, ended = Cancellation(36_000_000, clock), threading.Event()
    with cancellation.on_cancel_or_deadline(ended.set):
        pass
    wait_until(lambda: "deadline" not in {each.name for each in threading.enumerate()})
    with cancellation.on_cancel_or_deadline(ended.set):
        clock.passes(9 * HOUR_S)
        cancellation.extend(0)
        clock.passes(9 * HOUR_S)
        assert not ended.is_set()
        clock.passes(2 * HOUR_S)
        assert ended.wait(PATIENCE)


VIEW = "SELECT k FROM t"


class Analyzer:
    """Spark that analyses the view's text when it is told to, and what is asked besides at once."""

    def __init__(self, place):
        self._answers = Answers(place)
        self.asked = threading.Semaphore(0)
        self.answer = threading.Semaphore(0)
        self.calls = 0

    def under(self, settings):
        return self

    def on_replica(self, share):
        return self

    def end_replica(self, name):
        pass

    def analyze(self, text, catalog, namespace, functions=()):
        if text == VIEW:
            self.calls += 1
            self.asked.release()
            assert self.answer.acquire(timeout=PATIENCE)
        return self._answers.analyze(text, catalog, namespace)

    def __getattr__(self, name):
        return getattr(self._answers, name)


@pytest.fixture
def defining(place, pool):
    """A view that is being analysed."""
    place.env.engine = Analyzer(place)
    text = f"CREATE MATERIALIZED VIEW v AS {VIEW}"
    future = pool.submit(place.sql, text, "app/2")
    assert place.env.engine.asked.acquire(timeout=PATIENCE)
    return place, future


def test_definitions_go_on_while_a_view_is_analysed(defining, pool):
    place, future = defining
    assert pool.submit(place.table, "u", k="integer").exception(PATIENCE) is None
    assert not future.done()
    place.env.engine.answer.release()
    assert future.exception(PATIENCE) is None
    assert place.env.engine.calls == 1
    place.wait(
        lambda: place.env.relations.upper(place.item("v")).value > place.item("v").details.as_of
    )


def test_a_view_is_analysed_again_when_what_it_reads_has_changed(defining, pool):
    place, future = defining
    more = [{"add_column": {"name": ["v"], "type": "string", "nullable": True}}]
    body = {"session": "app/1", "namespace": ["default"], "name": "t", "changes": more}
    call(place, "/v1/catalog/alter_table", **body)
    place.env.engine.answer.release()
    assert place.env.engine.asked.acquire(timeout=PATIENCE)
    assert place.env.state.find("default", "v") is None
    place.env.engine.answer.release()
    assert future.exception(PATIENCE) is None
    assert place.env.engine.calls == 2


def test_a_view_over_a_table_that_always_changes_is_defined_in_the_end(defining, pool):
    place, future = defining
    for attempt in range(1, ATTEMPTS):
        call(
            place,
            "/v1/catalog/alter_table",
            session="app/1",
            namespace=["default"],
            name="t",
            changes=[{"set_comment": f"{attempt}"}],
        )
        place.env.engine.answer.release()
        assert place.env.engine.asked.acquire(timeout=PATIENCE)
    # Nothing can change any more until the view is there.
    change = pool.submit(place.table, "u", k="integer")
    place.env.engine.answer.release()
    assert future.exception(PATIENCE) is None
    assert change.exception(PATIENCE) is None
    assert place.env.engine.calls == ATTEMPTS
    place.sql("DROP MATERIALIZED VIEW v")


def test_what_a_statement_waits_for_is_told_while_it_waits(place, pool):
    read = [{"id": place.item("t").id, "as_of": {"at": FAR}}]
    asked = {"session": "app/1", "execution": "7"}
    assert call(place, "/v1/waits", **asked) == {"waits_for": None}
    late = pool.submit(call, place, "/v1/bind", **asked, relations=read)
    (row,) = wait_until(lambda: place.system("mz_statement_waits"), what="the wait")
    assert (row["session_id"], row["statement"]) == ("app/1", "7")
    assert row["waits_for"].startswith("slackwater.default.t is ")
    assert call(place, "/v1/waits", **asked)["waits_for"].endswith("behind the time of the read.")
    assert call(place, "/v1/waits", session="app/1", execution="8") == {"waits_for": None}
    assert call(place, "/v1/waits", session="app/2", execution="7") == {"waits_for": None}
    call(place, "/v1/cancel", **asked)
    assert refusal(late) == ("SLACKWATER_CANCELED", "57014")
    assert place.system("mz_statement_waits") == []


def test_how_far_a_write_is_is_told_as_long_as_its_driver_says_so(place, clock):
    asked = {"session": "app/9", "execution": "7", "sql": "INSERT INTO t SELECT 1"}
    told = {"rows": 1_200_000, "tasks": 8, "tasks_done": 3}
    assert call(place, "/v1/writing", **asked, **told) == {"waits_for": None}, "no such session"
    call(place, "/v1/plan", session="app/9", text="SELECT 1")
    said = call(place, "/v1/writing", **asked, **told)
    (row,) = place.system("mz_statement_waits")
    assert row["waits_for"] == "1,200,000 rows are written, 3 of 8 tasks are done."
    assert (row["session_id"], row["statement"]) == ("app/9", "7")
    assert said == {"waits_for": row["waits_for"]}
    more = {"rows": 2_000_000, "tasks": 0, "tasks_done": 0}
    assert call(place, "/v1/writing", **asked, **more)["waits_for"] == "2,000,000 rows are written."
    call(place, "/v1/writing", session="app/9", execution="8", **told)
    assert statuses(place) == {"7": None, "8": None}
    # A write whose jobs have failed has no other end; one that is committed has.
    assert call(place, "/v1/writing", **asked, tasks=None) == {"waits_for": None}
    assert [each["statement"] for each in place.system("mz_statement_waits")] == ["8"]
    assert statuses(place) == {"7": "aborted", "8": None}
    write = {"write_id": "w", "hold": None, "table": place.item("t").id, "mode": "append"}
    call(place, "/v1/write", session="app/9", execution="8", inline=[], files=[], **write)
    assert statuses(place) == {"7": "aborted", "8": "success"}
    assert place.system("mz_statement_waits") == []
    call(place, "/v1/writing", **asked, **told)
    # A driver that says nothing any more is stopped, or cut off.
    clock.passes(WRITING_S)
    assert place.system("mz_statement_waits") == []


def statuses(place):
    """How the statements that have a number have ended, by it."""
    log = place.system("mz_recent_activity_log")
    return {r["statement"]: r["finished_status"] for r in log if r["statement"].isdecimal()}
