"""How long tests wait for what must come, and how they do it."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

PATIENCE = 60.0 * (6 if os.environ.get("CI") else 1)
"""Seconds after which what a test waits for counts as never coming.

A test that passes never waits so long, so this is far above what a busy machine needs. It says
nothing of how quick the product is: `make bench` does.
"""

T = TypeVar("T")


def growing_pauses() -> Iterator[float]:
    """Seconds between two looks: a twentieth of one, then more, up to half of one."""
    pause_s = 0.05
    while True:
        yield pause_s
        pause_s = min(0.5, 1.3 * pause_s)


def wait_until(
    condition: Callable[[], T], *, every_s: float | None = None, what: str = "the condition"
) -> T:
    """Returns the first true value of `condition()`; fails the test after `PATIENCE`.

    `every_s`: for what passes quickly; None: less and less often, as looking takes time from what
    is waited for.
    """
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    pauses = growing_pauses() if every_s is None else itertools.repeat(every_s)
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {PATIENCE:g} s")
        pause.wait(next(pauses))
    return value
