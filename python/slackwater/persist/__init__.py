"""Durable shards: updates ``(row, time, diff)`` in immutable parts, and a transactional metastore.

Knows `repr` only.
"""
