"""The compute controller: which dataflows run where, who may read them, and what comes of it.

`core.ComputeController` is a value that takes operations and responses and gives back effects
(`effects`); its module says in which order they are used. It is put together from smaller values:
`collections` (who may read what, and what is held of inputs), `placement` (instances, replicas,
dataflows on them), `dataflows` (what may be created), `instance` and `history` (what replicas must
be told) and `hydration` (a few at a time), `peeks`, `subscribes`, `outputs` (commits of views), and
`as_of` (where all begin at a start). A replica uses `protocol`, `encoding` and `reconciliation`.
Source: spec controllers 4.
"""
