"""`slackwater check`: verifies an environment, without Spark, and changes nothing in it.

`objects`, `shards`, `files` and `contents` are cores: they take what is stored as values and tell
what is wrong with it. `histories` and `stored` read it, `verification` says in which order, and
`run` prints.
"""
