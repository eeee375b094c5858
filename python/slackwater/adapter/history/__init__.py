"""The history of statements and sessions: what was run, by whom, when, and how it ended."""
