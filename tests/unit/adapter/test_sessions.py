"""Sessions: what two threads of one session may do, and what a block has for itself."""

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.persist.metastore_faults import Outage
from tests.support.waiting import PATIENCE

from slackwater.adapter import transactions
from slackwater.adapter.protocol import Caller, Execute
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.selection import Immediately
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.server.decoding import decode

ME = "app/1"


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


@pytest.fixture
def hurry():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def refusal(action):
    with pytest.raises(SlackwaterError) as told:
        action()
    return told.value.condition, told.value.sqlstate


def commit(place, write_id, **rest):
    body = {"session": ME, "text": "COMMIT", "write_id": write_id, "context": {}, **rest}
    caller, _ = decode(Execute, body)
    place.coordinator.calls.enter(caller)
    calls_of(place.coordinator)["/v1/execute"](body)


def notices(place):
    return [row["code"] for row in place.sql("SHOW NOTICES")]


def keys(place):
    return sorted(row["k"] for row in place.rows("t"))


def test_two_threads_of_a_session_lose_no_buffered_row(place, hurry):
    place.table("t", k="long")
    place.sql("BEGIN")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: place.write("t", {"k": k}, mode="append"), range(200)))
    place.sql("COMMIT")
    assert keys(place) == list(range(200))


def test_two_first_reads_of_a_block_have_one_time(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    oracle, both = place.env.oracle, threading.Barrier(2)
    now = [Timestamp(oracle.read_ts() - 2)]

    class Moving:
        def __getattr__(self, name):
            return getattr(oracle, name)

        def read_ts(self):
            """Two that ask together get two times; who is alone does not wait for long."""
            now[0] = time = Timestamp(now[0] + 1)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.3)
            return time

    place.env.oracle = Moving()
    place.sql("BEGIN")
    body = {"session": ME, "relations": [{"id": place.item("t").id}]}
    with ThreadPoolExecutor(2) as pool:
        bound = list(pool.map(lambda _: calls_of(place.coordinator)["/v1/bind"](dict(body)), "ab"))
    place.env.oracle = oracle
    assert len({each["timestamp"] for each in bound}) == 1
    calls_of(place.coordinator)["/v1/release"]({"holds": [each["hold"] for each in bound]})
    place.sql("COMMIT")
    assert [hold for hold in place.env.storage.holds() if ME in str(hold)] == []


def test_a_statement_of_another_thread_is_no_sign_of_a_lost_block(place):
    """It was sent while the block was open, and arrives when it has ended."""
    place.table("t", k="long")
    place.coordinator.calls.enter(Caller(session=ME))
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    place.sql("COMMIT")
    place.coordinator.calls.enter(Caller(session=ME, transaction="open"))
    place.write("t", {"k": 2})
    assert keys(place) == [1, 2]


def test_a_statement_from_before_a_block_does_not_fail_it(place):
    place.table("t", k="long")
    entered, go_on = threading.Event(), threading.Event()

    def text():
        entered.set()
        assert go_on.wait(PATIENCE)
        return "NOT A STATEMENT"

    class Late:
        write_id = planned_at = None
        # It is looked at before it runs, too.
        text = property(lambda _: text() if place.env.sessions.get(ME).running else "NOT")

    execute = place.coordinator.calls.endpoints()["/v1/execute"].answer
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(execute, Caller(session=ME), Late())
        assert entered.wait(PATIENCE)
        place.sql("BEGIN")
        go_on.set()
        assert late.exception(PATIENCE) is not None
    place.write("t", {"k": 1}, mode="append")
    place.sql("COMMIT")
    assert keys(place) == [1]


def test_a_block_has_the_isolation_that_it_began_with(place):
    place.table("t", k="long")
    place.write("t", {"k": 1})
    oracle = place.env.oracle
    session = place.env.sessions.get(ME)

    class Ahead:
        def __getattr__(self, name):
            return getattr(oracle, name)

        def read_ts(self):
            return Timestamp(oracle.read_ts() + 60_000)

    def is_strict():
        place.env.oracle = Ahead()
        found = place.coordinator.parts.reads.determination(
            session, [place.item("t")], Immediately()
        )
        place.env.oracle = oracle
        assert place.sql("SHOW transaction_isolation") == [
            {"transaction_isolation": "strict serializable" if found.oracle_read_ts else level}
        ]
        return found.oracle_read_ts is not None

    level = "serializable"
    assert is_strict()
    place.sql("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert not is_strict()
    place.sql("COMMIT")
    assert is_strict()
    place.sql("BEGIN ISOLATION LEVEL READ COMMITTED")
    assert not is_strict()
    assert "serializable" in place.sql("SHOW NOTICES")[-1]["message"]
    place.sql("ROLLBACK")
    assert is_strict()
    place.sql("SET transaction_isolation = serializable")
    place.sql("START TRANSACTION ISOLATION LEVEL STRICT SERIALIZABLE")
    assert is_strict()
    place.sql("COMMIT")
    assert not is_strict()


def test_a_read_only_block_refuses_every_write(place):
    place.table("t", k="long")
    body = {"session": ME, "relations": [{"id": place.item("t").id}]}
    for write in (
        lambda: place.write("t", {"k": 1}, mode="append"),
        lambda: place.write("t", mode="overwrite"),
        lambda: calls_of(place.coordinator)["/v1/bind"](
            {**body, "write_targets": [place.item("t").id]}
        ),
    ):
        place.sql("BEGIN READ ONLY")
        assert refusal(write) == ("SLACKWATER_READ_ONLY_TRANSACTION", "25006")
        place.sql("ROLLBACK")
    place.write("t", {"k": 2})
    assert keys(place) == [2]


SCHEMA = RelationDesc.of(k="long").to_json()
DEFINITIONS = {
    "create_namespace": {"namespace": ["more"]},
    "alter_namespace": {"namespace": ["default"], "comment": "other"},
    "drop_namespace": {"namespace": ["empty"]},
    "create_table": {"name": "u", "schema": SCHEMA},
    "alter_table": {"name": "t", "changes": [{"set_comment": "other"}]},
    "rename_table": {"name": "t", "to_namespace": ["default"], "to_name": "u"},
    "drop_table": {"name": "t"},
    "create_view": {"name": "v", "schema": SCHEMA, "query": "SELECT * FROM t"},
    "drop_view": {"name": "v"},
    "stage_table": {"name": "u", "schema": SCHEMA, "mode": "create"},
}


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_definition_by_spark_s_own_statement_is_refused_in_a_block(place, definition):
    place.table("t", k="long")
    calls_of(place.coordinator)["/v1/catalog/create_namespace"](
        {"session": ME, "namespace": ["empty"]}
    )
    assert set(DEFINITIONS) == {
        path.removeprefix("/v1/catalog/")
        for path in calls_of(place.coordinator)
        if path.startswith("/v1/catalog/")
    } - {"namespaces", "list", "load", "find_schemas", "find_relations", "find_columns"}
    place.sql("BEGIN")
    before = place.env.state
    body = {"session": ME, "namespace": ["default"], **DEFINITIONS[definition]}
    define = calls_of(place.coordinator)[f"/v1/catalog/{definition}"]
    assert refusal(lambda: define(body)) == ("SLACKWATER_TRANSACTION_STATEMENT", "25001")
    assert place.env.state == before
    assert refusal(lambda: define(body)) == ("SLACKWATER_FAILED_TRANSACTION", "25P02")
    place.sql("ROLLBACK")


def test_what_a_block_has_written_is_bounded(place, monkeypatch):
    monkeypatch.setattr(transactions, "BLOCK_LIMIT_BYTES", 10_000)
    place.table("t", k="long")
    place.sql("BEGIN")
    for k in range(20):
        place.write("t", *({"k": k} for _ in range(20)), mode="append")
    assert refusal(lambda: place.write("t", *({"k": 1} for _ in range(600)), mode="append")) == (
        "SLACKWATER_TOO_LARGE",
        "54000",
    )
    place.sql("ROLLBACK")
    assert keys(place) == []


def test_a_column_that_is_added_while_a_block_is_open(place):
    place.table("t", k="long")
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    calls_of(place.coordinator)["/v1/catalog/alter_table"](
        {
            "session": "app/2",
            "namespace": ["default"],
            "name": "t",
            "changes": [
                {"add_column": {"name": ["v"], "type": "string", "nullable": True}},
            ],
        }
    )
    place.write("t", {"k": 2, "v": "b"}, mode="append")
    place.sql("COMMIT")
    assert place.rows("t") == [{"k": 1, "v": None}, {"k": 2, "v": "b"}]


# A write carries an id, by which it is known when it is sent again


def test_a_write_of_a_block_that_is_sent_again_is_kept_once(place):
    place.table("t", k="long")
    place.sql("BEGIN")
    for _ in range(3):
        assert place.write("t", {"k": 1}, mode="append", write_id="w1") == 0
    place.write("t", {"k": 1}, mode="append", write_id="w2")
    place.sql("COMMIT")
    assert keys(place) == [1, 1]


@pytest.mark.parametrize(("end", "kept"), [("COMMIT", [1]), ("ROLLBACK", [])])
def test_a_write_that_is_sent_again_after_its_block_has_no_effect(place, end, kept):
    place.table("t", k="long")
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append", write_id="w1")
    place.sql(end)
    assert place.write("t", {"k": 1}, mode="append", write_id="w1") == 0
    place.sql("BEGIN")
    assert place.write("t", {"k": 1}, mode="append", write_id="w1") == 0
    place.sql("COMMIT")
    assert keys(place) == kept


def test_a_write_that_is_sent_again_in_a_later_block_is_not_kept_for_it(place):
    place.table("t", k="long")
    time = place.write("t", {"k": 1}, mode="append", write_id="w1")
    place.sql("BEGIN")
    assert place.write("t", {"k": 1}, mode="append", write_id="w1") == time
    place.sql("COMMIT")
    assert keys(place) == [1]


def test_copies_of_a_write_that_come_at_once_are_kept_once(place, hurry):
    place.table("t", k="long")
    place.sql("BEGIN")
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: place.write("t", {"k": n % 20}, mode="append", write_id=f"w{n % 20}"),
                range(160),
            )
        )
    place.sql("COMMIT")
    assert keys(place) == list(range(20))


# COMMIT carries an id


def test_a_commit_that_is_asked_for_again_has_one_effect(place):
    place.table("t", k="long")
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    for _ in range(3):
        commit(place, "c1", transaction="open")
    assert keys(place) == [1]
    assert "25P01" not in notices(place)
    commit(place, "c2")
    assert "25P01" in notices(place)


def test_a_commit_that_failed_fails_again(place):
    place.table("t", k="long")
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    place.drop("t", session="app/2")
    for _ in range(2):
        assert refusal(lambda: commit(place, "c1"))[0] == "SLACKWATER_DEPENDENCY_DROPPED"


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_without_an_answer_is_settled_by_the_next_coordinator(place, landed):
    place.table("t", k="long")
    place.coordinator.calls.enter(Caller(session=ME))
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    if landed:
        commit(place, "c1")
    place.restart()
    if landed:
        commit(place, "c1", transaction="open")
        commit(place, "c1")
    else:
        for _ in range(2):
            assert refusal(lambda: commit(place, "c1", transaction="open")) == (
                "SLACKWATER_TRANSACTION_LOST",
                "40001",
            )
    assert keys(place) == ([1] if landed else [])
    place.write("t", {"k": 2})


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_outcome_is_unknown_can_be_asked_for_again(env, landed):
    outage = Outage(env.engine)
    place = Place(env)
    place.table("t", k="long")
    place.env.persist.transactions._retry_policy = outage.retry_policy()
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    place.env.committer.flush()
    outage.strike(landed=landed)
    while not outage.lost:
        with contextlib.suppress(SlackwaterError):
            commit(place, "c1")
    commit(place, "c1")
    commit(place, "c1")
    assert keys(place) == [1]
    place.close()


def test_a_commit_that_happened_is_said_also_when_its_table_is_gone(env):
    outage = Outage(env.engine)
    place = Place(env)
    place.table("t", k="long")
    place.env.persist.transactions._retry_policy = outage.retry_policy()
    place.sql("BEGIN")
    place.write("t", {"k": 1}, mode="append")
    place.env.committer.flush()
    outage.strike(landed=True)
    while not outage.lost:
        with contextlib.suppress(SlackwaterError):
            commit(place, "c1")
    place.env.committer.flush()
    place.drop("t", session="app/2")
    commit(place, "c1")
    place.close()


class Cursor:
    """Knows whether another thread could use the session while it was closed."""

    def __init__(self, session):
        self.session = session
        self.was_free = None

    def close(self):
        with ThreadPoolExecutor(1) as other:
            taken = self.session.lock.acquire
            self.was_free = other.submit(lambda: taken(blocking=False)).result(PATIENCE)


@pytest.mark.parametrize("ends", ["rollback", "commit", "close"])
def test_a_session_ends_cursors_without_its_lock(ends):
    """A dataflow may end with a cursor, and whoever tells sessions of dataflows takes the lock."""
    session = Session(ME, 0, lambda: 0)
    session.transaction = transactions.begin(session.transaction)
    session.blocks += 1
    cursor = Cursor(session)
    session.open_cursor("c", cursor, session.block)
    match ends:
        case "rollback":
            session.roll_back()
        case "commit":
            session.commit("w1")
        case "close":
            session.close_cursor("c")
    assert cursor.was_free
    assert (session.cursors, session.block_cursors) == ({}, set())
