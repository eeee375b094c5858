"""Binds, subscriptions, cursors, and the answers of statements."""
