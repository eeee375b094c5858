"""Reads many small relations by one statement, and quickly."""

from __future__ import annotations

from collections import Counter

from tests.support.waiting import PATIENCE

INTERPRETED = (
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.sql.adaptive.enabled=false",
    "spark.sql.shuffle.partitions=1",
)
"""Compiling queries over few rows would take longer than running them."""


def interpret(application, *sessions):
    """Lets the sessions run queries without compiling them."""
    for session in sessions:
        for setting in INTERPRETED:
            application.sql(f"SET {setting}", session=session)


def interpreted(place):
    """The name of a session that does not compile queries, and where the schema is current."""
    interpret(place.application, "interpreted")
    place.use("interpreted")
    return "interpreted"


def read_at_once(application, sources, *, session="main", at=None, timeout_s=PATIENCE):
    """The rows of each of `sources` (name to query) as JSON, all of one time: `at`, or the newest.

    What JSON does not tell apart is not told apart: -0.0 and 0.0 are, NULL and no field are.
    """
    parts = [
        f"SELECT '{name}' AS relation,"
        f" to_json(`struct`(*), `map`('ignoreNullFields', 'false')) AS r"
        f" FROM ({query})"
        for name, query in sources.items()
    ]
    # One task: each task gets the whole plan, and there would be one for each relation at least.
    text = f"SELECT /*+ COALESCE(1) */ * FROM ({' UNION ALL '.join(parts)})"
    if at is not None:
        text = f"SELECT * FROM ({text}) AS OF {at}"
    found = {name: Counter() for name in sources}
    for name, row in application.rows(text, session=session, timeout_s=timeout_s):
        found[name][row] += 1
    return found
