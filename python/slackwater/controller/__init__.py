"""The floor of both controllers, of storage and of compute: read holds, words of the protocols."""
