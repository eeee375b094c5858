"""The catalog: the objects of an environment, and their dependencies."""
