"""Pure values that every other package speaks: identifiers, frontiers, schemas, errors.

Imports nothing of ours, does no I/O, reads no clock.
"""
