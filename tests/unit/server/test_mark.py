"""The mark of a leader, as another process finds it in the file."""

from __future__ import annotations

import struct
import subprocess
import sys
import time

from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.repr.frontier import Timestamp
from slackwater.server.mark import WORDS, FileMark


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
    assert words(mark.path)[1:3] >= (steady, wall)
    mark.counts_for(60_000)
    _, until_steady, until_wall, *_ = words(mark.path)
    assert until_steady >= steady + 60_000 * 1_000_000
    assert until_wall >= wall + 60_000
    mark.counts_for(-5)
    assert words(mark.path)[1] < time.monotonic_ns()


def test_who_has_removed_it_leads_no_more_for_anybody_else(tmp_path):
    mark = FileMark(tmp_path / "mark")
    mark.counts_for(60_000)
    with mark.path.open("rb") as held:
        mark.remove()
        mark.counts_for(60_000)
        _, until_steady, until_wall, *_ = struct.unpack(f"={WORDS}q", held.read())
    assert until_steady <= time.monotonic_ns()
    assert until_wall <= time.time_ns() // 1_000_000


def test_the_oracle_tells_it_each_time_before_anybody_reads_at_it(tmp_path):
    mark = FileMark(tmp_path / "mark")
    assert words(mark.path)[3] == -1
    oracle = TimestampOracle(Timestamp(5), on_read=mark.reads_at)
    assert words(mark.path)[3] == 5
    for applied, readable in ((7, 7), (6, 7), (9, 9)):
        oracle.apply_write(Timestamp(applied))
        assert words(mark.path)[3] == oracle.read_ts() == readable


def test_commits_of_errors_are_counted_as_they_begin_and_end(tmp_path):
    mark = FileMark(tmp_path / "mark")
    with mark.adding_errors():
        with mark.adding_errors():
            assert words(mark.path)[4:] == (2, 0)
        assert words(mark.path)[4:] == (2, 1)
    assert words(mark.path)[4:] == (2, 2)


def test_another_process_cannot_lock_it_before_this_one_ends(tmp_path):
    mark = FileMark(tmp_path / "mark")
    attempt = (
        "import fcntl, sys\n"
        "with open(sys.argv[1]) as file:\n"
        "    fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n"
    )
    found = subprocess.run([sys.executable, "-c", attempt, mark.path], stderr=subprocess.PIPE)
    assert b"BlockingIOError" in found.stderr


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
