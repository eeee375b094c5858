"""Statements, over sqlglot's tokens."""
