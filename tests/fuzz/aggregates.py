"""Aggregates of groups, in the words of both engines.

Of what Spark leaves open DuckDB's words say what a view settles: the greatest value at the greatest
for `max_by`, the least at the least for `min_by`, the least of those that are there most often for
`mode`; lists are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from tests.fuzz.kinds import KINDS, is_map
from tests.fuzz.query import both

Typed = tuple[str, str]
"""An expression and its kind."""

DIGITS = 11
"""So far both engines have one value of a quotient of sums over few small numbers."""


def calls(
    random: Random, column: str, kind: str, scope: Sequence[Typed], is_ansi: bool
) -> list[Typed]:
    """What may be asked of a column; some of it together with another one of `scope`."""
    found = [("count(*)", "long"), (f"count({column})", "long")]
    if not is_map(kind):
        found.append((f"count(DISTINCT {column})", "long"))
    if KINDS[kind].ordered:
        found += [(f"min({column})", kind), (f"max({column})", kind)] * 2
        found += [(_mode(column), kind), *_by(random, column, kind, scope)]
    match kind:
        case "integer" | "long":
            found += _of_whole_numbers(random, column, kind)
        case "decimal" | "double":
            found += [(f"sum({column})", kind)] * 3
        case "boolean":
            found += [(f"bool_and({column})", kind), (f"bool_or({column})", kind)]
            counted = both(
                f"count_if({column})", f"CAST(coalesce(count_if({column}), 0) AS BIGINT)"
            )
            found.append((counted, "long"))
        case "string":
            found += [(_joined(random, column), kind)] * 4
    if kind == "integer":
        others = [each for each, other in scope if other == kind]
        found += [
            (_sorted(f"collect_list({column})", column, ""), "array"),
            (_sorted(f"collect_set({column})", column, "DISTINCT "), "array"),
            *_statistics(random, column, random.choice(others), is_ansi),
        ]
    return found


def _of_whole_numbers(random: Random, column: str, kind: str) -> list[Typed]:
    at = random.choice(["0.25", "0.5", "0.75"])
    order = f"WITHIN GROUP (ORDER BY {column}{random.choice(['', ' DESC'])})"
    disc = f"percentile_disc({at}) {order}"
    bits = random.choice(["bit_and", "bit_or", "bit_xor"])
    return [
        (both(f"sum({column})", f"CAST(sum({column}) AS BIGINT)"), "long"),
        (both(f"sum(DISTINCT {column})", f"CAST(sum(DISTINCT {column}) AS BIGINT)"), "long"),
        (f"avg({column})", "double"),
        (f"median({column})", "double"),
        (both(f"percentile({column}, {at})", f"quantile_cont({column}, {at})"), "double"),
        (f"percentile_cont({at}) {order}", "double"),
        (both(disc, f"CAST({disc} AS DOUBLE)"), "double"),
        (f"{bits}({column})", kind),
    ]


def _statistics(random: Random, one: str, other: str, is_ansi: bool) -> list[Typed]:
    of_one = random.choice(["stddev_pop", "stddev_samp", "var_pop", "var_samp"])
    of_two = random.choice(["covar_pop", "covar_samp"])
    return [
        (f"round({of_one}({one}), {DIGITS})", "double"),
        (f"round({of_two}({one}, {other}), {DIGITS})", "double"),
        # In ANSI mode there is no correlation with a constant, but an error.
        (_sloped("regr_slope" if is_ansi else "corr", one, other), "double"),
        (f"regr_count({one}, {other})", "long"),
    ]


def _sloped(function: str, one: str, other: str) -> str:
    """Where all of one side is equal there is none, which the engines say in different ways."""
    call = f"round({function}({one}, {other}), {DIGITS})"
    return f"nullif({call}, CAST('NaN' AS DOUBLE))"


def _by(random: Random, column: str, kind: str, scope: Sequence[Typed]) -> list[Typed]:
    by = random.choice([each for each, other in scope if KINDS[other].ordered])
    present = f"FILTER (WHERE {by} IS NOT NULL)"
    greatest = f"{by} DESC, {column} DESC NULLS LAST"
    least = f"{by}, {column} NULLS FIRST"
    return [
        (
            both(f"max_by({column}, {by})", f"(list({column} ORDER BY {greatest}) {present})[1]"),
            kind,
        ),
        (both(f"min_by({column}, {by})", f"(list({column} ORDER BY {least}) {present})[1]"), kind),
    ]


def _mode(column: str) -> str:
    counts = f"histogram({column})"
    most = f"lambda e: e.value = list_max(map_values({counts}))"
    values = f"list_transform(list_filter(map_entries({counts}), {most}), lambda e: e.key)"
    return both(f"mode({column})", f"list_min({values})")


def _sorted(call: str, column: str, distinct: str) -> str:
    present = f"list({distinct}{column}) FILTER (WHERE {column} IS NOT NULL)"
    return both(f"array_sort({call})", f"coalesce(list_sort({present}), [])")


def _joined(random: Random, column: str) -> str:
    distinct = random.choice(["", "DISTINCT "])
    order = random.choice(["", " DESC"])
    return both(
        f"listagg({distinct}{column}, ',') WITHIN GROUP (ORDER BY {column}{order})",
        f"string_agg({distinct}{column}, ',' ORDER BY {column}{order})",
    )
