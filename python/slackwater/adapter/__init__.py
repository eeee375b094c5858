"""The coordinator: its catalog, sessions and timeline, and what reads, writes and defines."""
