"""Processes that hang for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path


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
    """Stops one that writes to a file of SQLite while it holds no lock of it that keeps others out:
    as long as it did, nobody could write."""
    while True:
        os.kill(process, signal.SIGSTOP)
        # The signal returns before its threads stand, and one that runs yet may take a lock.
        while not _stands(process):
            time.sleep(0.001)
        if not _keeps_others_out(process):
            return
        os.kill(process, signal.SIGCONT)
        time.sleep(0.001)


def _stands(process: int) -> bool:
    """Whether none of its threads runs any more."""
    try:
        states = {
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{process}/task").iterdir()
        }
    except FileNotFoundError:  # a thread that ended meanwhile
        return False
    return states == {"T"}


def _keeps_others_out(process: int) -> bool:
    """Whether it holds a lock for itself alone, of any file."""
    locks = (line.split()[1:5] for line in Path("/proc/locks").read_text().splitlines())
    return ["POSIX", "ADVISORY", "WRITE", str(process)] in locks


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
