"""Single steps of sources that read tables of lakes, over a table below the seam."""

from collections import Counter

import pyarrow as pa
import pytest
from tests.property.test_storage_lake_source import DESC, World
from tests.support.storage.fake_histories import COLUMNS, MORE, FakeTable

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.storage.ingestion import IngestionProgress
from slackwater.storage.lake.history import TableColumn
from slackwater.storage.lake.ingestion import LakeState, LakeTableConfig
from slackwater.storage.lake.source_columns import added, difference
from slackwater.storage.lake.step_rows import DeletedValues, StepRows, conformed
from slackwater.storage.pieces import StagedRows

MUCH = 1 << 20
A, B = (1, "a"), (2, None)


def world(table=None, start=None, step_bytes=MUCH, piece_bytes=MUCH):
    config = LakeTableConfig("s", "t", "s", DESC, COLUMNS, start, step_bytes, piece_bytes)
    return World(config, table or FakeTable())


def stepped(place):
    step = place.poll()
    if step is not None:
        place.commit(step)
        place.acknowledge(step)
    return step


def test_several_small_versions_are_one_step():
    place = world()
    assert stepped(place).frontier.offset(0) == 1
    for _ in range(3):
        place.table.write({A: 1})
    place.table.write({A: -2, B: 1})
    step = stepped(place)
    assert step.frontier.offset(0) == 5
    assert step.updates["s"].num_rows == 2
    assert place.contents == {A: 1, B: 1}
    assert (step.statistics.messages_received, step.statistics.updates_staged) == (5, 2)
    assert stepped(place) is None


def test_the_bytes_of_files_bound_a_step_and_its_lag_is_told():
    place = world(step_bytes=100)
    stepped(place)
    for _ in range(5):
        place.table.write({A: 1})  # 40 bytes
    step = stepped(place)
    assert (step.statistics.offset_committed, step.statistics.offset_known) == (3, 6)
    assert [stepped(place).frontier.offset(0) for _ in range(2)] == [5, 6]


def test_versions_without_rows_move_the_frontier_alone_and_silence_nothing():
    place = world()
    stepped(place)
    place.table.write({})
    place.table.write({})
    step = stepped(place)
    assert (step.updates, step.frontier.offset(0)) == ({}, 3)
    assert stepped(place) is None


def test_a_row_that_is_not_there_cannot_go():
    place = world()
    place.table.write({A: 1})
    stepped(place)
    place.table.write({A: -1})
    place.table.last.changed.append((B, -1))
    place.has_lost = True
    assert place.poll() is None
    assert place.said == "SLACKWATER_SOURCE_HISTORY_LOST"
    assert place.contents == {A: 1}
    asked = place.ingestion.resnapshot()
    stepped(place)
    assert asked.done.is_set()
    assert place.contents == {}


def test_values_of_a_column_that_the_source_does_not_have_cannot_be_looked_up():
    place = world()
    stepped(place)
    place.table.write({})
    place.table.last.deleted = (("k", "more"), [(1, 7)])
    with pytest.raises(SlackwaterError, match="version 1 deletes by the column more"):
        place.ingestion.poll(0)


def test_a_row_that_goes_by_two_values_goes_once():
    place = world()
    place.table.write({A: 2, B: 1, (2, "b"): 1})
    stepped(place)
    rows = StepRows(place, MUCH)
    keys, texts = pa.table({"k": [1, 1]}), pa.table({"v": pa.array(["a", None], pa.string())})
    rows.delete([DeletedValues.of(keys), DeletedValues.of(texts)])
    assert sorted(rows.changes().to_pylist(), key=str) == [
        {"k": 1, "v": "a", "__diff": -1},
        {"k": 1, "v": "a", "__diff": -1},
        {"k": 2, "v": None, "__diff": -1},
    ]


def test_a_file_that_is_written_anew_brings_only_what_differs():
    place = world()
    place.table.write(Counter({(n, "x"): 1 for n in range(1000)}))
    stepped(place)
    rows = StepRows(place, 4000)
    for start in range(0, 1000, 100):
        piece = [((n, "x"), -1) for n in range(start, start + 100)]
        rows.add(DESC.with_diffs(piece))
    for start in range(0, 1000, 100):
        piece = [((n, "y" if n == 500 else "x"), 1) for n in range(start, start + 100)]
        rows.add(DESC.with_diffs(piece))
    found = rows.changes()
    tables = found.parts(None) if isinstance(found, StagedRows) else (found,)
    assert sum(each.num_rows for each in tables) < 2000
    total = Counter()
    for each in tables:
        for row in each.to_pylist():
            total[row["k"], row["v"]] += row["__diff"]
    assert {row: n for row, n in total.items() if n} == {(500, "x"): -1, (500, "y"): 1}


def test_a_snapshot_of_several_polls_tells_how_far_it_is():
    place = world(step_bytes=1, piece_bytes=30)
    place.table.write(Counter({(n, "x"): 1 for n in range(6)}))
    seen = []
    while isinstance(step := place.ingestion.poll(0), IngestionProgress):
        assert step.status.status == "starting"
        counted = step.statistics
        seen.append((counted.snapshot_records_staged, counted.snapshot_records_known))
    assert seen == [(2, 6), (4, 6), (6, 6)]
    assert isinstance(step.updates["s"], StagedRows)
    place.commit(step)
    assert step.statistics.snapshot_committed
    assert step.statistics.snapshot_records_known == 6


def test_a_source_begins_with_the_version_that_it_was_told():
    table = FakeTable()
    table.write({A: 1})
    table.write({B: 1})
    place = world(table, start=1)
    step = stepped(place)
    assert (step.frontier.offset(0), place.contents) == (2, {A: 1})
    assert step.statistics.offset_known == 3
    assert stepped(place).frontier.offset(0) == 3


def test_the_frontier_goes_on_where_a_table_was_made_anew():
    place = world()
    for _ in range(4):
        place.table.write({A: 1})
    stepped(place)
    place.table.make_anew([B])
    place.has_lost = True
    assert stepped(place) is None
    assert place.said == "SLACKWATER_SOURCE_REPLACED"
    place.ingestion.resnapshot()
    assert stepped(place).frontier.offset(0) == 6
    place.table.write({B: 1})
    assert stepped(place).frontier.offset(0) == 7
    assert LakeState.from_json(place.state).at.number == 1


def test_a_column_that_comes_is_told_and_one_that_goes_stops_the_source():
    place = world()
    place.table.write({A: 1})
    stepped(place)
    place.table.alter("more")
    assert stepped(place).status.details == {"columns left out": ["more"]}
    place.table.write({B: 1})
    place.table.alter("retyped")
    step = stepped(place)
    assert place.contents == {A: 1, B: 1}
    assert step.status.status == "stalled"
    assert "SLACKWATER_SOURCE_TABLE_CHANGED" in step.status.error
    assert "its column k is INT now" in step.status.error
    # Nothing is asked any more, also not by the process after this one.
    opened = place.table.opened
    assert stepped(place) is None
    place.ingestion = place.resumed()
    again = stepped(place)
    assert again.status == step.status
    assert not again.updates
    assert place.table.opened == opened


def test_how_columns_differ():
    k, v = COLUMNS
    nested = '{"type": "array", "elementType": "long", "containsNull": %s}'
    before = [k, TableColumn("n", nested % "true", True, "9")]
    assert difference(before, [TableColumn("n", nested % "false", False, "9"), k]) is None
    assert difference(before, [k]) == "its column n is gone"
    assert added(before, [MORE, k, v]) == ("more", "v")


def test_a_value_that_does_not_fit_is_no_row():
    table = pa.table({"k": [1 << 40], "v": ["a"]})
    with pytest.raises(pa.ArrowException):
        conformed(table, RelationDesc.of(k="integer", v="string"), has_diff=False)
    with pytest.raises(KeyError):
        conformed(table, RelationDesc.of(w="string"), has_diff=False)


def test_a_table_may_get_a_column_of_a_name_that_is_ours():
    theirs = pa.table([[1], [7], [-1]], names=["k", "__diff", "__diff"])
    desc = RelationDesc.of(k="long")
    assert conformed(theirs, desc, has_diff=True).to_pylist() == [{"k": 1, "__diff": -1}]
    whole = conformed(theirs.select([0, 1]), desc, has_diff=False)
    assert whole.to_pylist() == [{"k": 1, "__diff": 1}]


def test_what_values_take_away_is_durable_before():
    place = world()
    stepped(place)
    place.table.write({A: 2, B: 1})
    place.table.delete(("k",), [A], {(1, "b"): 1})
    place.table.write({B: 1})
    assert stepped(place).frontier.offset(0) == 2
    assert stepped(place).frontier.offset(0) == 4
    assert place.contents == {B: 2, (1, "b"): 1}


def test_a_begin_that_is_gone_is_left_out_when_that_is_said():
    table = FakeTable()
    table.write({A: 1})
    table.write({B: 1})
    table.vacuum()
    place = world(table, start=1)
    place.has_lost = True
    assert stepped(place) is None
    assert place.said == "SLACKWATER_SOURCE_HISTORY_LOST"
    asked = place.ingestion.resnapshot()
    assert stepped(place).frontier.offset(0) == 3
    assert asked.done.is_set()
    assert place.contents == {A: 1, B: 1}
