"""Functions that a maintained view cannot use, and what to use instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_CLOCK = "Store the time in a column when the row is written, or compute it when the view is read."
_DATE = "A time without a date is one of the day on which it is computed. Write the date with it."
_TIME_ALONE = re.compile(r"""['"]\s*(T\d|\d+:)""")
_RANDOM = "Store the value in a column when the row is written, or derive it with hash()."
_SESSION = "Its value belongs to a session. Store it in a column when the row is written."
_ORDER = "Its result depends on the order of rows. Use {alternative}."
_TASK = "It depends on how Spark distributes rows. Number the rows when they are written."
_OTHER = "Compute it when reading the view."

_ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("current_timestamp", "current_date", "now", "localtimestamp"), _CLOCK),
    **dict.fromkeys(
        ("rand", "randn", "uuid", "shuffle", "uniform", "randstr", "TABLESAMPLE"), _RANDOM
    ),
    **dict.fromkeys(
        (
            "current_user", "current_catalog", "current_database", "current_schema",
            "current_timezone", "version",
        ),
        _SESSION,
    ),
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id", "input_file_name",
         "input_file_block_start", "input_file_block_length"),
        _TASK,
    ),
    "collect_list": _ORDER.format(alternative="array_sort(collect_list(...))"),
    "collect_set": _ORDER.format(alternative="array_sort(collect_set(...))"),
    **dict.fromkeys(
        ("first", "first_value", "any_value", "last", "last_value"),
        _ORDER.format(alternative="min, max, min_by or max_by"),
    ),
    "TRANSFORM": "A script may say anything. Register a deterministic function of Python.",
    "aes_encrypt": "Give it a vector to begin with, or encrypt when the row is written.",
    "mode": _ORDER.format(alternative="mode(array_sort(map_entries(...)))"),
    **dict.fromkeys(
        ("listagg", "string_agg"),
        _ORDER.format(alternative="array_join(array_sort(collect_list(...)), ',')"),
    ),
    "the cast of texts inside of others to TIMESTAMP": (
        "A time without a date would be one of today. Cast each: transform(texts, t -> CAST(t AS"
        " TIMESTAMP))."
    ),
}  # fmt: skip


def advice_for(function: str) -> str:
    """The advice for a query that calls a function whose result is not the same each time.

    `function` is the name of Spark's expression, or a literal such as ``DATE 'today'`` or
    ``TIMESTAMP '10:00'``. `Analysis.nondeterministic` names the functions that a query calls.
    """
    if function.endswith(("'", '"')):
        return _DATE if _TIME_ALONE.search(function) else _CLOCK
    return _ADVICE.get(function, _ADVICE.get(function.lower(), _OTHER))
