"""Changefeeds of CockroachDB as collections. No I/O but for `files`.

`messages` reads what a feed sends, `landing` keeps it until it is bound, `binding` decides what is
bound at one time and what that makes of the tables, `tables` makes rows of payloads, `admission`
says which partitions count and how far they are, `ingestion` puts these together.

Source: spec checkpoint 5, docs/decisions 0027.
"""
