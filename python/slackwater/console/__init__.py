"""The console: pages that show an environment in a browser, by a program without Spark.

It asks the leader as an application that joins does, changes nothing, and stays through a takeover.
`watch` decides what is asked when, `snapshot` is what is known, `pages` are functions of that; all
three are cores without I/O. `looking` and `leader` are the shell around the first, `app` and
`serve` that around the last.
"""
