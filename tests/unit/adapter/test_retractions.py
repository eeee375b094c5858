"""Writes that retract: of what is not there they take nothing, whoever sends them."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.persist.uris import local_path
from slackwater.repr.errors import SlackwaterError

MANY = 120_000
"""Rows that are too many for an inline part."""


@pytest.fixture
def place(env):
    place = Place(env)
    place.table("t", k="long", v="string")
    yield place
    assert place.env.storage.holds() == ()
    place.close()


def row(k, v="a"):
    return {"k": k, "v": v}


def refused(place, *rows, **body):
    """The write of -1 for each row is refused, and changes nothing."""
    before = in_order(place)
    with pytest.raises(SlackwaterError) as failed:
        place.write("t", *rows, **{"diff": -1, **body})
    assert failed.value.sqlstate == "21000"
    assert in_order(place) == before
    return failed.value


def in_order(place):
    """The rows: a compaction at any moment may give them another order."""
    return sorted(place.rows("t"), key=repr)


def test_what_is_not_there_cannot_be_deleted(place):
    assert refused(place, row(1)).condition == "SLACKWATER_ROWS_NOT_PRESENT"
    place.write("t", row(1), row(1), row(None, None), row(2))
    for missing in ((row(1, "b"),), (row(1), row(1), row(1)), (row(None, "a"),), (row(2), row(3))):
        refused(place, *missing)
    assert "default.t would delete 1 rows" in str(refused(place, row(2), row(2)))
    place.write("t", row(1), row(None, None), row(2), diff=-1)
    assert place.rows("t") == [row(1)]
    refused(place, row(2))


def test_rows_that_come_with_the_write_may_go_with_it(place):
    come, go = (place.encoded("t", row(1), diff=diff) for diff in (1, -1))
    place.write("t", inline=[come, go])
    assert place.rows("t") == []
    refused(place, inline=[come, go, go])


def test_a_diff_counts_in_writes_of_diffs_only(place):
    place.write("t", row(1), diff=-1, mode="append")
    place.write("t", row(2), diff=-3, mode="overwrite")
    assert place.rows("t") == [row(2)]


def test_a_repeated_retraction_has_one_effect(place):
    place.write("t", row(1))
    write_id = uuid.uuid4().hex
    first = place.write("t", row(1), diff=-1, write_id=write_id)
    assert place.write("t", row(1), diff=-1, write_id=write_id) == first
    assert place.rows("t") == []


def put(place, write_id, rows):
    """A file of diffs, as an executor leaves it for the write."""
    body = {"table": place.item("t").id, "write_id": write_id}
    directory = local_path(calls_of(place.coordinator)["/v1/prepare_write"](body)["directory"])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{uuid.uuid4().hex}.parquet"
    schema = pa.schema([("k", pa.int64()), ("v", pa.string()), ("__diff", pa.int64())])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=1000)
    return {
        "uri": path.as_uri(),
        "rows": len(rows),
        "size_bytes": path.stat().st_size,
        "modified_ms": 0,
    }


def changes(diff, numbers):
    return [{**row(number), "__diff": diff} for number in numbers]


def test_files_are_looked_at(place):
    place.write("t", *(row(k) for k in range(MANY)))
    place.write("t", row(MANY), row(MANY))
    write_id = uuid.uuid4().hex
    files = [
        put(place, write_id, changes(-1, range(0, MANY, 2)) + changes(1, range(10))),
        put(place, write_id, changes(-1, [1, MANY, MANY])),
    ]
    place.write("t", write_id=write_id, files=files, inline=[])
    left = sorted(r["k"] for r in place.rows("t"))
    assert left == sorted([*range(1, MANY, 2), *range(10)][1:])
    for wrong in ([MANY], [3, 5, 3, 3], [10], [1, 1]):
        write_id = uuid.uuid4().hex
        refused(place, write_id=write_id, files=[put(place, write_id, changes(-1, wrong))])
