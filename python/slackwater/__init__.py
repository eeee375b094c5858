"""Slackwater: consistent, incrementally maintained collections for Apache Spark."""
