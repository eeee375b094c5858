"""The statements that are kept: by chance, and as many as a rate of bytes lets through."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

BURST_S = 10
"""After a pause, so many seconds of the rate are kept at once."""
_WHOLE = 2**64


def is_sampled(name: str, rate: float) -> bool:
    """Whether the thing of this name is in a sample of the rate, a number from 0 to 1.

    The name alone decides. Names that are made at random make a random sample.
    """
    digest = blake2b(name.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < rate * _WHOLE


@dataclass(slots=True)
class Throttle:
    """Lets through `rate` bytes a second on average, and `BURST_S` seconds of them at once.

    `refused` counts what was not let through since the last that was.
    """

    rate: int
    credit: float = 0.0
    refilled_ms: int | None = None
    refused: int = 0

    def take(self, size_bytes: int, now_ms: int) -> int | None:
        """Lets so many bytes through, and says how many were refused before; None: refused."""
        most = float(self.rate * BURST_S)
        if self.refilled_ms is None:
            self.credit = most
        else:
            passed_ms = max(0, now_ms - self.refilled_ms)
            self.credit = min(most, self.credit + self.rate * passed_ms / 1000)
        self.refilled_ms = now_ms
        # What is larger than all credit together passes when the credit is whole.
        cost = min(float(size_bytes), most)
        if cost > self.credit:
            self.refused += 1
            return None
        self.credit -= cost
        before, self.refused = self.refused, 0
        return before
