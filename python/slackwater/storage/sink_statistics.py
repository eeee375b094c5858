"""Counts of a sink's messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """Messages and their bytes: handed over, and committed."""

    messages_staged: int = 0
    messages_committed: int = 0
    bytes_staged: int = 0
    bytes_committed: int = 0

    def and_staged(self, messages: int, size_bytes: int) -> SinkStatistics:
        """These, and so many that were handed over."""
        return SinkStatistics(
            self.messages_staged + messages,
            self.messages_committed,
            self.bytes_staged + size_bytes,
            self.bytes_committed,
        )

    def and_committed(self) -> SinkStatistics:
        """These, when all that was handed over is committed."""
        staged, size_bytes = self.messages_staged, self.bytes_staged
        return SinkStatistics(staged, staged, size_bytes, size_bytes)

    def and_more(self, other: SinkStatistics) -> SinkStatistics:
        """Both together."""
        return SinkStatistics(
            self.messages_staged + other.messages_staged,
            self.messages_committed + other.messages_committed,
            self.bytes_staged + other.bytes_staged,
            self.bytes_committed + other.bytes_committed,
        )
