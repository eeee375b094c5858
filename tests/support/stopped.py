"""Processes that hang for a while."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def stopped(processes: Sequence[int]) -> Iterator[None]:
    """They neither answer nor end while the block runs, and go on after it if they are alive."""
    assert processes
    try:
        _signal(processes, signal.SIGSTOP)
        yield
    finally:
        _signal(processes, signal.SIGCONT)


def _signal(processes: Sequence[int], number: signal.Signals) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
