"""CREATE, ALTER, DROP and COMMENT: changes of the catalog, and their consequences."""
