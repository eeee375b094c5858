"""SHOW and the system relations, which describe the environment itself."""
