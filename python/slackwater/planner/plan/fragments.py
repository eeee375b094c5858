"""Pieces of Spark SQL as sqlglot nodes. Nothing here joins text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from sqlglot import exp

from slackwater.planner.plan.nodes import (
    Accumulator,
    CountRows,
    SumValues,
    column,
    column_name,
)
from slackwater.repr.relation import (
    DIFF_COLUMN,
    TIME_COLUMN,
    Column,
    JsonType,
    RelationDesc,
    sql_type,
)

DIALECT = "spark"


def time(table: str | None = None) -> exp.Column:
    return exp.column(TIME_COLUMN, table=table)


def diff(table: str | None = None) -> exp.Column:
    return exp.column(DIFF_COLUMN, table=table)


def named(value: exp.Expr, name: str) -> exp.Expr:
    """``value AS name``; the column itself where that is its name."""
    if isinstance(value, exp.Column) and value.name == name and not value.table:
        return value
    alias: exp.Expr = exp.alias_(exp.paren(value, copy=False), name, copy=False)
    return alias


def quoted(name: str) -> exp.Column:
    """A reference to a user's column."""
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def cast(value: exp.Expr, kind: str) -> exp.Expr:
    """`value` as the type that Spark calls `kind`."""
    # As text: sqlglot would take TIME for TIMESTAMP, leave a collation out, and not know VOID.
    typed = exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=kind)
    return exp.cast(value, typed, copy=False)


def number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def select(values: Iterable[exp.Expr], source: exp.Expr | None) -> exp.Select:
    chosen = exp.Select(expressions=list(values))
    return chosen if source is None else chosen.from_(source, copy=False)


def sub(query: exp.Query, alias: str) -> exp.Subquery:
    return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))


def table(name: str, alias: str | None = None) -> exp.Table:
    made = exp.Table(this=exp.to_identifier(name, quoted=True))
    if alias is not None:
        made.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    return made


def union_all(queries: Sequence[exp.Query]) -> exp.Query:
    whole = queries[0]
    for query in queries[1:]:
        whole = exp.Union(this=whole, expression=query, distinct=False)
    return whole


def group_by(query: exp.Select, keys: Sequence[exp.Expr]) -> exp.Select:
    if keys:
        query.set("group", exp.Group(expressions=list(keys)))
    return query


def by_value(desc: RelationDesc) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The columns of `desc` as a query that groups by all of them selects them, and its keys.

    A MAP is no key: where Spark sorts one to compare it, a NULL in it becomes a 0, and a struct
    around it cannot be cast. Its entries in order are the key, and the column is taken from a row.
    """
    chosen: list[exp.Expr] = []
    keys: list[exp.Expr] = []
    for i, each in enumerate(desc.columns):
        plain = '"map"' not in each.type_json
        taken = exp.Anonymous(this="any_value", expressions=[column(i)])
        chosen.append(column(i) if plain else named(taken, column_name(i)))
        keys.append(column(i) if plain else _comparable(column(i), each.spark_type, 0))
    return chosen, keys


def _comparable(value: exp.Expr, kind: JsonType, depth: int) -> exp.Expr:
    """A value that is equal where `value` is, and has no MAP in it."""
    if isinstance(kind, str) or '"map"' not in json.dumps(kind):
        return value

    def each(items: exp.Expr, make: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        name = f"__x{depth}"
        item = exp.Lambda(this=make(exp.column(name)), expressions=[exp.to_identifier(name)])
        return _call("transform", items, item)

    def field(of: exp.Expr, name: str) -> exp.Expr:
        return exp.Dot(this=of.copy(), expression=exp.to_identifier(name, quoted=True))

    match kind["type"]:
        case "map":
            entries = each(
                _call("map_entries", value),
                lambda entry: _call(
                    "struct",
                    _comparable(field(entry, "key"), kind["keyType"], depth + 1),
                    _comparable(field(entry, "value"), kind["valueType"], depth + 1),
                ),
            )
            return _call("array_sort", entries)
        case "array":
            return each(value, lambda item: _comparable(item, kind["elementType"], depth + 1))
        case "struct":
            fields = [
                _comparable(field(value, f["name"]), f["type"], depth) for f in kind["fields"]
            ]
            absent = exp.Is(this=value.copy(), expression=exp.Null())
            return exp.case().when(absent, exp.Null()).else_(_call("struct", *fields))
        case _:
            return value


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def null_row(desc: RelationDesc) -> exp.Select:
    """A query without input whose columns have the types of `desc`, named by position."""
    values = [
        exp.alias_(cast(exp.Null(), sql_type(c.spark_type)), column_name(i), copy=False)
        for i, c in enumerate(desc.columns)
    ]
    return select(values or [exp.alias_(number(1), "__one")], None)


def types_query(desc: RelationDesc, values: Sequence[exp.Expr]) -> exp.Select:
    """A query whose schema has the types of `values` over rows of `desc`."""
    items = [exp.alias_(exp.paren(v.copy()), column_name(i)) for i, v in enumerate(values)]
    return select(items, sub(null_row(desc), "t"))


def generated_types(desc: RelationDesc, generator: exp.Expr, outer: bool) -> exp.Select:
    """A query whose schema has the columns that `generator` makes."""
    query = select([exp.Column(this=exp.Star(), table=exp.to_identifier("__g"))], None)
    query.from_(sub(null_row(desc), "t"), copy=False)
    query.append("laterals", lateral(generator, outer, ()))
    return query


def lateral(generator: exp.Expr, outer: bool, names: Sequence[str]) -> exp.Lateral:
    """LATERAL VIEW of the generator, as relation ``__g``."""
    alias = exp.TableAlias(
        this=exp.to_identifier("__g"), columns=[exp.to_identifier(name) for name in names]
    )
    return exp.Lateral(this=generator.copy(), view=True, outer=outer, alias=alias)


def union_types(descs: Sequence[RelationDesc]) -> exp.Query:
    return union_all([null_row(desc) for desc in descs])


def accumulator_columns(keys: int, items: Sequence[Accumulator]) -> tuple[Column, ...]:
    """The columns of a state after its keys: the number of rows, the accumulators."""
    kinds = ['"long"', *(_kind(item) for item in items)]
    return tuple(Column(column_name(keys + i), kind) for i, kind in enumerate(kinds))


def _kind(item: Accumulator) -> str:
    return f'"decimal(38,{item.scale})"' if isinstance(item, SumValues) else '"long"'


def contribution(item: Accumulator) -> exp.Expr:
    """What the rows of one group and time add to the accumulator."""
    match item:
        case CountRows(condition):
            counted = exp.case().when(condition.copy(), diff()).else_(number(0))
            return exp.Coalesce(this=exp.Sum(this=counted), expressions=[number(0)])
        case SumValues(value, precision, scale):
            added = _times_diff(value, precision, scale)
            total = exp.Sum(this=cast(added, f"DECIMAL(38, {scale})"))
            zero = cast(number(0), f"DECIMAL(38, {scale})")
            return cast(exp.Coalesce(this=total, expressions=[zero]), f"DECIMAL(38, {scale})")


def needs_unit_diffs(item: Accumulator) -> bool:
    """Whether `contribution` is exact only for rows whose diff is 1 or -1.

    Spark's product of two DECIMALs drops digits behind the point, down to six, where the digits
    of both do not fit into 38.
    """
    return isinstance(item, SumValues) and item.scale > 6 and item.precision > 18


def _times_diff(value: exp.Expr, precision: int, scale: int) -> exp.Expr:
    item = SumValues(value, precision, scale)
    if not needs_unit_diffs(item):
        factor = cast(diff(), "DECIMAL(19, 0)")
        return exp.Mul(this=exp.paren(value.copy()), expression=factor)
    negated = exp.Neg(this=exp.paren(value.copy()))
    return (
        exp.case()
        .when(exp.GT(this=diff(), expression=number(0)), exp.paren(value.copy()))
        .else_(negated)
    )


def unit_diffs(query: exp.Query, columns: Sequence[exp.Expr]) -> exp.Select:
    """The rows of `query`, `columns` of them, with each diff taken apart into ones."""
    count = exp.Anonymous(
        this="sequence",
        expressions=[cast(number(1), "BIGINT"), exp.Abs(this=diff())],
    )
    sign = cast(exp.Sign(this=diff()), "BIGINT")
    made = select([*columns, named(sign, DIFF_COLUMN)], sub(query, "u"))
    made.append("laterals", lateral(exp.Explode(this=count), False, ("__n",)))
    return made
