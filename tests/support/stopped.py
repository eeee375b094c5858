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
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
