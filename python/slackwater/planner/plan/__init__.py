"""The relational plan of a view's query."""
