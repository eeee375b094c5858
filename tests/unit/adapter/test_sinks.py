"""Sinks from their statement to their files, across restarts and redirections, without Spark."""

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE

from slackwater.adapter.controllers.feeds import CollectionFeed
from slackwater.adapter.sources import sinks
from slackwater.persist.leadership import Fenced
from slackwater.persist.tables import environment, shards
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.read_policy import ValidFrom
from slackwater.storage.sink_files import FilesSink


@pytest.fixture
def place(env):
    place = Place(env)
    place.table("t", k="long", v="string")
    place.table("u", k="long", v="string")
    yield place
    place.close()


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def create(place, out, envelope=""):
    place.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{out}', FORMAT JSON) {envelope}")


def messages(out: Path) -> list[dict]:
    """What a reader that follows the manifest has seen."""
    manifest = out / "manifest.json"
    if not manifest.exists():
        return []
    return [
        json.loads(line)
        for file in json.loads(manifest.read_text())["files"]
        for line in (out / file["path"]).read_text().splitlines()
    ]


def written(out):
    return Counter((m["k"], m["v"], m["mz_diff"]) for m in messages(out))


def row(k, v):
    return {"k": k, "v": v}


def caught_up(place, out, time):
    def done():
        manifest = out / "manifest.json"
        return manifest.exists() and json.loads(manifest.read_text())["frontier"] > time

    place.wait(done)


def test_a_sink_goes_on_after_a_restart_where_its_files_end(place, out):
    place.write("t", row(1, "a"))
    create(place, out)
    as_of = place.item("s").details.as_of
    for number in range(2, 5):
        time = place.write("t", row(number, "a"))
        if number != 3:
            caught_up(place, out, time)
        place.restart()
        assert place.item("s").details.as_of == as_of
    caught_up(place, out, time)
    assert written(out) == {(k, "a", 1): 1 for k in range(1, 5)}
    place.wait(lambda: place.env.sinks.took()[place.item("s").id].number > 0)


def test_nothing_is_kept_of_a_sink_that_was_dropped(place, out):
    create(place, out)
    caught_up(place, out, place.write("t", row(1, "a")))
    place.wait(lambda: place.env.sinks.took()[place.item("s").id].number > 0)
    place.sql("ALTER SINK s SET FROM u")
    sink, runner = place.item("s").id, place.env.sinks
    assert runner.statistics()[sink].messages_committed == 1, "another command, the same sink"
    place.sql("DROP SINK s")
    place.wait(lambda: not any(sink in each for each in (runner._counted, runner._took)))
    assert not runner._paused


@pytest.mark.parametrize("restart", [False, True])
def test_set_from_loses_nothing_and_doubles_nothing(place, out, restart):
    place.write("t", row(1, "t"))
    place.write("u", row(9, "u"))
    create(place, out)
    place.write("t", row(2, "t"))
    place.sql("ALTER SINK s SET FROM u")
    if restart:
        place.restart()
    cut = place.write("t", row(3, "t"))
    time = place.write("u", row(10, "u"))
    caught_up(place, out, time)
    seen = written(out)
    # What u held when the sink changed over is not a change of u.
    assert seen == {(1, "t", 1): 1, (2, "t", 1): 1, (10, "u", 1): 1}
    assert all(m["mz_timestamp"] < cut for m in messages(out) if m["v"] == "t")
    assert "SET FROM" not in place.item("s").create_sql
    assert "`u`" in place.item("s").create_sql
    assert [i.name for i in place.env.state.dependents(place.item("u").id)] == ["s"]
    assert place.env.state.dependents(place.item("t").id) == ()
    place.sql("DROP SINK s")


def test_each_change_is_written_once_however_often_the_sink_is_redirected(place, out):
    create(place, out)
    names, expected, current = ["t", "u"], Counter(), "t"
    for number in range(8):
        # Until a redirection has been answered, the old relation is written.
        time = place.write(current, row(number, current))
        expected[number, current, 1] += 1
        caught_up(place, out, time)
        current = names[(number + 1) % 2]
        place.sql(f"ALTER SINK s SET FROM {current}")
        if number == 5:
            place.restart()
    time = place.write(current, row(99, current))
    expected[99, current, 1] += 1
    caught_up(place, out, time)
    assert written(out) == expected


def refused(place, text):
    with pytest.raises(SlackwaterError) as error:
        place.sql(text)
    return error.value.condition


def test_a_relation_that_does_not_fit_is_refused(place, out):
    place.table("keyless", v="string")
    place.table("retyped", k="long", v="long")
    create(place, out, "ENVELOPE UPSERT KEY (k)")
    time = place.write("t", row(1, "a"))
    caught_up(place, out, time)
    assert refused(place, "ALTER SINK s SET FROM keyless") == "SLACKWATER_SINK_KEY"
    assert refused(place, "ALTER SINK s SET FROM retyped") == "SLACKWATER_COLUMN_MISMATCH"
    assert refused(place, "ALTER SINK s SET FROM nothing") == "SLACKWATER_UNKNOWN_RELATION"
    assert refused(place, "ALTER SINK t SET FROM u") == "SLACKWATER_WRONG_KIND"
    place.sql("ALTER SINK s SET FROM t")
    place.sql("ALTER SINK IF EXISTS other SET FROM t")
    assert "no sink" in place.notices[0]["message"]
    # A relation that begins behind what the sink has still to read.
    begins = Frontier(place.env.persist.reads.tables_upper() + 60_000)
    place.env.storage.set_policy(place.item("u").id, ValidFrom(begins))
    assert refused(place, "ALTER SINK s SET FROM u") == "SLACKWATER_NO_VALID_TIMESTAMP"
    assert not any(place.item("u").id in hold.ids for hold in place.env.storage.holds())


def test_a_sink_that_cannot_write_is_not_redirected(place, out):
    create(place, out)
    caught_up(place, out, place.write("t", row(1, "a")))
    hidden = out.rename(out.with_name("hidden"))
    out.write_text("in the way")
    place.write("t", row(2, "a"))
    # It writes what it has as soon as it can: until then no time is enough.
    place.sql("SET statement_timeout = '300ms'")
    assert refused(place, "ALTER SINK s SET FROM u") == "SLACKWATER_WAIT_TIMEOUT"
    out.unlink()
    hidden.rename(out)
    place.sql("RESET statement_timeout")
    place.sql("ALTER SINK s SET FROM u")
    caught_up(place, out, place.write("u", row(3, "b")))
    assert written(out) == {(1, "a", 1): 1, (2, "a", 1): 1, (3, "b", 1): 1}


class Clock:
    """The wall clock, and what a test adds to it."""

    def __init__(self):
        self.ahead_ms = 0

    def __call__(self):
        return wall_clock_ms() + self.ahead_ms


def test_a_sink_that_stands_still_keeps_its_input_readable_after_a_restart_too(env, out):
    """Its hold is durable: nothing that it has still to write may be compacted away."""
    clock = Clock()
    place = Place(env, clock=clock)
    place.table("t", k="long", v="string")
    create(place, out)
    caught_up(place, out, place.write("t", row(1, "a")))
    sink = place.item("s").id
    hidden = out.rename(out.with_name("hidden"))
    out.write_text("in the way")
    for number in (2, 3):
        place.write("t", row(number, "a"))
        # Before, it may still record what it has written.
        place.wait(lambda: statuses(place)[sink]["status"] == "stalled")
        clock.ahead_ms += 3_600_000
        place.env.committer.flush()
        needed = place.env.persist.reads.upper(place.item("s").progress_shard) - 1
        assert place.env.relations.since(place.item("t")).value <= needed
        assert needed < place.env.relations.upper(place.item("t")).value - 1_000_000
        place.restart()
        assert place.env.relations.since(place.item("t")).value <= needed
    out.unlink()
    hidden.rename(out)
    caught_up(place, out, place.write("t", row(4, "a")))
    assert written(out) == {(k, "a", 1): 1 for k in range(1, 5)}
    place.wait(lambda: place.env.relations.since(place.item("t")).value > needed)
    progress = place.item("s").progress_shard
    place.sql("DROP SINK s")
    assert progress not in place.env.persist.reads.shard_ids()
    place.close()


def test_a_sink_that_learns_of_another_leader_ends_the_coordinator(place, out, monkeypatch):
    def fenced(uppers):
        raise Fenced(1, 2)

    create(place, out)
    monkeypatch.setattr(place.env.persist.commits, "advance", fenced)
    place.write("t", row(1, "a"))
    place.wait(lambda: place.fatal != [])
    assert place.fatal == [str(Fenced(1, 2))]
    place.fatal.clear()


def test_a_defect_of_a_sink_is_its_status_and_it_is_tried_again(place, out, monkeypatch):
    failures, write = [KeyError("who"), ValueError("why")], FilesSink.write

    def failing(self, *range_):
        if failures:
            raise failures[0]
        write(self, *range_)

    monkeypatch.setattr(FilesSink, "write", failing)
    create(place, out)
    time = place.write("t", row(1, "a"))
    for error in ("KeyError: 'who'", "ValueError: why"):
        place.wait(lambda error=error: statuses(place)[place.item("s").id]["error"] == error)
        failures.pop(0)
    caught_up(place, out, time)
    assert written(out) == {(1, "a", 1): 1}


@pytest.fixture
def hanging(monkeypatch):
    """Lets the next range that a sink writes wait until the event is set."""
    monkeypatch.setattr(sinks, "STOP_S", 0.05)
    began, go_on = threading.Event(), threading.Event()
    write = FilesSink.write

    def waiting(self, *range_):
        if not began.is_set():
            began.set()
            assert go_on.wait(PATIENCE)
        write(self, *range_)

    monkeypatch.setattr(FilesSink, "write", waiting)
    yield began, go_on
    go_on.set()


def test_what_replaces_a_sink_that_hangs_writes_each_change_once(place, out, hanging):
    began, go_on = hanging
    place.write("t", row(1, "a"))
    create(place, out)
    assert began.wait(PATIENCE)
    runner = place.coordinator.parts.sinks
    runner.run(runner._running[place.item("s").id].command)

    def waits():
        (status,) = place.system("mz_sink_statuses")
        return status["error"] == "waiting for a write to the same place that began before"

    place.wait(waits)
    time = place.write("t", row(2, "b"))
    go_on.set()
    caught_up(place, out, time)
    assert written(out) == {(1, "a", 1): 1, (2, "b", 1): 1}


def test_a_sink_that_hangs_can_be_dropped(place, out, hanging):
    began, go_on = hanging
    place.write("t", row(1, "a"))
    create(place, out)
    assert began.wait(PATIENCE)
    place.sql("DROP SINK s")
    place.sql("DROP TABLE t")
    assert place.system("mz_sink_statuses") == []
    go_on.set()


def statuses(place):
    return {row["id"]: row for row in place.system("mz_sink_statuses")}


def test_a_sink_does_not_go_on_behind_a_gap_in_its_input(place, out):
    """Its command says from where on the input can be read, which is beyond what is out."""
    create(place, out)
    caught_up(place, out, place.write("t", row(1, "a")))
    place.close()
    with place._env.engine.begin() as conn:
        upper = conn.execute(sa.select(environment.c.tables_upper)).scalar_one()
        # What a fault leaves: the history that the sink needs has been compacted.
        conn.execute(sa.update(environment).values(tables_upper=upper + 60_000))
        conn.execute(sa.update(shards).values(since=upper + 50_000).where(shards.c.upper.is_(None)))
    place.start()
    sink = place.item("s").id
    place.wait(lambda: statuses(place)[sink]["status"] == "stalled")
    assert "can be read from" in statuses(place)[sink]["error"]
    place.write("t", row(2, "a"))
    assert written(out) == {(1, "a", 1): 1}
    place.sql("DROP SINK s")


def test_a_sink_without_its_snapshot_does_not_read_it(place, out, monkeypatch):
    place.write("t", row(1, "a"))
    read = []
    monkeypatch.setattr(CollectionFeed, "snapshot", lambda feed, time: read.append(time))
    place.sql(
        f"CREATE SINK s FROM t INTO FILES (PATH '{out}', FORMAT JSON) WITH (SNAPSHOT = false)"
    )
    caught_up(place, out, place.write("t", row(2, "a")))
    assert written(out) == {(2, "a", 1): 1}
    assert read == []


def test_what_a_sink_reads_at_first_is_counted(place, out, monkeypatch):
    """While it is read, as many rows are known as are stored; then as many as are written."""
    for number in range(3):
        place.write("t", row(number, "a"))
    seen, snapshot = [], CollectionFeed.snapshot

    def counts():
        (found,) = place.system("mz_sink_statistics")
        return found["snapshot_records_staged"], found["snapshot_records_known"]

    def watched(feed, time):
        seen.append(counts())
        return snapshot(feed, time)

    monkeypatch.setattr(CollectionFeed, "snapshot", watched)
    create(place, out)
    caught_up(place, out, place.write("t", row(9, "a")))
    assert [(staged, known >= 3) for staged, known in seen] == [(0, True)]
    place.wait(lambda: counts() in ((3, 3), (4, 4)))
    place.restart()
    place.wait(lambda: statuses(place)[place.item("s").id]["status"] == "running")
    assert counts() == (None, None), "a leader before has written it"
