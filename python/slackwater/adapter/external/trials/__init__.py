"""Trials of connections, step by step, before they are made."""
