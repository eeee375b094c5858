"""The coordinator: sessions, catalog, time, sequencing."""
