"""How long tests wait for what must come, and how they do it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 60.0 * (6 if os.environ.get("CI") else 1)
"""Seconds after which what a test waits for counts as never coming.

A test that passes never waits so long, so this is far above what a busy machine needs. It says
nothing of how quick the product is: `make bench` does.
"""

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], *, every_s: float = 0.05, what: str = "the condition"
) -> T:
    """Returns the first true value of `condition()`; fails the test after `PATIENCE`."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {PATIENCE:g} s")
        pause.wait(every_s)
    return value
