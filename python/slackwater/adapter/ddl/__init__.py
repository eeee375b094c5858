"""CREATE, ALTER, DROP and COMMENT: what a statement changes in the catalog, and what follows."""
