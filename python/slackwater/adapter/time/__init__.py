"""Times of reads and writes: the oracle, timestamp selection, waiting for frontiers."""
