"""Processes that hang for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
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


def stop_between_transactions(process: int, location: Path) -> None:
    """Stops one that writes to the environment's metastore, a file, while it holds no lock of it:
    as long as it did, nobody could write."""
    while True:
        os.kill(process, signal.SIGSTOP)
        metastore = sqlite3.connect(location / "metastore.sqlite", timeout=1)
        try:
            metastore.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            os.kill(process, signal.SIGCONT)
        finally:
            metastore.close()


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
