"""The storage controller: which collections there are, who may read what, and what becomes of it.

`core.StorageController` is a value that takes commands and responses and gives back effects
(`effects`); `shell.Storage` runs it for the threads of a process. The core is put together from
smaller values: `capabilities` (who may read what), `creation` (what may be created), `exports`,
`appends`, `placement` (what runs on which instance and replica), `statuses`, `shards` (whose they
are, and finalization) and `sinces` (when durable sinces follow). Source: spec controllers 1, 2.
"""
