"""Binds, subscriptions, and the feeds of queries."""
