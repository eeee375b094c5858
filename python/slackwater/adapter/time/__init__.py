"""Which time a statement reads and writes at: the oracle, the choice, the waiting for frontiers."""
