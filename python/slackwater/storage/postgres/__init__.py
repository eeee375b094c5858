"""Tables of PostgreSQL as a source: a snapshot, then what logical replication brings."""
