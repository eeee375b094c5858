"""Functions that a maintained view cannot use, or that the delta rules do not cover.

Spark's analyzer knows which functions are nondeterministic; what it calls deterministic although
the result depends on the order of rows or the time of the call is listed here.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from slackwater.repr.errors import user_error

_CLOCK = "Store the time in a column when the row is written, or compute it when the view is read."
_RANDOM = "Store the value in a column when the row is written, or derive it with hash()."
_SESSION = "Its value belongs to a session. Store it in a column when the row is written."
_ORDER = "Its result depends on the order of rows. Use {alternative}."
_TASK = "It depends on how Spark distributes rows. Number the rows when they are written."

_ADVICE: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "current_timestamp", "current_date", "current_time", "now", "localtimestamp",
            "curdate", "unix_timestamp", "current_datetime", "getdate", "to_unix_timestamp",
        ),
        _CLOCK,
    ),
    **dict.fromkeys(
        ("rand", "random", "randn", "uuid", "shuffle", "uniform", "randstr"), _RANDOM
    ),
    **dict.fromkeys(
        (
            "current_user", "session_user", "user", "current_catalog", "current_database",
            "current_schema", "current_timezone", "version",
        ),
        _SESSION,
    ),
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id", "input_file_name",
         "input_file_block_start", "input_file_block_length"),
        _TASK,
    ),
    **dict.fromkeys(
        ("collect_list", "array_agg"),
        _ORDER.format(alternative="array_sort(collect_list(...))"),
    ),
    "collect_set": _ORDER.format(alternative="array_sort(collect_set(...))"),
    **dict.fromkeys(
        ("first", "first_value", "any_value", "last", "last_value"),
        _ORDER.format(alternative="min, max, min_by or max_by"),
    ),
    **dict.fromkeys(
        ("listagg", "string_agg"),
        _ORDER.format(alternative="array_join(array_sort(collect_list(...)), ',')"),
    ),
}  # fmt: skip
_CANONICAL_AROUND = {"array_sort", "sort_array"}
_NEEDS_ARGUMENT = {"unix_timestamp", "to_unix_timestamp"}
_ORDERED_BY_WINDOW = {"first", "first_value", "last", "last_value", "any_value"}

_AGGREGATES_WITHOUT_CLASS = frozenset(
    [
        "every", "some", "any", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor",
        "kurtosis", "skewness", "mode", "max_by", "min_by", "percentile", "percentile_cont",
        "percentile_disc", "percentile_approx", "approx_percentile", "regr_avgx", "regr_avgy",
        "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy",
        "regr_syy", "std", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop",
        "var_samp", "corr", "covar_pop", "covar_samp", "product", "count_min_sketch",
        "histogram_numeric", "hll_sketch_agg", "hll_union_agg", "approx_count_distinct",
        "approx_top_k", "bitmap_construct_agg", "bitmap_or_agg", "try_sum", "try_avg",
        "grouping", "grouping_id", "schema_of_variant_agg", "vector_avg", "vector_sum",
        "measure", "theta_sketch_agg", "theta_union_agg", "theta_intersection_agg",
        "kll_sketch_agg_bigint", "kll_sketch_agg_float", "kll_sketch_agg_double",
        "approx_top_k_accumulate", "approx_top_k_combine", "bitmap_and_agg", "mean", "listagg",
        "string_agg", "collect_list", "collect_set", "first", "last", "first_value",
        "last_value", "any_value", "median",
    ]
)  # fmt: skip
_GENERATORS = frozenset(
    [
        "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer",
        "stack", "json_tuple", "variant_explode", "variant_explode_outer", "flatten_rows",
    ]
)  # fmt: skip


def function_name(node: exp.Expr) -> str:
    """The name under which Spark knows a function node, in lower case."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    text = node.sql(dialect="spark")
    return text.partition("(")[0].strip().lower()


def is_aggregate(node: exp.Expr) -> bool:
    """Whether the node is a call of an aggregate function of Spark."""
    if isinstance(node, exp.AggFunc):
        return True
    return isinstance(node, exp.Func) and function_name(node) in _AGGREGATES_WITHOUT_CLASS


def is_generator(node: exp.Expr) -> bool:
    """Whether the node is a call of a function that makes many rows of one."""
    return isinstance(node, exp.Func) and function_name(node) in _GENERATORS


def refuse_unmaterializable(query: exp.Expr, view_name: str) -> None:
    """Raise the user's error if the query's result is no function of its inputs.

    Raises SLACKWATER_UNMATERIALIZABLE_FUNCTION, and SLACKWATER_TEMPORAL_FILTER for mz_now().
    """
    for node in query.find_all(exp.Func, exp.Window, exp.TableSample):
        if isinstance(node, exp.TableSample):
            raise _refusal(view_name, "TABLESAMPLE", _RANDOM)
        if isinstance(node, exp.Window):
            _refuse_unordered_window(node, view_name)
            continue
        name = function_name(node)
        if name == "mz_now":
            raise user_error(
                "SLACKWATER_TEMPORAL_FILTER",
                objectName=view_name,
                reason="temporal filters are not maintained by this version",
            )
        if name in _ADVICE and not _is_canonical(node, name):
            raise _refusal(view_name, name, _ADVICE[name])


def _is_canonical(node: exp.Expr, name: str) -> bool:
    if name in _NEEDS_ARGUMENT:
        return node.this is not None or bool(node.args.get("expressions"))
    parent = node.parent
    if isinstance(parent, exp.Filter):
        parent = parent.parent
    if isinstance(parent, exp.Window) and name in _ORDERED_BY_WINDOW:
        return parent.args.get("order") is not None
    return isinstance(parent, exp.Func) and function_name(parent) in _CANONICAL_AROUND


def _refuse_unordered_window(node: exp.Window, view_name: str) -> None:
    if isinstance(node.this, exp.RowNumber) and node.args.get("order") is None:
        raise _refusal(
            view_name,
            "row_number",
            "Without ORDER BY it depends on the order of rows. Add ORDER BY over a key.",
        )


def _refusal(view_name: str, name: str, advice: str) -> Exception:
    return user_error(
        "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
        objectName=view_name,
        functionName=name,
        advice=advice,
    )
