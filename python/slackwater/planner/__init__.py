"""Statements, relational plans, delta rules; no I/O."""
