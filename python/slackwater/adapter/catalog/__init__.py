"""The catalog: what objects exist, and how they depend on each other."""
