"""Durable shards: updates ``(row, time, diff)`` in immutable parts, and a transactional metastore.

`client.PersistClient` is what a leader uses. It is put together from `transactions` (the cache, and
the fenced way to change it), `shard_reads`, `commits` (compare-and-append), `definitions` (making,
changing and dropping shards) and `shard_maintenance` (sinces, replaced parts, finalization).

Knows `repr` only.
"""
