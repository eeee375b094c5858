"""The size of what a copy for a table that came later reads at once, beside steps of its source.

Source: docs/decisions 0073.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """About how much one read of a copy takes at most: siblings wait meanwhile."""

    messages: int = 40_000
    size_bytes: int = 8 * 1024 * 1024

    def beside(self, messages: int, size_bytes: int) -> Room:
        """The room beside a source whose steps take so much: more, so that copies get there."""
        return Room(max(self.messages, 2 * messages), max(self.size_bytes, 2 * size_bytes))
