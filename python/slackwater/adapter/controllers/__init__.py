"""The catalog's side of the storage controller: collections, shards, the table log."""
