"""The system's clock, which shells hand to what has to know the time."""

from __future__ import annotations

import time


def wall_clock_ms() -> int:
    """Milliseconds since the epoch. It may jump, also back."""
    return time.time_ns() // 1_000_000
