"""The HTTP face of the adapter, and the coordinator's process."""
