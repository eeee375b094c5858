"""Statements that change the catalog, by kind of object."""
