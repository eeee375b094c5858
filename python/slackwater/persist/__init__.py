"""Durable shards: updates ``(row, time, diff)`` in immutable parts, and a transactional metastore.

A leader uses the parts of `client.PersistClient`: `transactions` (the cache, and the fenced way to
change it), `shard_reads`, `commits` (compare-and-append), `definitions` (making, changing and
dropping shards), `shard_maintenance` (sinces, replaced parts, finalization) and `shard_files`.

Knows `repr` only.
"""
