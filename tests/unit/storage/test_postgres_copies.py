"""Copies of tables that come later to a source of PostgreSQL: how they begin, fail and end."""

from __future__ import annotations

from dataclasses import replace

from tests.property.test_storage_postgres import World, alter
from tests.support.storage.fake_postgres import (
    COLUMNS,
    MORE,
    TEXT,
    FakeServer,
    deleted,
    inserted,
    source_table,
)

from slackwater.storage.copying import Room
from slackwater.storage.ingestion import IngestionProgress
from slackwater.storage.postgres import ingestion
from slackwater.storage.postgres.ingestion import CHECK_MS, states_of
from slackwater.storage.postgres.tables import PostgresColumn


def committed(world, *, pause_ms=1):
    """The next step within a few polls, after it was committed."""
    world.pause_ms = pause_ms
    step = next(filter(None, (world.poll() for _ in range(5))))
    world.commit(step)
    world.ingestion.committed(step)
    world.check()
    return step


def begun():
    """A source that has read what there was."""
    world = World(10, FakeServer())
    world.server.transact([inserted("keyed", "1", "x", "1")])
    committed(world)
    return world


def progress(world, name):
    """What is told of copies, in rows read and known, until the table has its contents."""
    told = []
    for _ in range(50):
        world.now_ms += CHECK_MS
        step = world.ingestion.poll(world.now_ms)
        if isinstance(step, IngestionProgress):
            counts = step.statistics
            told.append((counts.snapshot_records_staged, counts.snapshot_records_known))
        elif step is not None:
            world.commit(step)
            world.ingestion.committed(step)
            world.check()
            if name in states_of(world.state):
                return list(dict.fromkeys(told))
    raise AssertionError("it is not copied")


def test_copies_tell_how_many_rows_they_have_of_those_that_are_known(monkeypatch):
    monkeypatch.setattr(ingestion, "STEP_BYTES", 0)
    server = FakeServer()
    for number in range(5):
        server.transact([inserted("keyed", "1", "x", str(number))])
    world = World(2, server)
    assert progress(world, "keyed") == [(2, 5), (4, 5), (5, 5)]
    monkeypatch.undo()
    monkeypatch.setattr(Room, "beside", lambda *_: Room(10**6, 1))
    world.exports["later1"] = "keyed"
    assert progress(world, "later1")[-1] == (5, 5)


def test_a_copy_that_fails_is_the_status_of_a_source_that_goes_on():
    world = begun()
    world.exports["later1"] = "keyed"
    world.server.copies_fail = 1
    step = committed(world)
    assert step.status.status == "stalled"
    assert "all replication slots are in use" in step.status.error
    world.server.transact([inserted("keyed", "2", "y", "2")])
    step = committed(world)
    assert "keyed" in step.updates
    assert step.status.status == "stalled"
    assert "later1" not in states_of(world.state)
    step = committed(world, pause_ms=CHECK_MS)
    assert step.statistics.begun == ("later1",)
    assert step.status.status == "running"
    assert world.rows["later1"] == world.rows["keyed"]


def test_a_table_that_is_dropped_takes_the_failure_of_its_copy_with_it():
    world = begun()
    world.exports["later1"] = "keyed"
    world.server.copies_fail = 1
    assert committed(world).status.status == "stalled"
    del world.exports["later1"]
    assert committed(world, pause_ms=CHECK_MS).status.status == "running"


def test_what_is_to_be_read_again_may_be_dropped_meanwhile():
    world = begun()
    world.exports["later1"] = "whole"
    assert committed(world).statistics.begun == ("later1",)
    world.server.waits = 3
    wanted = world.ingestion.resnapshot(["later1"])
    world.ingestion.poll(world.now_ms)
    assert not wanted.done.is_set()
    del world.exports["later1"]
    for _ in range(5):
        world.poll()
    assert wanted.done.is_set()


def test_a_copy_takes_all_tables_that_wait_for_one():
    world = begun()
    slots = len(world.server.columns_at)
    world.exports |= {f"later{number}": "keyed" for number in range(5)}
    step = committed(world)
    assert sorted(step.statistics.begun) == [f"later{number}" for number in range(5)]
    assert len(world.server.columns_at) == slots + 1


def test_a_table_that_joins_has_columns_that_the_last_description_lacks(monkeypatch):
    """The server described the table to the source before it was altered, and has not since."""
    world = begun()
    world.server.transact([inserted("keyed", "1", "x", "2")])
    committed(world)
    # The world's own comparison has the columns of the source's first tables.
    monkeypatch.setattr(World, "check", lambda world: None)
    more = PostgresColumn("more", 9, TEXT, "text")
    world.server.tables["keyed"].columns.append(more)
    table = replace(source_table("keyed", "later1"), columns=(*COLUMNS["keyed"], more))
    monkeypatch.setitem(COLUMNS, "keyed", table.columns)
    world.exports["later1"] = "keyed"
    assert committed(world).statistics.begun == ("later1",)
    assert states_of(world.state)["later1"].gone == ()
    world.server.transact([inserted("keyed", "3", "z", "3")])
    committed(world)
    state = states_of(world.state)["later1"]
    assert (state.gone, state.ignored, state.broken) == ((), (), None)
    assert sorted(row[0] for row in world.rows["later1"]) == [1, 2, 3]


def test_a_copy_takes_nothing_that_is_behind_its_source():
    """What comes first may be a transaction that its source has not read yet."""
    world = World(1, FakeServer())
    world.server.transact([inserted("keyed", "1", "x", "1")])
    committed(world)
    world.server.meanwhile = [[], [], [inserted("keyed", "2", "y", "2")]]
    world.exports["later1"] = "keyed"
    while "later1" not in states_of(world.state):
        committed(world)
    assert world.rows["later1"] == world.rows["keyed"]


def test_a_process_that_begins_before_the_copy_of_a_column_goes_on_without_it():
    world = begun()
    alter(world, "add", "keyed")
    world.server.transact([inserted("keyed", "2", "y", "2")])
    world.refresh("keyed")
    world.server.waits = 4
    world.ingestion = world.resumed()
    committed(world)
    world.server.transact([deleted("keyed", 0), inserted("keyed", "3", "z", "3")])
    committed(world)
    assert states_of(world.state)["keyed"].added == ()
    assert {row[3:] for row, n in world.rows["keyed"].items() if n} == {()}
    committed(world)
    assert states_of(world.state)["keyed"].added == (MORE,)
    rows = {row for row, n in world.rows["keyed"].items() if n}
    assert {row[3] for row in rows} == {"more than 2", "more than 3"}


def test_a_table_that_has_an_error_takes_its_columns_with_the_next_copy():
    world = begun()
    alter(world, "leave", "keyed")
    committed(world, pause_ms=CHECK_MS)
    assert states_of(world.state)["keyed"].broken is not None
    alter(world, "add", "keyed")
    world.refresh("keyed")
    asked = world.ingestion.resnapshot(())
    world.poll()
    assert asked.done.is_set(), "no copy is tried again and again"
    world.ingestion.resnapshot(["keyed"])
    committed(world)
    assert states_of(world.state)["keyed"].added == (MORE,)
    assert states_of(world.state)["keyed"].broken is None
