"""Tables of Apache Iceberg as values: schemas, snapshots, the bounds of files. No I/O."""
