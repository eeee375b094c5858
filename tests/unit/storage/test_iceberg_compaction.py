"""The files that a compaction takes, and the deletes that are the same as one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.storage.iceberg.compaction import CompactionBounds, chosen, mergeable
from slackwater.storage.iceberg.live_files import EVERYWHERE, DataFile, DeleteFile, LiveFiles

WHOLE = (0, ())
BOUNDS = CompactionBounds(small_bytes=1000, most_bytes=4000, share=4)


def data(path, size, sequence=1, scope=WHOLE):
    return DataFile(path, sequence, scope, size)


def delete(path, sequence, size=1, within=EVERYWHERE, ids=(1,)):
    return DeleteFile(path, sequence, within, size, ids)


def groups(*files, bounds=BOUNDS):
    found = chosen(LiveFiles.of(files), bounds)
    return [[each.path for each in group] for group in found]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], []),
        ([data("a", 10)], []),
        ([data("a", 10), data("b", 10)], [["a", "b"]]),
        # A file joins others when these are not much smaller, and else waits for more of its kind.
        ([data("a", 10), data("b", 40), data("c", 201)], [["a", "b"]]),
        ([data("a", 10), data("b", 50), data("c", 60)], [["b", "c"]]),
        ([data("a", 10), data("b", 20), data("c", 500), data("d", 500)], [["a", "b"], ["c", "d"]]),
        ([data("a", 1000), data("b", 1000)], []),
        ([data("a", 10), data("b", 10, scope=(0, (1,)))], []),
        ([data("a", 10, scope=(0, (None,))), data("b", 10, scope=(0, (None,)))], [["a", "b"]]),
        # Deletes count as much as the file that they apply to.
        ([data("a", 2000), delete("x", 2, 499)], []),
        ([data("a", 2000), delete("x", 2, 500)], [["a"]]),
        ([data("a", 2000), delete("x", 1, 500)], []),
        ([data("a", 4001), delete("x", 2, 5000)], []),
    ],
)
def test_files_that_are_taken(files, expected):
    assert groups(*files) == expected


@given(st.lists(st.integers(1, 2000), max_size=30), st.integers(1, 5000))
def test_a_turn_is_bounded(sizes, most):
    files = [data(str(place), size) for place, size in enumerate(sizes)]
    bounds = CompactionBounds(1000, most, 4)
    found = [each for group in chosen(LiveFiles.of(files), bounds) for each in group]
    assert sum(each.size_bytes for each in found) <= most
    assert len(set(found)) == len(found)


@given(st.integers(2, 40), st.lists(st.integers(1, 3), min_size=1, max_size=300))
def test_rows_are_written_a_few_times(every, sizes):
    """Files that come one by one are compacted each so many: how often a byte is written."""
    files, written = [], 0
    bounds = CompactionBounds(10**9, 10**9, 4)
    for place, size in enumerate(sizes):
        files.append(data(f"{place}", size))
        if place % every:
            continue
        for group in chosen(LiveFiles.of(files), bounds):
            total = sum(each.size_bytes for each in group)
            written += total
            files = [each for each in files if each not in group]
            files.append(data(f"{place}-{group[0].path}", total))
    assert sum(each.size_bytes for each in files) == sum(sizes)
    # Each size of files is passed in at most four steps of at least a quarter.
    levels = max(1, sum(sizes).bit_length())
    assert written <= 6 * levels * sum(sizes)
    assert len(files) <= every + 2 * levels


DATA = st.lists(st.integers(0, 12), max_size=5)


@given(DATA, st.lists(st.integers(0, 12), max_size=10))
def test_merged_deletes_delete_the_same(sequences, deletes):
    """Of every data file that is left, the same keys go as before."""
    left = [data(f"d{place}", 1, each) for place, each in enumerate(sequences)]
    files = [delete(f"x{place}", each) for place, each in enumerate(deletes)]
    key = {each: each.path for each in files}
    found = mergeable(left, files, BOUNDS)
    taken = Counter(each for run in found for each in run)
    assert all(count == 1 for count in taken.values())
    assert all(len(run) > 1 for run in found)
    for file in left:
        before = {key[each] for each in files if each.applies_to(file)}
        merged = {
            key[each]
            for run in found
            for each in run
            if delete("m", run[-1].sequence).applies_to(file)
        }
        alone = {key[each] for each in files if each not in taken and each.applies_to(file)}
        assert merged | alone == before


def test_deletes_that_are_merged():
    left = [data("a", 1, 5)]
    files = [
        delete("w", 3),
        delete("x", 6),
        delete("y", 8),
        delete("z", 9, ids=(2,)),
        delete("p", 9, within=WHOLE),
        delete("q", 9, ids=()),
    ]
    (run,) = mergeable(left, files, BOUNDS)
    assert [each.path for each in run] == ["x", "y"]
    large = [delete("x", 6, 3000), delete("y", 7, 1000), delete("z", 8, 1000)]
    ((first, second),) = mergeable(left, large, BOUNDS)
    assert (first.path, second.path) == ("x", "y")
