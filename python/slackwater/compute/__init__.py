"""Dataflows: the replica that keeps views up to date, its ticks, and the seam to Spark."""
