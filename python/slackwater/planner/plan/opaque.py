"""Views that are recomputed: the query with its collections behind well-known table names."""

from __future__ import annotations

from sqlglot import exp

from slackwater.planner.plan.nodes import Collection, Opaque, collection_table, positional
from slackwater.planner.plan.resolution import Resolve, ResolvedRelation, parse_query
from slackwater.planner.plan.scope import NotPlanned
from slackwater.repr.relation import RelationDesc


def opaque(query: exp.Query, output: RelationDesc, resolve: Resolve, problem: NotPlanned) -> Opaque:
    """The query as an Opaque. Views that it reads become subqueries."""
    reads: dict[str, Collection] = {}
    bound = _bind(query.copy(), resolve, None, reads)
    return Opaque(bound, tuple(reads.values()), problem.reason, problem.advice, positional(output))


def _bind(
    query: exp.Query,
    resolve: Resolve,
    namespace: tuple[str, ...] | None,
    reads: dict[str, Collection],
) -> exp.Query:
    tables = [t for t in query.find_all(exp.Table) if isinstance(t.this, exp.Identifier)]
    for table in [t for t in tables if not _is_cte(t) and not _is_hint(t)]:
        parts = tuple(part.name for part in table.parts)
        _shorten(query, parts)
        resolved = resolve(parts, namespace)
        alias = table.args.get("alias") or exp.TableAlias(
            this=exp.to_identifier(parts[-1], quoted=True)
        )
        if isinstance(resolved, ResolvedRelation):
            desc = resolved.desc
            reads[resolved.global_id] = Collection(resolved.global_id, desc.names, positional(desc))
            name = collection_table(resolved.global_id)
            replacement: exp.Expr = exp.Table(this=exp.to_identifier(name, quoted=True))
        else:
            inner = _bind(parse_query(resolved.query), resolve, resolved.namespace, reads)
            if resolved.columns and not alias.columns:
                columns = [exp.to_identifier(c, quoted=True) for c in resolved.columns]
                alias = exp.TableAlias(this=alias.this, columns=columns)
            replacement = exp.Subquery(this=inner)
        kept = {k: v for k, v in table.args.items() if k not in ("this", "db", "catalog", "alias")}
        for name, value in kept.items():
            if value:
                replacement.set(name, value)
        replacement.set("alias", alias.copy())
        table.replace(replacement)
    return query


def _shorten(query: exp.Query, parts: tuple[str, ...]) -> None:
    """Columns that are qualified by the relation's full name: keep its last part."""
    if len(parts) == 1:
        return
    for reference in query.find_all(exp.Column):
        qualifier = tuple(part.name.lower() for part in reference.parts[:-1])
        if len(qualifier) > 1 and qualifier == tuple(p.lower() for p in parts)[-len(qualifier) :]:
            reference.set("db", None)
            reference.set("catalog", None)


def _is_hint(table: exp.Table) -> bool:
    return table.find_ancestor(exp.Hint) is not None


def _is_cte(table: exp.Table) -> bool:
    """Whether the name means a CTE that is visible where the table stands."""
    if len(table.parts) != 1:
        return False
    wanted = table.name.lower()
    node: exp.Expr = table
    inside: exp.CTE | None = None
    while node.parent is not None:
        parent = node.parent
        if isinstance(node, exp.CTE):
            inside = node
        if isinstance(parent, exp.With):
            node = parent
            continue
        clause = parent.args.get("with_") if isinstance(parent, exp.Expr) else None
        if clause is not None:
            for cte in clause.expressions:
                if node is clause and inside is not None and cte is inside:
                    if clause.args.get("recursive") and inside.alias.lower() == wanted:
                        return True
                    break
                if cte.alias.lower() == wanted:
                    return True
        node = parent
    return False
