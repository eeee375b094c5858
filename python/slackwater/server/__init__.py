"""The HTTP face of the adapter."""
