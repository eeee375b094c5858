"""The storage controller from the side of the catalog: collections, shards, the table log."""
