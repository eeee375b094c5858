"""Collections, ingestion, sources and sinks. Knows repr and persist."""
