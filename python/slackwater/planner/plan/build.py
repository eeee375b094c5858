"""From the text of a view's query to its plan.

The query is Spark SQL that Spark's analyzer has accepted. sqlglot parses it; names are resolved
here (`names`), types are asked of Spark (`SchemaOf`). A construct that the delta rules do not
cover makes the whole view `Opaque`, with the reason and an advice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from slackwater.planner.delta import outer
from slackwater.planner.delta.aggregates import AccumulatorList, call_around, call_of, result
from slackwater.planner.plan import fragments as render
from slackwater.planner.plan import opaque
from slackwater.planner.plan.functions import function_name, is_aggregate, is_generator
from slackwater.planner.plan.nodes import (
    Aggregate,
    Collection,
    Constant,
    Explode,
    Filter,
    Join,
    Plan,
    Project,
    UnionAll,
    ViewPlan,
    column,
    is_reserved,
    number_states,
    position_of,
    positional,
)
from slackwater.planner.plan.resolution import Resolve, ResolvedRelation, ResolvedView, parse_query
from slackwater.planner.plan.scope import NotPlanned, Scope, Source
from slackwater.planner.plan.size import largest_query
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import Column, RelationDesc, arrow_type, sql_type

MOST_READS = 150
"""Planning a tick's query that reads its leaves more often takes longer than recomputing."""


class SchemaOf(Protocol):
    """The schema that Spark's analyzer gives a query which reads no relation."""

    def __call__(self, query: str) -> RelationDesc: ...


@dataclass(frozen=True, slots=True)
class _Named:
    """A plan and the names of its columns."""

    plan: Plan
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a query stands: the CTEs that it sees, and the namespace of its names."""

    ctes: Mapping[str, _Named]
    namespace: tuple[str, ...] | None


def build_plan(query: str, output: RelationDesc, resolve: Resolve, schema_of: SchemaOf) -> ViewPlan:
    """The plan of the view with this query, whose rows have the schema `output`.

    Raises SLACKWATER_UNSUPPORTED_TYPE for a state that Parquet cannot hold, and what `resolve`
    and `schema_of` raise.
    """
    parsed = parse_query(query)
    try:
        named = _Builder(resolve, schema_of).query(parsed, _Place({}, None))
        root = number_states(named.plan)
        for state in ViewPlan(root, output).states:
            state.arrow_schema()
        if largest_query(ViewPlan(root, output)) > MOST_READS:
            raise NotPlanned(
                "many joins above each other",
                "Make a materialized view of the lower joins, and join that.",
            )
    except NotPlanned as problem:
        root = opaque.opaque(parsed, output, resolve, problem)
    return ViewPlan(root, output)


_SELECT_ARGS = {
    "with_", "kind", "expressions", "hint", "distinct", "from_", "laterals", "joins",
    "where", "group", "having", "order", "sort", "cluster", "distribute",
}  # fmt: skip
_UNCOVERED = {
    "limit": ("LIMIT", "Keep the view unlimited and apply ORDER BY ... LIMIT when reading it."),
    "offset": ("OFFSET", "Keep the view unlimited and apply OFFSET when reading it."),
    "qualify": ("QUALIFY", "Filter on the window function when reading the view."),
    "sample": ("TABLESAMPLE", "Filter on a column instead."),
    "pivots": ("PIVOT", "Use SUM(...) FILTER (WHERE ...) for each column."),
    "windows": ("WINDOW", "Compute window functions when reading the view."),
}


class _Builder:
    def __init__(self, resolve: Resolve, schema_of: SchemaOf) -> None:
        self._resolve = resolve
        self._schema_of = schema_of

    # Queries

    def query(self, node: exp.Expr, place: _Place) -> _Named:
        place = self._with(node, place)
        match node:
            case exp.Subquery():
                self._only(node, {"this", "alias", "with_"}, "a modified subquery")
                return self.query(node.this, place)
            case exp.Union():
                return self._union(node, place)
            case exp.SetOperation():
                return self._except_or_intersect(node, place)
            case exp.Values():
                return self._values(node)
            case exp.Select():
                return self._select(node, place)
            case _:
                raise NotPlanned(f"a query of the form {node.key}", "Write it as SELECT.")

    def _with(self, node: exp.Expr, place: _Place) -> _Place:
        clause = node.args.get("with_")
        if clause is None:
            return place
        if clause.recursive:
            raise NotPlanned("WITH RECURSIVE", "Unroll the recursion to a fixed number of joins.")
        ctes = dict(place.ctes)
        for cte in clause.expressions:
            named = self.query(cte.this, _Place(ctes, place.namespace))
            names = tuple(c.name for c in cte.args["alias"].columns) or named.names
            ctes[cte.alias.lower()] = _Named(named.plan, names)
        return _Place(ctes, place.namespace)

    def _union(self, node: exp.Union, place: _Place) -> _Named:
        if node.args.get("by_name") or node.args.get("limit") or node.args.get("offset"):
            raise NotPlanned("UNION with BY NAME or LIMIT", "List the columns of both sides.")
        left, right = self.query(node.this, place), self.query(node.expression, place)
        descs = (left.plan.desc, right.plan.desc)
        plan: Plan = UnionAll(
            (left.plan, right.plan), positional(self._types(render.union_types(descs)))
        )
        if node.args.get("distinct"):
            plan = self.distinct(plan)
        return _Named(plan, left.names)

    def _except_or_intersect(self, node: exp.SetOperation, place: _Place) -> _Named:
        modified = any(node.args.get(a) for a in ("by_name", "limit", "offset"))
        if modified or not node.args.get("distinct"):
            name = f"{node.key.upper()} with ALL, BY NAME or LIMIT"
            raise NotPlanned(name, "Use it without, over SELECT DISTINCT.")
        left, right = self.query(node.this, place), self.query(node.expression, place)
        plans = (left.plan, right.plan)
        desc = positional(self._types(render.union_types([plan.desc for plan in plans])))
        width = len(desc.columns)
        kinds = [sql_type(c.spark_type) for c in desc.columns]
        values = [render.cast(column(i), kind) for i, kind in enumerate(kinds)]
        ours, theirs = (self.distinct(self.project(plan, values)) for plan in plans)
        same = [exp.NullSafeEQ(this=column(i), expression=column(width + i)) for i in range(width)]
        if isinstance(node, exp.Except):
            return _Named(outer.anti(ours, theirs, same, self, "Except"), left.names)
        return _Named(outer.semi(ours, theirs, same, self), left.names)

    def _values(self, node: exp.Values) -> _Named:
        copied = node.copy()
        copied.set("alias", None)
        query = exp.select("*").from_(copied)
        return self._constant(query)

    def _constant(self, query: exp.Query) -> _Named:
        desc = self._types(query)
        return _Named(Constant(query, positional(desc)), desc.names)

    def _types(self, query: exp.Query) -> RelationDesc:
        return self._schema_of(query.sql(dialect="spark"))

    # SELECT

    def _select(self, node: exp.Select, place: _Place) -> _Named:
        for name, (construct, advice) in _UNCOVERED.items():
            if node.args.get(name):
                raise NotPlanned(construct, advice)
        self._only(node, _SELECT_ARGS, "a clause of SELECT")
        if node.args.get("kind") or (
            node.args.get("distinct") and node.args["distinct"].args["on"]
        ):
            raise NotPlanned("a modified SELECT", "Use plain SELECT or SELECT DISTINCT.")
        plan, scope = self._from(node, place)
        where = node.args.get("where")
        if where is not None:
            plan = self._where(plan, scope, where.this, place)
        items = _items(node, scope)
        for item in items:
            _refuse_nested(item.value)
        having = node.args.get("having")
        if having is not None:
            _refuse_nested(having.this)
        group = node.args.get("group")
        conditions = [having.this] if having is not None else []
        expressions = [item.value for item in items] + conditions
        if group is not None or any(_has_aggregate(e) for e in expressions):
            named = self._grouped(plan, scope, group, items, conditions)
        else:
            if conditions:
                raise NotPlanned("HAVING without GROUP BY", "Use WHERE.")
            named = self._projected(plan, scope, items)
        if node.args.get("distinct"):
            named = _Named(self.distinct(named.plan), named.names)
        return named

    def _where(self, plan: Plan, scope: Scope, where: exp.Expr, place: _Place) -> Plan:
        plain: list[exp.Expr] = []
        semi: list[tuple[exp.Expr, Plan]] = []
        partners: list[tuple[exp.Exists | exp.In, bool]] = []
        for part in _conjuncts(where):
            test = _test_on_query(part)
            if isinstance(part, exp.In) and test is not None:
                semi.append(self._membership(part, scope, place))
            elif test is not None:
                partners.append((test, test is part))
            else:
                _refuse_nested(part)
                plain.append(scope.resolve(part))
        if isinstance(plan, Join):
            plan = Join(plan.inputs, (*plan.conditions, *plain))
        elif plain:
            plan = Filter(plan, exp.and_(*plain))
        plan = self._semi(plan, semi) if semi else plan
        for test, kept in partners:
            plan = self._partnered(plan, scope, test, kept, place)
        return plan

    def _membership(self, part: exp.In, scope: Scope, place: _Place) -> tuple[exp.Expr, Plan]:
        """The value of ``value IN (query)``, and the distinct rows of the query."""
        _refuse_nested(part.this)
        inner = self.query(part.args["query"], place)
        if len(inner.names) != 1:
            raise NotPlanned("IN over several columns", "Join with SELECT DISTINCT.")
        return scope.resolve(part.this), self.distinct(inner.plan)

    def _partnered(
        self, plan: Plan, scope: Scope, test: exp.Exists | exp.In, kept: bool, place: _Place
    ) -> Plan:
        """The rows of `plan` that EXISTS keeps, or (not `kept`) NOT EXISTS or NOT IN."""
        if isinstance(test, exp.In):
            value, rows = self._membership(test, scope, place)
            return outer.not_in(plan, value, rows, self)
        right, conditions = self._correlated(test.this, scope, place)
        keep = outer.semi if kept else outer.anti
        return keep(plan, right, conditions, self)

    def _correlated(
        self, query: exp.Expr, scope: Scope, place: _Place
    ) -> tuple[Plan, list[exp.Expr]]:
        """The rows of a subquery, and its conditions that speak of the rows around it as well."""
        if not isinstance(query, exp.Select) or not _is_plain(query):
            return self.query(query, place).plan, []
        rows, inner = self._from(query, place)
        within: list[exp.Expr] = []
        across: list[exp.Expr] = []
        where = query.args.get("where")
        for part in _conjuncts(where.this) if where is not None else []:
            _refuse_nested(part)
            if scope.speaks_of(part, inner):
                across.append(scope.resolve_around(part, inner))
            else:
                within.append(inner.resolve(part))
        return (Filter(rows, exp.and_(*within)) if within else rows), across

    def _semi(self, plan: Plan, semi: Sequence[tuple[exp.Expr, Plan]]) -> Plan:
        """`plan` joined with distinct right sides, which can only keep or drop its rows."""
        width = len(plan.desc.columns)
        inputs, conditions = (
            (plan.inputs, plan.conditions) if isinstance(plan, Join) else ((plan,), ())
        )
        position = width
        added: list[exp.Expr] = []
        for value, right in semi:
            inputs = (*inputs, right)
            added.append(exp.EQ(this=exp.paren(value), expression=column(position)))
            position += len(right.desc.columns)
        joined = Join(inputs, (*conditions, *added))
        return Project(joined, tuple(column(i) for i in range(width)), plan.desc)

    def _projected(self, plan: Plan, scope: Scope, items: Sequence[_Item]) -> _Named:
        aliases: dict[str, exp.Expr] = {}
        values: list[exp.Expr] = []
        for item in items:
            if is_generator(item.value):
                value, plan = self._generated(plan, scope, item)
            else:
                if any(is_generator(n) for n in item.value.walk()):
                    raise NotPlanned("a generator inside an expression", "Use LATERAL VIEW.")
                value = scope.resolve_with(item.value, aliases)
            values.append(value)
            if item.name:
                aliases.setdefault(item.name.lower(), value)
        return _Named(self.project(plan, values), tuple(item.name for item in items))

    def _generated(self, plan: Plan, scope: Scope, item: _Item) -> tuple[exp.Expr, Plan]:
        if len(plan.desc.columns) != scope.width:
            raise NotPlanned("two generators in one SELECT", "Use LATERAL VIEW.")
        outer = type(item.value).__name__.endswith("Outer")
        if outer:
            raise NotPlanned("an outer generator in SELECT", "Use LATERAL VIEW OUTER.")
        exploded = self._explode(plan, scope.resolve(item.value), False)
        if len(exploded.desc.columns) != scope.width + 1:
            raise NotPlanned("a generator of several columns in SELECT", "Use LATERAL VIEW.")
        return column(scope.width), exploded

    def project(self, plan: Plan, values: Sequence[exp.Expr]) -> Plan:
        return Project(plan, tuple(values), self._typed(plan, values))

    def _typed(self, plan: Plan, values: Sequence[exp.Expr]) -> RelationDesc:
        if not values:
            return RelationDesc(())
        return positional(self._types(render.types_query(plan.desc, values)))

    def distinct(self, plan: Plan) -> Plan:
        width = len(plan.desc.columns)
        keys = tuple(column(i) for i in range(width))
        grouped = self._aggregate(plan, keys, plan.desc, AccumulatorList(width + 1))
        return Project(grouped, keys, plan.desc)

    def _aggregate(
        self,
        plan: Plan,
        keys: tuple[exp.Expr, ...],
        key_types: RelationDesc,
        accumulators: AccumulatorList,
        calls: Sequence[exp.Expr] = (),
    ) -> Aggregate:
        for key in key_types.columns:
            if '"map"' in key.type_json:
                raise NotPlanned("grouping by a MAP", "Group by map_entries(...) of it, sorted.")
            if "collate" in key.type_json:
                raise NotPlanned("grouping by a collation", "Group by lower(...) of it.")
            if '"void"' in key.type_json:
                raise NotPlanned("grouping by NULL", "Leave it out.")
        items = tuple(accumulators.items)
        kept = (*key_types.columns, *render.accumulator_columns(len(keys), items))
        results = self._typed(plan, calls).columns
        if calls:
            _refuse_unkept(plan, calls, results)
        desc = positional(RelationDesc((*kept, *results)))
        return Aggregate(plan, keys, items, tuple(calls), 0, desc)

    # GROUP BY

    def _grouped(
        self,
        plan: Plan,
        scope: Scope,
        group: exp.Group | None,
        items: Sequence[_Item],
        having: Sequence[exp.Expr],
    ) -> _Named:
        keys = [key.unnest() for key in _keys(group, items, scope)]
        if any(_has_aggregate(key) or _has_generator(key) for key in keys):
            raise NotPlanned("a generator in GROUP BY", "Use LATERAL VIEW.")
        if any(_has_generator(item.value) for item in items):
            raise NotPlanned("a generator beside aggregates", "Use LATERAL VIEW below them.")
        aliases: dict[str, exp.Expr] = {}
        values: list[exp.Expr] = []
        for item in items:
            value = scope.resolve_with(item.value, aliases)
            values.append(value)
            if item.name:
                aliases.setdefault(item.name.lower(), value)
        for condition in having:
            _refuse_shadowed(condition, items, scope)
        conditions = [scope.resolve_with(condition, aliases) for condition in having]
        calls = _calls([*values, *conditions])
        state = AccumulatorList(len(keys) + 1)
        results, recomputed = self._results(plan, calls, state, column(len(keys)))
        above = [_above(v, keys, calls, results) for v in (*values, *conditions)]
        key_types = self._typed(plan, keys)
        grouped: Plan = self._aggregate(plan, tuple(keys), key_types, state, recomputed)
        if conditions:
            grouped = Filter(grouped, exp.and_(*above[len(values) :]))
        return _Named(
            self.project(grouped, above[: len(values)]), tuple(item.name for item in items)
        )

    def _results(
        self,
        plan: Plan,
        nodes: Sequence[exp.Expr],
        state: AccumulatorList,
        rows: exp.Column,
    ) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """For each aggregate its value over the group's state, and those that are not accumulated.

        The values of the latter follow the accumulators in the state.
        """
        calls = [call_of(node) for node in nodes]
        found = [call for call in calls if call is not None]
        outputs = iter(self._typed(plan, [call.function for call in found]).columns)
        summed = [c for c in found if not isinstance(c.function, exp.Count | exp.CountIf)]
        arguments = self._typed(plan, [c.argument for c in summed]).columns
        kinds = {id(call): kind for call, kind in zip(summed, arguments, strict=True)}
        values: list[exp.Expr | None] = []
        for call in calls:
            output = None if call is None else next(outputs)
            try:
                values.append(
                    None
                    if call is None or output is None
                    else result(call, kinds.get(id(call)), output, state, rows)
                )
            except NotPlanned:
                values.append(None)
        first = int(position_of(rows) or 0) + 1 + len(state.items)
        others = [node for node, value in zip(nodes, values, strict=True) if value is None]
        results = [
            column(first + others.index(node)) if value is None else value
            for node, value in zip(nodes, values, strict=True)
        ]
        return results, others

    # FROM

    def _from(self, node: exp.Select, place: _Place) -> tuple[Plan, Scope]:
        clause = node.args.get("from_")
        if clause is None:
            one_row = exp.select(exp.alias_(exp.Literal.number(1), "one"))
            named = self._constant(one_row)
            scope = Scope((Source((), ("",), 0),))
            return named.plan, scope
        plan, scope = self._joined(clause.this, node.args.get("joins") or [], place)
        for lateral in node.args.get("laterals") or []:
            plan, scope = self._lateral(plan, scope, lateral)
        return plan, scope

    def _joined(
        self, first: exp.Expr, joins: Sequence[exp.Join], place: _Place
    ) -> tuple[Plan, Scope]:
        plan, scope = self._source(first, place)
        inputs: list[Plan] = [plan]
        conditions: list[exp.Expr] = []
        for join in (*(first.args.get("joins") or []), *joins):
            right, right_scope = self._source(join.this, place)
            kind = _join_kind(join)
            if kind == "INNER":
                inputs.append(right)
                scope = self._join_scope(join, scope, right_scope, conditions)
                continue
            left = inputs[0] if len(inputs) == 1 else Join(tuple(inputs), tuple(conditions))
            conditions = []
            both = self._join_scope(join, scope, right_scope, conditions)
            if kind in ("SEMI", "ANTI"):
                keep = outer.semi if kind == "SEMI" else outer.anti
                inputs = [keep(left, right, conditions, self)]
            else:
                inputs = [outer.outer(kind, left, right, conditions, self)]
                scope = both
            conditions = []
        if len(inputs) == 1:
            return inputs[0], scope
        return Join(tuple(inputs), tuple(conditions)), scope

    def _join_scope(
        self, join: exp.Join, left: Scope, right: Scope, conditions: list[exp.Expr]
    ) -> Scope:
        self._only(
            join, {"this", "on", "kind", "side", "using", "hint", "method"}, "a modified join"
        )
        if len({len(right.sources)} - {1}) and (join.args.get("using") or join.args.get("method")):
            raise NotPlanned("USING over a nested join", "Write the condition with ON.")
        using = [i.name for i in join.args.get("using") or []]
        if join.args.get("method") == "NATURAL":
            using = [name for name, _ in left.star(()) if right.position((name,)) is not None]
        elif join.args.get("method"):
            raise NotPlanned(f"{join.args['method']} JOIN", "Use an inner join.")
        moved = tuple(replace(s, start=s.start + left.width) for s in right.sources)
        kept = left.sources
        match _join_kind(join):
            case "FULL" if using:
                raise NotPlanned("USING of a FULL JOIN", "Write the condition with ON.")
            case "RIGHT":
                kept = _hidden(kept, using)
            case _:
                moved = _hidden(moved, using)
        scope = Scope((*kept, *moved), (*left.shared, *using))
        for name in using:
            conditions.append(_using(name, left, right))
        if (on := join.args.get("on")) is not None:
            for part in _conjuncts(on):
                _refuse_nested(part)
                conditions.append(scope.resolve(part))
        return scope

    def _source(self, node: exp.Expr, place: _Place) -> tuple[Plan, Scope]:
        match node:
            case exp.Table():
                return self._table(node, place)
            case exp.Subquery() if (
                isinstance(node.this, exp.Table | exp.Subquery) and not node.alias
            ):
                self._only(node, {"this", "joins"}, "a modified subquery")
                return self._joined(node.this, [], place)
            case exp.Subquery() | exp.Values():
                self._only(
                    node, {"this", "alias", "with_", "joins", "expressions"}, "a modified subquery"
                )
                named = self.query(node, place)
                return _aliased(named, node, ())
            case _:
                raise NotPlanned(f"{node.key} in FROM", "Use a table, a view or a subquery.")

    def _table(self, node: exp.Table, place: _Place) -> tuple[Plan, Scope]:
        self._only(node, {"this", "db", "catalog", "alias", "joins"}, "a modified table")
        if not isinstance(node.this, exp.Identifier):
            query = exp.select("*").from_(exp.Table(this=node.this.copy()))
            return _aliased(self._constant(query), node, ())
        parts = tuple(part.name for part in node.parts)
        cte = place.ctes.get(parts[0].lower()) if len(parts) == 1 else None
        if cte is not None:
            return _aliased(cte, node, parts)
        match self._resolve(parts, place.namespace):
            case ResolvedRelation(global_id, desc):
                plan = Collection(global_id, desc.names, positional(desc))
                return _aliased(_Named(plan, desc.names), node, parts)
            case ResolvedView(text, namespace, columns):
                named = self.query(parse_query(text), _Place({}, namespace))
                return _aliased(_Named(named.plan, columns or named.names), node, parts)

    def _lateral(self, plan: Plan, scope: Scope, node: exp.Lateral) -> tuple[Plan, Scope]:
        if not node.args.get("view"):
            raise NotPlanned("a LATERAL subquery", "Use a join or LATERAL VIEW.")
        _refuse_nested(node.this)
        exploded = self._explode(plan, scope.resolve(node.this), bool(node.args.get("outer")))
        alias = node.args["alias"]
        added = len(exploded.desc.columns) - scope.width
        names = tuple(c.name for c in alias.columns)
        if not names:
            types = render.generated_types(plan.desc, exploded.generator, exploded.outer)
            names = self._types(types).names
        if len(names) != added:
            raise NotPlanned("LATERAL VIEW with other columns", "Name each of its columns.")
        qualifier = (alias.name,) if alias.name else ()
        source = Source(qualifier, names, scope.width)
        return exploded, Scope((*scope.sources, source), scope.shared)

    def _explode(self, plan: Plan, generator: exp.Expr, outer: bool) -> Explode:
        types = self._types(render.generated_types(plan.desc, generator, outer))
        desc = positional(RelationDesc((*plan.desc.columns, *types.columns)))
        return Explode(plan, generator, outer, desc)

    @staticmethod
    def _only(node: exp.Expr, known: set[str], construct: str) -> None:
        unknown = [name for name, value in node.args.items() if value and name not in known]
        if unknown:
            raise NotPlanned(f"{construct}: {', '.join(unknown)}", "Leave it out.")


@dataclass(frozen=True, slots=True)
class _Item:
    """One expression of the SELECT list, and its name ("" if Spark makes one up)."""

    value: exp.Expr
    name: str


def _items(node: exp.Select, scope: Scope) -> list[_Item]:
    items: list[_Item] = []
    for written in node.expressions:
        star = written.this if isinstance(written, exp.Column) else written
        if isinstance(star, exp.Star):
            if any(star.args.values()):
                raise NotPlanned("* EXCEPT", "List the columns.")
            qualifier = [p.name for p in written.parts[:-1]] if star is not written else []
            items.extend(_Item(column(i), name) for name, i in scope.star(qualifier))
        elif isinstance(written, exp.Alias):
            items.append(_Item(written.this, written.alias))
        elif isinstance(written, exp.Column | exp.Dot):
            items.append(_Item(written, written.name))
        elif isinstance(written, exp.Aliases):
            raise NotPlanned("a generator of several columns in SELECT", "Use LATERAL VIEW.")
        else:
            items.append(_Item(written, "col" if is_generator(written) else ""))
    return items


def _aliased(named: _Named, node: exp.Expr, parts: tuple[str, ...]) -> tuple[Plan, Scope]:
    alias = node.args.get("alias")
    names = tuple(c.name for c in alias.columns) if alias is not None else ()
    qualifier = (alias.name,) if alias is not None and alias.name else parts
    if any(is_reserved(name) for name in names or named.names):
        raise NotPlanned("a column with a reserved name", "Rename the columns __c0, __c1, ...")
    return named.plan, Scope((Source(qualifier, names or named.names, 0),))


def _join_kind(join: exp.Join) -> str:
    """INNER, LEFT, RIGHT, FULL, SEMI or ANTI."""
    side, kind = (join.args.get(a) or "" for a in ("side", "kind"))
    if kind in ("SEMI", "ANTI") and side in ("", "LEFT"):
        return kind
    if side in ("LEFT", "RIGHT", "FULL") and kind in ("", "OUTER"):
        return str(side)
    if not side and kind in ("", "INNER", "CROSS"):
        return "INNER"
    raise NotPlanned(f"{side} {kind} JOIN".strip(), "Use an inner or an outer join.")


def _hidden(sources: tuple[Source, ...], names: Sequence[str]) -> tuple[Source, ...]:
    lower = {name.lower() for name in names}
    return tuple(replace(s, hidden=s.hidden | lower) for s in sources)


def _using(name: str, left: Scope, right: Scope) -> exp.Expr:
    of_left, of_right = left.position((name,)), right.position((name,))
    if of_left is None or of_right is None:
        raise NotPlanned(f"USING ({name})", "Write the condition with ON.")
    return exp.EQ(this=column(of_left[0]), expression=column(of_right[0] + left.width))


def _test_on_query(condition: exp.Expr) -> exp.Exists | exp.In | None:
    """EXISTS or IN of a subquery without the NOT in front of it; None: it is something else."""
    inner = condition.unnest()
    tested = inner.this.unnest() if isinstance(inner, exp.Not) else inner
    if isinstance(tested, exp.Exists) and isinstance(tested.this, exp.Query):
        return tested
    if isinstance(tested, exp.In) and tested.args.get("query") is not None:
        return tested
    return None


def _is_plain(query: exp.Select) -> bool:
    """Whether the query has a row for each row of its FROM clause that WHERE keeps."""
    known = ("expressions", "from_", "joins", "laterals", "where", "distinct")
    clauses = [name for name, value in query.args.items() if value and name not in known]
    return not clauses and not any(
        _has_aggregate(e) or _has_generator(e) for e in query.expressions
    )


def _conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.left), *_conjuncts(condition.right)]
    if isinstance(condition, exp.Paren):
        return _conjuncts(condition.this)
    return [condition]


def _refuse_nested(expression: exp.Expr) -> None:
    if expression.find(exp.Window) is not None:
        raise NotPlanned("a window function", "Compute window functions when reading the view.")
    if expression.find(exp.Query, exp.Exists) is not None:
        raise NotPlanned("a subquery in an expression", "Join with the subquery instead.")
    if expression.find(exp.Star) is not None and expression.find(exp.Count) is None:
        raise NotPlanned("* in an expression", "List the columns.")
    if any(not _is_compared(row) for row in expression.find_all(exp.Tuple)):
        # Its fields have the names of the columns, which references by position have not.
        raise NotPlanned("a row as a value", "Use named_struct(...).")


def _is_compared(row: exp.Tuple) -> bool:
    parent = row.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return isinstance(parent, exp.Predicate)


def _refuse_shadowed(having: exp.Expr, items: Sequence[_Item], scope: Scope) -> None:
    """HAVING prefers names of the SELECT list, aggregates inside it those of the FROM clause."""
    renamed = {
        item.name.lower()
        for item in items
        if not isinstance(item.value, exp.Column) and scope.position((item.name,)) is not None
    }
    if any(c.name.lower() in renamed for c in having.find_all(exp.Column)):
        raise NotPlanned(
            "a name in HAVING that means a column and an alias", "Give the alias another name."
        )


def _has_aggregate(expression: exp.Expr) -> bool:
    return any(is_aggregate(node) for node in expression.walk())


def _has_generator(expression: exp.Expr) -> bool:
    return any(is_generator(node) for node in expression.walk())


def _keys(group: exp.Group | None, items: Sequence[_Item], scope: Scope) -> list[exp.Expr]:
    if group is None:
        return []
    if any(group.args.get(a) for a in ("grouping_sets", "cube", "rollup", "totals")):
        raise NotPlanned("GROUPING SETS, CUBE or ROLLUP", "Use one view for each grouping.")
    if group.args.get("all"):
        return [scope.resolve(i.value) for i in items if not _has_aggregate(i.value)]
    return [_key(written, items, scope) for written in group.expressions]


def _key(written: exp.Expr, items: Sequence[_Item], scope: Scope) -> exp.Expr:
    if isinstance(written, exp.GroupingSets | exp.Cube | exp.Rollup | exp.Tuple):
        raise NotPlanned("GROUPING SETS, CUBE or ROLLUP", "Use one view for each grouping.")
    if isinstance(written, exp.Literal) and written.is_int:
        return scope.resolve(items[int(written.name) - 1].value)
    _refuse_nested(written)
    aliases: dict[str, exp.Expr] = {}
    for item in items:
        if item.name and not _has_aggregate(item.value):
            aliases.setdefault(item.name.lower(), scope.resolve_with(item.value, aliases))
    return scope.resolve_with(written, aliases)


_OF_GROUPINGS = {"grouping", "grouping_id", "measure"}


def _refuse_unkept(plan: Plan, calls: Sequence[exp.Expr], results: Sequence[Column]) -> None:
    """Rows are compared and results are kept: what cannot be is left to Spark as a whole."""
    read = {position_of(c) for call in calls for c in call.find_all(exp.Column)}
    for i, source in enumerate(plan.desc.columns):
        if i in read and '"map"' in source.type_json:
            raise NotPlanned("an aggregate over a MAP", "Aggregate map_entries(...) of it.")
    for made in results:
        try:
            arrow_type(made.spark_type)
        except SlackwaterError:
            raise NotPlanned(f"an aggregate of type {made.sql_type}", "Cast its result.") from None
        if '"map"' in made.type_json:
            raise NotPlanned("an aggregate that makes a MAP", "Keep its entries in an array.")


def _calls(expressions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The distinct aggregate calls of the expressions, FILTER included."""
    found: list[exp.Expr] = []
    for expression in expressions:
        for node in expression.find_all(exp.Func, exp.Filter):
            if not is_aggregate(node):
                continue
            call = call_around(node)
            if function_name(node) in _OF_GROUPINGS:
                raise NotPlanned(f"the function {function_name(node)}", "Use plain GROUP BY.")
            inner = [n for n in call.walk() if n is not node and is_aggregate(n)]
            if inner:
                raise NotPlanned("an aggregate of an aggregate", "Use a derived table.")
            if call not in found:
                found.append(call)
    return found


def _above(
    expression: exp.Expr,
    keys: Sequence[exp.Expr],
    calls: Sequence[exp.Expr],
    results: Sequence[exp.Expr],
) -> exp.Expr:
    """`expression` over the columns of the group's state.

    Raises NotPlanned if it speaks of a column that is neither a key nor aggregated.
    """

    def visit(node: exp.Expr) -> exp.Expr:
        if node in calls:
            return exp.paren(results[calls.index(node)].copy())
        if node in keys:
            return column(keys.index(node))
        if position_of(node) is not None:
            raise NotPlanned("a column that is not grouped", "Add it to GROUP BY.")
        for name, child in list(node.args.items()):
            if isinstance(child, list):
                node.set(name, [visit(c) if isinstance(c, exp.Expr) else c for c in child])
            elif isinstance(child, exp.Expr):
                node.set(name, visit(child))
        return node

    return visit(expression.copy())
