"""The mark of the catalog, as another process finds it in the file."""

from __future__ import annotations

import struct
import time

from slackwater.server.catalog_mark import WORDS, FileMark


def words(path):
    return struct.unpack(f"={WORDS}q", path.read_bytes())


def test_the_number_is_odd_within_a_change_and_another_even_one_after_it(tmp_path):
    mark = FileMark(tmp_path / "mark")
    seen = [words(mark.path)[0]]
    for _ in range(2):
        with mark.changing():
            seen.append(words(mark.path)[0])
        seen.append(words(mark.path)[0])
    assert seen == [0, 1, 2, 3, 4]


def test_a_change_that_fails_is_over_as_well(tmp_path):
    mark = FileMark(tmp_path / "mark")
    try:
        with mark.changing():
            raise KeyError
    except KeyError:
        pass
    assert words(mark.path)[0] == 2


def test_the_ends_of_the_lease_are_by_both_clocks(tmp_path):
    steady, wall = time.monotonic_ns(), time.time_ns() // 1_000_000
    mark = FileMark(tmp_path / "mark")
    assert words(mark.path)[1:] >= (steady, wall)
    mark.counts_for(60_000)
    _, until_steady, until_wall = words(mark.path)
    assert until_steady >= steady + 60_000 * 1_000_000
    assert until_wall >= wall + 60_000
    mark.counts_for(-5)
    assert words(mark.path)[1] < time.monotonic_ns()


def test_only_this_user_reads_it_and_an_older_file_stays_as_it_was(tmp_path):
    path = tmp_path / "mark"
    older = FileMark(path)
    with path.open("rb") as held:
        newer = FileMark(path)
        with newer.changing():
            assert struct.unpack("=q", held.read(8)) == (0,)
    assert path.stat().st_mode & 0o777 == 0o600
    newer.remove()
    older.remove()
    assert not path.exists()
