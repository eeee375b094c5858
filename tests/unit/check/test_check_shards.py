"""What the check tells of states and parts, given as values."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.persist.persistence import DESC, updates

from slackwater.check.contents import part_problem
from slackwater.check.files import broken_files, to_look_at, unnamed
from slackwater.check.shards import listed, shard_problems
from slackwater.persist.blobs import Blob, inline_part
from slackwater.persist.inspection import ShardRecord
from slackwater.persist.parts import FileBody, Part, Uniform
from slackwater.persist.rows import ShardState, committed_part
from slackwater.repr.frontier import TIMESTAMP_MAX, Timestamp

STATE = ShardState(1, DESC, Timestamp(2), Timestamp(9), False)


def part(number: int, lower: int, upper: int, **more) -> Part:
    body = FileBody(f"file:///shards/1/{number}.parquet", 10, 0, None)
    last = Timestamp(upper - 1)
    made = Part(
        number, 1, Timestamp(lower), Timestamp(upper), body, 1, Timestamp(lower), last, False
    )
    return replace(made, **more)


def uniform(number: int, time: int, diff: int, uri: str = "file:///f") -> Part:
    body = FileBody(uri, 10, 0, Uniform(Timestamp(time), diff))
    return part(number, time, time + 1, body=body, has_retractions=diff < 0)


SOUND = ShardRecord(
    1,
    STATE,
    None,
    False,
    # The second is a merge of times before the since, the last of parts around the third.
    (part(1, 0, 3), part(2, 0, 2, min_time=2, max_time=2), part(3, 5, 6), part(4, 4, 8)),
    (),
    next_shard_id=2,
    next_part_id=9,
)


@pytest.mark.parametrize(
    "sound",
    [
        SOUND,
        replace(SOUND, parts=(uniform(1, 3, 1), uniform(2, 5, -1), uniform(3, 7, 1))),
        # Nothing can be read yet, or any more.
        replace(SOUND, parts=(), state=replace(STATE, since=Timestamp(20))),
        replace(SOUND, parts=(), state=replace(STATE, upper=Timestamp(0), since=Timestamp(0))),
        replace(SOUND, state=replace(STATE, upper=TIMESTAMP_MAX)),
        replace(SOUND, is_dropped=True),
        ShardRecord(7, None, None, False, (), (), 9, 9),
    ],
)
def test_a_sound_shard_has_no_problems(sound):
    assert shard_problems(sound) == ()


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"parts": (part(1, 0, 10),)}, "overlap with the next append, which begins at the upper 9"),
        ({"parts": (uniform(1, 3, 1), uniform(2, 5, 1))}, "counted twice: file:///f"),
        ({"parts": (part(1, 4, 4, min_time=5),)}, "wrong order: 1"),
        ({"parts": (part(1, 4, 6, min_time=3),)}, "not within their bounds: 1"),
        ({"parts": (part(1, 4, 6, max_time=6),)}, "not within their bounds: 1"),
        ({"parts": (part(1, 4, 6, rows=0),)}, "have no rows: 1"),
        ({"parts": (replace(uniform(1, 4, 1), min_time=3, lower=3),)}, "another time than"),
        ({"parts": (part(9, 4, 6),)}, "an id that is still to be given"),
        ({"next_shard_id": 1}, "an id that is still to be given"),
        ({"state": None, "undecodable": "no JSON"}, "do not decode: no JSON"),
        ({"state": None}, "4 parts are on record, and no such shard"),
        ({"bodiless": (5,)}, "neither rows nor a file: 5"),
        ({"state": replace(STATE, since=Timestamp(-1))}, "since -1 is no time"),
    ],
)
def test_each_damage_of_a_state_is_told(damage, told):
    assert told in "; ".join(shard_problems(replace(SOUND, **damage)))


def test_a_tombstone_that_can_be_read_is_told():
    half = replace(STATE, since=TIMESTAMP_MAX)
    found = replace(SOUND, is_dropped=True, parts=(), state=half)
    assert "tombstone" in shard_problems(found)[0]


def test_of_many_the_first_are_shown():
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(5)) == "0, 1, 2 and 2 more"


def committed(*rows, **more) -> Part:
    made = committed_part(inline_part(updates(*rows)), 1, 1, Timestamp(0), Timestamp(9))
    return replace(made, **more)


@pytest.mark.parametrize(
    ("claimed", "told"),
    [
        ({}, None),
        ({"rows": 3}, "has 2 rows, not 3"),
        ({"min_time": Timestamp(4)}, "times from 3 to 3, not within 4 and 5"),
        ({"max_time": Timestamp(4)}, "times from 5 to 5, not within 3 and 4"),
        ({"has_retractions": False}, "has retractions, of which its readers are not told"),
    ],
)
def test_updates_are_compared_with_the_state(claimed, told):
    rows = [(1, "a", 3, 1), (1, "a", 5, -1)]
    # In two tables, as two row groups are.
    tables = [updates(rows[0]), updates(rows[1])]
    problem = part_problem(committed(*rows, **claimed), tables)
    assert problem == told or told in problem


def test_rows_without_a_time_are_told():
    table = updates((1, "a", 3, 1))
    lacking = table.set_column(2, table.schema.field(2), pa.nulls(1, pa.int64()))
    assert "without __time" in part_problem(committed((1, "a", 3, 1)), [lacking])


def test_files_are_looked_at_where_the_list_says_something_else():
    kept, gone, short, locked = (part(number, number, number + 1) for number in range(1, 5))
    parts = (kept, gone, short, locked, committed((1, "a", 3, 1)))
    uris = {each.part_id: each.body.uri for each in parts[:4]}
    suspects = to_look_at(parts, {uris[1]: 10, uris[3]: 9})
    assert suspects == (gone, short, locked)
    found = broken_files(suspects, {uris[2]: None, uris[3]: 9, uris[4]: "Permission denied"})
    assert found == {
        2: f"{uris[2]} is missing",
        3: f"{uris[3]} has 9 bytes, not 10",
        4: f"{uris[4]} cannot be read: Permission denied",
    }
    # What a listing shows too late is there all the same.
    assert broken_files(suspects, dict.fromkeys(uris.values(), 10)) == {}


def test_files_that_nothing_names_are_told_by_who_deletes_them():
    root = "file:///e%20e/shards"
    names = ["1/a.parquet", "1/.a.parquet.crc", "1/write-x/b.parquet", "2/c.parquet", "odd/d"]
    blobs = [Blob(f"{root}/{name}", 5, 0) for name in names]
    found = unnamed(blobs, root, {"a.parquet", "c.parquet"})
    assert [blob.uri for blob in found.orphans] == [f"{root}/1/write-x/b.parquet"]
    assert [blob.uri for blob in found.foreign] == [f"{root}/odd/d"]
    assert found.described() == (
        "1 files, 5 bytes, that nothing names: writes that run or broke off, deleted later; "
        f"one is {root}/1/write-x/b.parquet",
        f"1 files, 5 bytes, in no directory of a shard, which nobody deletes; one is {root}/odd/d",
    )
    assert unnamed(blobs[:2], root, {"a.parquet"}).described() == ()
