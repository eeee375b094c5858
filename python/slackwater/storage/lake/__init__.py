"""Sinks that commit ranges of time to tables of a lake: Delta and Iceberg."""
