"""Statements, names, the relational plan and its delta rules. Knows repr; does no I/O."""
