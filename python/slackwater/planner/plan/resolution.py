"""What the names of a view's query mean: asked of the caller, who has the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import sqlglot
from sqlglot import exp

from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc


@dataclass(frozen=True, slots=True)
class ResolvedRelation:
    """A name that means a collection."""

    global_id: GlobalId
    desc: RelationDesc


@dataclass(frozen=True, slots=True)
class ResolvedView:
    """A name that means a stored query.

    `namespace` is where the names in `query` are looked up; `columns` are the view's own column
    names, None if they are those of the query.
    """

    query: str
    namespace: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None


class Resolve(Protocol):
    """What a name means: its parts, and the namespace of the view in whose query it is found

    (None: the query that is planned). Raises the user's error for a name that means nothing.
    """

    def __call__(
        self, parts: tuple[str, ...], namespace: tuple[str, ...] | None
    ) -> ResolvedRelation | ResolvedView: ...


def parse_query(text: str) -> exp.Query:
    """The query as sqlglot sees it. Raises sqlglot.errors.ParseError."""
    parsed = sqlglot.parse_one(text, dialect="spark")
    if not isinstance(parsed, exp.Query):
        raise sqlglot.errors.ParseError("not a query")
    for total in list(parsed.find_all(exp.Add)):
        if _is_interval(total) and not isinstance(total.parent, exp.Paren):
            total.replace(exp.Paren(this=total.copy()))
    return parsed


def _is_interval(node: exp.Expression) -> bool:
    """An interval of several units is a sum in sqlglot's tree, and would be written without ()."""
    if isinstance(node, exp.Add):
        return _is_interval(node.this) and _is_interval(node.expression)
    return isinstance(node, exp.Interval)
