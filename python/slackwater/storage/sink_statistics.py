"""Counts of a sink's messages and transactions."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SinkStatistics:
    """Messages and their bytes, handed over and committed; and the transactions of Kafka.

    `transactions_aborted` counts those that were begun and not committed, whatever became of them.
    `snapshot_records_staged` of `snapshot_records_known` messages of the first range were handed
    over, which has what the relation held when the sink began; None: no writer here has written
    such a range.
    """

    messages_staged: int = 0
    messages_committed: int = 0
    bytes_staged: int = 0
    bytes_committed: int = 0
    transactions_committed: int = 0
    transactions_aborted: int = 0
    snapshot_records_known: int | None = None
    snapshot_records_staged: int | None = None

    def and_staged(self, messages: int, size_bytes: int) -> SinkStatistics:
        """These, and so many that were handed over."""
        return replace(
            self,
            messages_staged=self.messages_staged + messages,
            bytes_staged=self.bytes_staged + size_bytes,
        )

    def and_of_snapshot(self, staged: int, known: int | None = None) -> SinkStatistics:
        """These, when so many messages of the first range are handed over, of so many in all; None:
        of as many as before."""
        return replace(
            self,
            snapshot_records_staged=staged,
            snapshot_records_known=self.snapshot_records_known if known is None else known,
        )

    def and_committed(self) -> SinkStatistics:
        """These, when all that was handed over is committed."""
        return replace(
            self, messages_committed=self.messages_staged, bytes_committed=self.bytes_staged
        )

    def and_transaction(self, *, committed: bool) -> SinkStatistics:
        """These, and one more transaction, which was committed or not."""
        return replace(
            self,
            transactions_committed=self.transactions_committed + committed,
            transactions_aborted=self.transactions_aborted + (not committed),
        )

    def and_more(self, other: SinkStatistics) -> SinkStatistics:
        """Both together; the first range is that of the `other`, if that has written some of it."""
        first = self if other.snapshot_records_known is None else other
        return SinkStatistics(
            self.messages_staged + other.messages_staged,
            self.messages_committed + other.messages_committed,
            self.bytes_staged + other.bytes_staged,
            self.bytes_committed + other.bytes_committed,
            self.transactions_committed + other.transactions_committed,
            self.transactions_aborted + other.transactions_aborted,
            first.snapshot_records_known,
            first.snapshot_records_staged,
        )
