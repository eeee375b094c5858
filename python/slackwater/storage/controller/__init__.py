"""The storage controller: which collections there are, who may read what, and what becomes of it.

`core.StorageController` is a value that takes commands and responses and gives back effects
(`effects`); `shell.Storage` runs it for the threads of a process. Source: spec controllers 1, 2.
"""
