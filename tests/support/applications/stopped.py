"""Processes that hang for a while."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.support.applications.application import stat
from tests.support.waiting import wait_until


@contextlib.contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """They neither answer nor end while the block runs, and go on after it if they are alive."""
    assert processes
    try:
        _signal(processes, signal.SIGSTOP)
        yield
    finally:
        _signal(processes, signal.SIGCONT)


def stop_between_transactions(process: int) -> None:
    """Stops one that writes to a file of SQLite while it keeps nobody else out of it."""
    _stop_where(process, lambda: not _own_locks(process))


def stop_within_a_transaction(process: int) -> None:
    """Stops one that writes to a file of SQLite while nobody else can write to it."""
    _stop_where(process, lambda: _WRITING in _own_locks(process))


def _stop_where(process: int, condition: Callable[[], bool]) -> None:
    what = "a stop at the right place"
    wait_until(lambda: _stops_where(process, condition), every_s=0.001, what=what)


def _stops_where(process: int, condition: Callable[[], bool]) -> bool:
    os.kill(process, signal.SIGSTOP)
    # The signal returns before its threads stand, and one that runs yet may take a lock.
    wait_until(lambda: _stands(process), every_s=0.001, what="all threads stand")
    found = condition()
    if not found:
        os.kill(process, signal.SIGCONT)
    return found


def _stands(process: int) -> bool:
    """Whether none of its threads runs any more."""
    try:
        states = {stat(task)[0] for task in Path(f"/proc/{process}/task").iterdir()}
    except FileNotFoundError:  # a thread that ended meanwhile
        return False
    return states == {"T"}


_WRITING = ("120", "120")
"""The bytes of the index of SQLite's log that who writes has locked."""


def _own_locks(process: int) -> list[tuple[str, str]]:
    """What it has locked for itself alone of files of SQLite: the first and the last byte.

    Its own mark it has locked to the end, which SQLite does with no file.
    """
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return [
        (lock[6], lock[7])
        for lock in locks
        if lock[1:5] == ["POSIX", "ADVISORY", "WRITE", str(process)] and lock[7] != "EOF"
    ]


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
