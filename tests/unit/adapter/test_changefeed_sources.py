"""Sources of changefeeds in a coordinator without Spark: what lands, is bound, and survives."""

import json
import re
import threading
from collections import Counter
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from tests.support.adapter.coordination import NoSpark, Place
from tests.support.storage.changefeeds import BEFORE, Faults, Message, Upstream, columns, feeds_of
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.sources import source_steps
from slackwater.adapter.sources.changefeeds import FeedRequest
from slackwater.adapter.sources.webhooks import Verdict
from slackwater.checkpoints import statements
from slackwater.persist.tables import checkpoints
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.relation import RelationDesc
from slackwater.storage.changefeed.encoding import offset, place_of
from slackwater.storage.changefeed.messages import target_of

_TYPES = {"BIGINT": "long", "STRING": "string", "DOUBLE": "double"}


class Columns(NoSpark):
    """Knows what declarations of columns mean, as Spark's parser does."""

    def analyze(self, query, *_):
        (text,) = re.findall(r"(?:from_json\('\{\}', '|AS STRUCT<)(.*)(?:'|>)\) AS row", query)
        pairs = (each.split() for each in text.split(","))
        desc = RelationDesc.of(**{name: _TYPES[kind] for name, kind in pairs})
        column = SimpleNamespace(type_json=desc.to_json())
        return SimpleNamespace(desc=SimpleNamespace(columns=[column]))


@pytest.fixture
def place(env):
    place = Place(env, spark=Columns())
    yield place
    place.close()


def create(place, tables, options="", interval="20ms"):
    declared = ", ".join(f"{table} {columns()}" for table in tables)
    place.sql(
        f"CREATE SOURCE bank FROM CHANGEFEED (FORMAT COCKROACH{options}) FOR TABLES ({declared})"
        f" WITH (TIMESTAMP INTERVAL '{interval}', RETAIN HISTORY FOR '1 hour')"
    )


def send(place, message, name="bank", path=()):
    """What the sender of a message is told."""
    told, done = [], threading.Event()

    def take(verdict, said):
        told.append((verdict, said))
        done.set()

    source = place.coordinator.parts.changefeeds.find("default", name)
    request = FeedRequest(source, target_of(path), message.feed, message.body, take)
    place.coordinator.parts.changefeeds.post(request)
    assert done.wait(PATIENCE)
    return told[0]


def payload(*rows, feed="x"):
    return Message(feed, json.dumps({"payload": rows}).encode())


def resolved(nanos, feed="x"):
    return Message(feed, json.dumps({"resolved": f"{nanos}.0000000000"}).encode())


def row(number, balance, nanos, table="a"):
    after = None if balance is None else {"id": number, "owner": "o", "balance": balance}
    return {"after": after, "key": [number], "topic": table, "updated": f"{nanos}.0000000000"}


def rows(place, name):
    read = place.rows(name)
    found = {each["id"]: each["balance"] for each in read}
    assert len(found) == len(read)
    return found


def contents(place, name, at=None):
    """The rows of a collection at a time, each with how often it is there."""
    return Counter(json.dumps(each, default=str) for each in place.rows(name, at))


def frontier(place, at=None):
    (found,) = place.rows("bank_progress", at)
    return place_of(found["frontier"])


def bound(place, until):
    """What is before `until` can be read, and the source has told that it is so far."""
    source = place.item("bank").id

    def told():
        progress = place.env.changefeeds.changefeed_progress().get(source)
        return progress is not None and progress.lower >= until

    wait_until(lambda: frontier(place) >= until and told(), what=f"{until} is bound")


def partition(place, feed="x"):
    found = place.system("mz_changefeed_partitions")
    return next(each for each in found if each["partition"] == feed)


def test_a_source_has_tables_a_landing_and_dead_letters(place):
    create(place, ["a", "b"])
    assert place.notices[0]["message"].endswith(
        "/api/changefeed/slackwater/default/bank?feed=<name>. None can come yet: "
        "spark.slackwater.ingress.address is not set."
    )
    names = {item.name for item in place.env.state.items_in("default")}
    assert names == {"bank", "a", "b", "bank_progress", "bank_landing", "bank_dead_letters"}
    assert frontier(place) == 0
    place.sql("DROP SOURCE bank")
    assert place.env.state.items_in("default") == ()


def test_what_is_resolved_is_there_in_all_tables(place):
    create(place, ["a", "b"])
    assert send(place, payload(row(1, 10, 5), row(2, 20, 5, "b"))) == (Verdict.COMMITTED, "")
    assert send(place, payload(row(1, 11, 7))) == (Verdict.COMMITTED, "")
    assert rows(place, "a") == {}
    assert send(place, resolved(5)) == (Verdict.COMMITTED, "")
    bound(place, 5 * 10**10 + 1)
    assert (rows(place, "a"), rows(place, "b")) == ({1: 10}, {2: 20})
    assert partition(place)["waiting"] == 1
    assert send(place, resolved(8)) == (Verdict.COMMITTED, "")
    bound(place, 8 * 10**10 + 1)
    assert rows(place, "a") == {1: 11}
    found = partition(place)
    assert (found["resolved"], found["committed"]) == ("8.0000000000", "8.0000000000")
    assert (found["status"], found["rows_bound"], found["waiting"]) == ("admitted", 3, 0)


def test_a_resolved_time_does_not_go_back(place):
    create(place, ["a"])
    assert send(place, resolved(8))[0] is Verdict.COMMITTED
    assert send(place, resolved(8))[0] is Verdict.COMMITTED
    verdict, said = send(place, resolved(7))
    assert verdict is Verdict.BACKWARDS
    assert "7.0000000000 is behind 8.0000000000" in said
    assert metrics(place)["checkpoint_proposed_going_backwards_errors_total"] == 1


def test_what_is_no_message_is_refused_and_nothing_lands(place):
    create(place, ["a"])
    verdict, said = send(place, Message("x", b'{"payload": [{}]}'))
    assert (verdict, said) == (
        Verdict.MALFORMED,
        "a payload has no updated: the feed needs WITH updated",
    )
    assert send(place, Message("x" * 300, b'{"resolved": "1.0"}'))[0] is Verdict.MALFORMED
    assert contents(place, "bank_landing") == {}


def test_a_restart_goes_on_with_what_has_landed(place):
    create(place, ["a"])
    send(place, payload(row(1, 10, 5), row(2, 20, 5)))
    send(place, resolved(5))
    bound(place, 5 * 10**10 + 1)
    send(place, payload(row(1, 11, 7), row(2, None, 7)))
    place.restart()
    send(place, resolved(8))
    bound(place, 8 * 10**10 + 1)
    assert rows(place, "a") == {1: 11}
    # Of each key what it has now, and nothing else.
    (kept,) = contents(place, "bank_landing")
    assert '"bound": true' in kept


def metrics(place):
    """The values of the metrics of the source, by their names behind ``slackwater_``."""
    found = re.findall(
        rf'^slackwater_(\w+){{object_id="{place.item("bank").id}"}} (\S+)$',
        place.coordinator.metrics().decode(),
        re.MULTILINE,
    )
    return {name: float(value) for name, value in found}


def test_metrics(place):
    create(place, ["a"], ", FEEDS ('x', 'y')")
    assert not any(name.startswith("checkpoint_committed") for name in metrics(place))
    now_s = wall_clock_ms() // 1000
    first, second = (now_s - 100) * 10**9, (now_s - 40) * 10**9
    send(place, payload(row(1, 10, first), row(2, 20, first)))
    for nanos, feed in ((second, "x"), (first, "y")):
        send(place, resolved(nanos, feed))
    assert send(place, resolved(first, "x"))[0] is Verdict.BACKWARDS
    bound(place, first * 10**10 + 1)
    wait_until(
        lambda: "checkpoint_committed_timestamp_seconds" in metrics(place), what="it is told"
    )
    found = metrics(place)
    assert found["changefeed_landed_rows_total"] == 2
    assert found["checkpoint_proposed_going_backwards_errors_total"] == 1
    assert found["checkpoint_advance_duration_seconds_count"] == 3
    assert found["checkpoint_commit_duration_seconds_count"] == 1
    assert found["checkpoint_refresh_duration_seconds_count"] >= 1
    for which in ("committed", "proposed"):
        assert found[f"checkpoint_{which}_timestamp_seconds"] == now_s - 100
        assert 100 <= found[f"checkpoint_{which}_age_seconds"] < 160
    source = place.item("bank").id
    place.sql("DROP SOURCE bank")
    assert f'"{source}"' not in place.coordinator.metrics().decode()


def test_what_is_seen_of_a_source(place):
    create(place, ["a"])
    source = place.item("bank").id
    now_s = wall_clock_ms() // 1000
    first, second = (now_s - 100) * 10**9, (now_s - 50) * 10**9
    send(place, payload(row(1, 10, first), row(1, 10, first), row(2, 20, first, "nothing")))
    send(place, resolved(first))
    bound(place, first * 10**10 + 1)
    send(place, payload(row(3, 30, first - 1), row(1, 11, second), row(4, 40, second + 1)))
    send(place, payload(row(5, 50, second), feed="later"))
    send(place, resolved(second))
    bound(place, second * 10**10 + 1)
    found = partition(place)
    assert 50_000 <= found["lag"] < 110_000
    at = f"{second}.0000000000"
    expected = {
        "id": source,
        "partition": "x",
        "status": "admitted",
        "resolved": at,
        "committed": at,
        "proposed": at,
        "waiting": 1,
        "rows_bound": 2,
        "rows_late": 1,
        "rows_repeated": 1,
        "dead_letters": 1,
    }
    assert {name: found[name] for name in expected} == expected
    found = partition(place, "later")
    assert [found[each] for each in ("status", "resolved", "lag", "waiting")] == [
        "pending",
        None,
        None,
        1,
    ]
    (counted,) = (e for e in place.system("mz_source_statistics") if e["id"] == source)
    assert counted["messages_received"] == 5
    # One row that came, and its change.
    assert counted["updates_committed"] == 3
    assert counted["bytes_received"] > 0
    (status,) = (e for e in place.system("mz_source_statuses") if e["id"] == source)
    assert (status["status"], status["error"]) == ("running", None)


def test_the_feed_of_a_query_and_files_that_are_sent(place):
    create(place, ["a", "b"])

    def change(number, balance, nanos, before=None):
        after = None if balance is None else {"id": number, "owner": "q", "balance": balance}
        return {"after": after, "before": before, "updated": f"{nanos}.0000000000"}

    query = [change(1, 10, 5), change(2, 20, 5), change(9, None, 5)]
    assert send(place, payload(*query), path=("a",))[0] is Verdict.COMMITTED
    day, name = "2026-01-31", "202601310000000000000000000000001-5d-1-2-00000001-{}-8.ndjson"
    lines = (json.dumps({**row(n, n, 5), "topic": "db.public.b"}) for n in (7, 8))
    file = Message("x", "\n".join(lines).encode())
    assert send(place, file, path=(day, name.format("db.public.b")))[0] is Verdict.COMMITTED
    gone = [change(1, None, 6, {"id": 1, "owner": "q", "balance": 10}), change(2, 21, 6)]
    file = Message("x", "\n".join(map(json.dumps, gone)).encode())
    assert send(place, file, path=("a", day, name.format("any")))[0] is Verdict.COMMITTED
    assert rows(place, "a") == {}
    end = (day, "202601310000000000000000000000000.RESOLVED")
    assert send(place, Message("x", b""), path=end)[0] is Verdict.COMMITTED
    bound(place, 1769817600 * 10**19 + 1)
    assert (rows(place, "a"), rows(place, "b")) == ({2: 21}, {7: 7, 8: 8})


def test_a_binding_is_there_as_a_whole_or_not_at_all(place, monkeypatch):
    """Its last step fails: what was appended before that in the same transaction is not there."""
    create(place, ["a", "b"])
    send(place, payload(row(1, 10, 5), row(2, 20, 5, "b"), row(3, 30, 5, "c")))
    before = contents(place, "bank_landing")
    failed = threading.Event()

    def fails(*_):
        failed.set()
        raise ArithmeticError("the checkpoints cannot be marked")

    with monkeypatch.context() as patch:
        patch.setattr(statements, "prune", fails)
        send(place, resolved(5))
        assert failed.wait(PATIENCE)
        source = place.item("bank").id

        def stalled():
            return place.env.ingestion.status(source).status.status == "stalled"

        wait_until(stalled, what="the binding has failed")
        assert frontier(place) == 0
        assert contents(place, "bank_landing") == before
        assert all(not place.rows(each) for each in ("a", "b", "bank_dead_letters"))
        applied = sa.select(checkpoints.c.applied_ms)
        assert place.env.persist.transactions.query(
            lambda conn: conn.execute(applied).scalars().all()
        ) == [None]
    bound(place, 5 * 10**10 + 1)
    assert (rows(place, "a"), rows(place, "b")) == ({1: 10}, {2: 20})
    assert len(place.rows("bank_dead_letters")) == 1


def test_checkpoints_do_not_pile_up(place):
    create(place, ["a"])
    for nanos in range(2, 30):
        send(place, resolved(nanos))
        bound(place, nanos * 10**10 + 1)
    count = sa.select(sa.func.count()).select_from(checkpoints)
    assert place.env.persist.transactions.query(lambda conn: conn.scalar(count)) == 1
    place.sql("DROP SOURCE bank")
    assert place.env.persist.transactions.query(lambda conn: conn.scalar(count)) == 0


def test_a_row_that_one_table_cannot_take_is_missing_in_no_other(place):
    create(place, ["a", "b"])
    send(place, payload(row(1, "much", 5), row(2, 20, 5, "b")))
    send(place, resolved(5))
    bound(place, 5 * 10**10 + 1)
    (letter,) = place.rows("bank_dead_letters")
    assert letter["topic"] == "a"
    # Neither table has an error: both can be read, and the source goes on.
    assert place.read("a") == []
    assert [each["balance"] for each in place.read("b")] == [20]
    send(place, payload(row(1, 10, 7), row(2, 21, 7, "b")))
    send(place, resolved(7))
    bound(place, 7 * 10**10 + 1)
    assert (rows(place, "a"), rows(place, "b")) == ({1: 10}, {2: 21})


def test_dead_letters_are_read_counted_and_tried_again(place):
    create(place, ["a"])
    send(place, payload(row(1, 10, 5), row(1, 99, 5, "later"), row(2, 98, 5, "later")))
    send(place, resolved(5))
    bound(place, 5 * 10**10 + 1)
    letters = place.rows("bank_dead_letters")
    assert {(each["topic"], each["reason"]) for each in letters} == {
        ("later", "the source has no such table")
    }
    assert partition(place)["dead_letters"] == len(letters) == 2
    place.sql(f"ALTER SOURCE bank ADD TABLE later {columns()}")
    # What is deleted from then on does not come back.
    send(place, payload(row(2, None, 7, "later")))
    send(place, resolved(7))
    bound(place, 7 * 10**10 + 1)
    place.sql("ALTER SOURCE bank REPLAY DEAD LETTERS")
    assert place.notices[0]["message"] == "2 dead letters were tried again, 0 are left."
    assert rows(place, "later") == {1: 99}
    assert contents(place, "bank_dead_letters") == {}
    assert partition(place)["dead_letters"] == 0
    create_sql = place.item("later").create_sql
    assert "(id BIGINT, owner STRING, balance BIGINT) FROM SOURCE" in create_sql
    assert "(REFERENCE `later`) KEY (`id`) WITH (RETAIN HISTORY" in create_sql
    place.restart()
    assert rows(place, "later") == {1: 99}


def test_a_table_begins_with_the_next_binding_whatever_had_its_name(place):
    create(place, ["a"])
    send(place, payload(row(1, 10, 5), row(1, 99, 5, "later")))
    send(place, resolved(5))
    bound(place, 5 * 10**10 + 1)

    def referenced():
        return {each["name"]: each["columns"] for each in place.system("mz_source_references")}

    assert set(referenced()) == {"a"}
    place.sql("ALTER SOURCE bank REFRESH REFERENCES")
    assert referenced() == {"a": ["id", "owner", "balance"], "later": None}
    declared, key = columns().split(" KEY")
    made = f"CREATE TABLE mine {declared} FROM SOURCE bank (REFERENCE later) KEY {key}"
    place.sql(made)
    assert referenced()["later"] == ["id", "owner", "balance"]
    send(place, payload(row(1, 11, 7), row(2, 20, 7, "later")))
    send(place, resolved(7))
    bound(place, 7 * 10**10 + 1)
    assert rows(place, "mine") == {2: 20}
    place.sql("DROP TABLE mine")
    wait_until(
        lambda: {each["topic"] for each in place.rows("bank_landing")} == {"a"},
        what="what its keys had is forgotten",
    )
    send(place, payload(row(2, 21, 9, "later")))
    send(place, resolved(9))
    bound(place, 9 * 10**10 + 1)
    assert len(place.rows("bank_dead_letters")) == 2
    place.sql(made)
    send(place, payload(row(2, 22, 11, "later")))
    send(place, resolved(11))
    bound(place, 11 * 10**10 + 1)
    assert rows(place, "mine") == {2: 22}
    place.restart()
    assert (rows(place, "a"), rows(place, "mine")) == ({1: 11}, {2: 22})
    with pytest.raises(SlackwaterError) as raised:
        place.sql("DROP SOURCE bank")
    assert raised.value.condition == "SLACKWATER_DEPENDENT_OBJECTS"
    place.sql("DROP SOURCE bank CASCADE")


def test_alter_source_is_for_changefeeds(place):
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1s')")
    for action in ("REPLAY DEAD LETTERS", f"ADD TABLE t {columns()}"):
        with pytest.raises(SlackwaterError) as raised:
            place.sql(f"ALTER SOURCE c {action}")
        assert raised.value.condition == "SLACKWATER_WRONG_KIND"
    place.sql("ALTER SOURCE IF EXISTS nowhere REPLAY DEAD LETTERS")


def test_on_late_fail_stops_the_source(place):
    create(place, ["a"], ", ON LATE FAIL")
    send(place, payload(row(1, 10, 5)))
    send(place, resolved(6))
    bound(place, 6 * 10**10 + 1)
    send(place, payload(row(2, 10, 5)))
    send(place, resolved(8))

    def status():
        change = place.env.ingestion.status(place.item("bank").id)
        return change.status

    wait_until(lambda: status().status == "stalled", what="the source stops")
    assert "SLACKWATER_LATE_CHANGE" in status().error
    assert rows(place, "a") == {1: 10}


def test_a_folder_of_files(place, tmp_path):
    day = tmp_path / "feed" / "2026-01-31"
    day.mkdir(parents=True)
    name = "20260131000000000000000000000000{}-5d-1-2-00000001-a-8.ndjson"
    lines = [
        {"after": {"id": n, "owner": "o", "balance": n}, "key": [n], "updated": f"{n}.0"}
        for n in (1, 2)
    ]
    (day / name.format(1)).write_text("\n".join(map(json.dumps, lines)))
    place.sql(
        f"CREATE SOURCE bank FROM CHANGEFEED FILES (FORMAT COCKROACH, PATH '{tmp_path}/feed')"
        f" FOR TABLES (a {columns()}) WITH (TIMESTAMP INTERVAL '20ms')"
    )
    assert rows(place, "a") == {}
    (day / "202601310000000000000000000000002.RESOLVED").write_text("{}")
    wait_until(lambda: rows(place, "a") == {1: 1, 2: 2}, what="the files are bound")
    # What is there is read once, also by the next leader.
    place.restart()
    lines = [{"after": None, "key": [1], "updated": "1769817600000000000.0000000003"}]
    (day / name.format(3)).write_text(json.dumps(lines[0]))
    (day / "202601310000000000000000000000004.RESOLVED").write_text("{}")
    wait_until(lambda: rows(place, "a") == {2: 2}, what="the next files are bound")
    wait_until(lambda: partition(place, "files")["rows_bound"] == 3, what="that is told")


@pytest.mark.parametrize("seed", range(4))
def test_every_transaction_once_and_whole_at_every_readable_time(place, seed):
    """Simulated feeds with faults, leaders that end in between; each time equals the model."""
    random = Random(seed)
    upstream = Upstream(seed)
    feeds = feeds_of(upstream, 1 + seed % 3, Faults(), seed)
    declared = ", ".join(f"'{feed.name}'" for feed in feeds)
    create(place, upstream.tables, f", FEEDS ({declared})" + (", LOOKAHEAD 2" if seed % 2 else ""))
    began = place.env.persist.reads.tables_upper()
    for number in range(30):
        for _ in range(random.randint(0, 5)):
            upstream.transact()
        for feed in random.sample(feeds, len(feeds)):
            for message in feed.round(upstream):
                assert send(place, message)[0] is Verdict.COMMITTED
        resolved_by_all = min(feed.resolved for feed in feeds)
        if number % 3 == 2 and resolved_by_all > BEFORE:
            bound(place, offset(resolved_by_all.next))
        if number in (7, 18):
            place.restart()
    for feed in feeds:
        for message in feed.round(upstream, is_last=True):
            assert send(place, message)[0] is Verdict.COMMITTED
    bound(place, offset(upstream.now.next))
    ended = place.env.persist.reads.tables_upper()
    times = {int(each["__time"]) for each in place.updates("bank_progress")} | {ended - 1}
    assert len(times) > 5
    for time in sorted(time for time in times if time >= began):
        check_whole(place, upstream, time)


def check_whole(place, upstream, time):
    """All tables have at this time what the upstream had at the frontier of this time."""
    truth = upstream.contents(frontier(place, time))
    total = 0
    for table in upstream.tables:
        expected = {json.dumps(each): 1 for each in truth[table].values()}
        assert contents(place, table, time) == expected
        total += sum(each["balance"] for each in truth[table].values())
    assert total in (0, upstream.total)


def test_what_a_large_binding_takes_back_is_in_a_file_too(place):
    """So the thread of commits, in which all landings are, does not write it."""
    create(place, ["a"])
    many, long = range(9000), "o" * 300

    def payload_of(nanos, balance):
        changes = [row(number, balance, nanos) for number in many]
        for change in changes:
            change["after"]["owner"] = long
        return payload(*changes)

    for nanos in (5, 7):
        assert send(place, payload_of(nanos, nanos))[0] is Verdict.COMMITTED
        send(place, resolved(nanos))
        bound(place, nanos * 10**10 + 1)
    assert rows(place, "a") == dict.fromkeys(many, 7)
    parts = place.env.persist.reads.parts(place.item("a").shard_id)
    assert [part.body.uniform.diff for part in parts] == [1, -1, 1]
    assert len(place.rows("bank_landing")) == len(many)


def test_a_change_whose_landing_was_not_certain_is_found_in_the_landing(place, monkeypatch):
    create(place, ["a"])
    change = payload(row(1, 10, 5))
    feeds = place.coordinator.parts.changefeeds
    committer = feeds._committer

    def loses_the_answer(write):
        committer.submit(write).result()
        lost = Future()
        lost.set_exception(user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="1", reason="x"))
        return lost

    with monkeypatch.context() as patch:
        patch.setattr(feeds, "_committer", SimpleNamespace(submit=loses_the_answer))
        assert send(place, change)[0] is Verdict.UNAVAILABLE
    assert send(place, change)[0] is Verdict.COMMITTED
    assert contents(place, "bank_landing").total() == 2
    send(place, resolved(5))
    bound(place, 5 * 10**10 + 1)
    assert rows(place, "a") == {1: 10}
    assert contents(place, "bank_landing").total() == 1
    assert partition(place)["rows_repeated"] == 1


@pytest.mark.parametrize("what", ["to compute", "to write"])
def test_feeds_do_not_wait_for_a_commit_that_is_slow(place, monkeypatch, what):
    """What a step computes, and the files that it writes, hold up its own thread alone."""
    create(place, ["a"])
    begun, may_end = threading.Event(), threading.Event()

    def slowly(function):
        def slow(*arguments):
            begun.set()
            assert may_end.wait(PATIENCE)
            return function(*arguments)

        return slow

    if what == "to compute":
        inbox = place.env.changefeeds.inbox(place.item("bank").id)
        monkeypatch.setattr(inbox, "take", slowly(inbox.take))
    else:
        monkeypatch.setattr(source_steps, "staged_files", slowly(source_steps.staged_files))
    send(place, payload(row(1, 9, 5)))
    send(place, resolved(5))
    assert begun.wait(PATIENCE)
    assert send(place, payload(row(1, 10, 7)))[0] is Verdict.COMMITTED
    assert send(place, resolved(7))[0] is Verdict.COMMITTED
    assert rows(place, "a") == {}
    may_end.set()
    bound(place, 7 * 10**10 + 1)
    assert rows(place, "a") == {1: 10}
