"""Two tables with the same contents, one with an index, and what a plan says of it."""

from __future__ import annotations

from contextlib import contextmanager

from tests.support.applications.application import Application
from tests.support.applications.fixtures import Workplace
from tests.support.waiting import wait_until

RETAINED = "WITH (RETAIN HISTORY FOR '1 day')"

KINDS = {
    "int": ("INT", ["1", "2", "-3", "NULL"]),
    "long": ("BIGINT", ["1", "9223372036854775807", "NULL"]),
    "text": ("STRING", ["''", "'a'", "'A'", "'a '", "'twenty-four characters ..'", "NULL"]),
    "collated": ("STRING COLLATE UTF8_LCASE", ["'a'", "'A'", "'b'", "NULL"]),
    "trimmed": ("STRING COLLATE UTF8_BINARY_RTRIM", ["'a'", "'a  '", "'b'", "NULL"]),
    "char": ("CHAR(5)", ["'a'", "'a  '", "'abcde'", "NULL"]),
    "varchar": ("VARCHAR(5)", ["'a'", "'a  '", "NULL"]),
    "double": ("DOUBLE", ["0.0D", "-0.0D", "double('NaN')", "1.5D", "NULL"]),
    "float": ("FLOAT", ["float('0')", "float('-0')", "float('NaN')", "NULL"]),
    "decimal": ("DECIMAL(10, 2)", ["1.00", "1.10", "-0.00", "NULL"]),
    "date": ("DATE", ["DATE '2026-01-01'", "DATE '0001-01-01'", "NULL"]),
    "timestamp": ("TIMESTAMP", ["TIMESTAMP '2026-01-01 00:00:00'", "NULL"]),
    "ntz": ("TIMESTAMP_NTZ", ["TIMESTAMP_NTZ '2026-01-01 00:00:00'", "NULL"]),
    "boolean": ("BOOLEAN", ["true", "false", "NULL"]),
    "binary": ("BINARY", ["X'00'", "X''", "NULL"]),
    "struct": (
        "STRUCT<x: INT, y: DOUBLE>",
        [
            "named_struct('x', 1, 'y', 0.0D)",
            "named_struct('x', 1, 'y', -0.0D)",
            "named_struct('x', CAST(NULL AS INT), 'y', 1D)",
            "NULL",
        ],
    ),
    "array": ("ARRAY<INT>", ["array(1, 2)", "array(1, NULL)", "array()", "NULL"]),
}

LONGEST = max(len(values) for _, values in KINDS.values())
COLUMNS_OF_KINDS = ", ".join(f"k_{kind} {declared}" for kind, (declared, _) in KINDS.items())
ROWS_OF_KINDS = ", ".join(
    f"({', '.join(values[n % len(values)] for _, values in KINDS.values())}, {n})"
    for n in range(LONGEST)
)
"""Values of all kinds, and the number of the row."""


@contextmanager
def leading_and_joined(folder):
    """A place in an application that leads, and an application that has joined it."""
    location = folder / "environment"
    with Application(location) as first, Application(location) as second:
        place = Workplace(first, "place", folder)
        second.sql("USE slackwater.place")
        yield place, second


def hydrated(place, *names):
    """Waits until the indexes of the place with these names can be read."""
    text = (
        "SELECT i.name, hydrated FROM slackwater.mz_internal.mz_hydration_statuses h "
        "JOIN slackwater.mz_catalog.mz_indexes i ON i.id = h.object_id "
        f"JOIN slackwater.mz_internal.mz_object_fully_qualified_names n ON n.id = i.id "
        f"WHERE n.schema_name = '{place.schema}'"
    )
    wanted = {(name, True) for name in names}

    def are_there():
        found = {(name, is_so) for name, is_so in place.rows(text) if name in names}
        return found == wanted

    wait_until(are_there, what=f"the indexes {', '.join(names)}")


def plan_of(place, text, session="main"):
    return "\n".join(str(row[0]) for row in place.rows(f"EXPLAIN EXTENDED {text}", session=session))


def uses(place, text, index, session="main"):
    return f"by index slackwater.{place.schema}.{index}" in plan_of(place, text, session)


def pair(place, columns):
    """Two tables with the same columns; the first has an index on `k`."""
    for name in ("a", "b"):
        place.sql(f"CREATE TABLE {name} ({columns}) {RETAINED}")
    place.sql(f"CREATE INDEX by_k ON a (k) {RETAINED}")


def both(place, text):
    """Runs a change on both tables."""
    for name in ("a", "b"):
        place.sql(text.format(name))
