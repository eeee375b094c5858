"""Which retractions take away what is there, for all types and in pieces of any size."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.persist.blobs import LocalBlobs, file_part, inline_part, uniform_file
from slackwater.persist.parts import NewPart, Uniform
from slackwater.persist.retractions import unmatched_retractions
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(a="integer", b="string", c="double")
T0 = Timestamp(0)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    return LocalBlobs(tmp_path_factory.mktemp("environment"))


def table(rows, diffs, desc=DESC):
    names = desc.names
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(
        [{**r, "__time": 0, "__diff": d} for r, d in zip(found, diffs, strict=True)],
        schema=desc.update_schema(),
    )


def part(blobs, rows, diff, form):
    """All rows with one diff, in one of the forms that parts have."""
    updates = table(rows, [diff] * len(rows))
    if form == "inline":
        return inline_part(updates)
    if form == "file":
        return file_part(blobs, updates, blobs.uri("shard"))
    bare = updates.drop_columns(["__time", "__diff"])
    body = uniform_file(blobs, bare, blobs.uri("shard"), Uniform(T0, diff))
    return NewPart(body, len(rows), T0, T0, diff < 0)


rows = st.lists(
    st.tuples(
        st.sampled_from([None, 1, 2, 3]),
        st.sampled_from([None, "", "x"]),
        st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")]),
    ),
    min_size=1,
    max_size=8,
)
forms = st.sampled_from(["inline", "file", "uniform"])
pieces = st.lists(st.tuples(rows, st.sampled_from([1, -1]), forms), max_size=4)


def same(row):
    """Equal rows as one value of Python."""
    a, b, c = row
    return a, b, "nan" if c is not None and c != c else c


@given(st.lists(st.tuples(rows, forms), max_size=3), pieces, st.integers(1, 20))
def test_what_is_missing_is_what_the_sums_say(blobs, stored, changed, rows_at_once):
    there, sums = Counter(), Counter()
    for found, _ in stored:
        there.update(same(row) for row in found)
    for found, diff, _ in changed:
        for row in found:
            sums[same(row)] += diff
    expected = sum(max(0, -(there[row] + diff)) for row, diff in sums.items() if diff < 0)
    count = unmatched_retractions(
        [part(blobs, found, 1, form) for found, form in stored],
        [part(blobs, found, diff, form) for found, diff, form in changed],
        DESC,
        blobs,
        rows_at_once=rows_at_once,
    )
    assert count == expected


@pytest.mark.parametrize("kinds", [{"c": "double"}, {}])
def test_without_a_column_to_look_in_all_is_read(blobs, kinds):
    desc = RelationDesc.of(**kinds)
    row = (1.0,) * len(kinds)
    stored = [inline_part(table([row], [1], desc))]
    for often, missing in ((1, 0), (3, 2)):
        gone = [inline_part(table([row] * often, [-1] * often, desc))]
        assert unmatched_retractions(stored, gone, desc, blobs) == missing


def test_what_only_adds_is_not_read():
    class Unreadable:
        def __getattr__(self, name):
            raise AssertionError("no file is needed")

    added = NewPart(object(), 3, T0, T0, has_retractions=False)
    assert unmatched_retractions([added], [added], DESC, Unreadable()) == 0


def test_a_column_that_a_part_lacks_is_null(blobs):
    older = RelationDesc(DESC.columns[:1])
    for made in (inline_part, lambda updates: file_part(blobs, updates, blobs.uri("shard"))):
        stored = [made(table([(1,), (2,)], [1, 1], older))]
        assert (
            unmatched_retractions(stored, [part(blobs, [(1, None, None)], -1, "file")], DESC, blobs)
            == 0
        )
        gone = [part(blobs, [(1, "x", None), (2, None, 0.0)], -1, "inline")]
        assert unmatched_retractions(stored, gone, DESC, blobs) == 2
