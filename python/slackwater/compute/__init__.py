"""Dataflows: the worker that keeps views up to date. Knows repr, persist and sql."""
