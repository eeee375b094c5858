"""Resolving the columns of one SELECT to positions in the rows of its FROM clause.

Follows Spark's rules: the longest qualifier that fits, case-insensitive names, columns shared by
USING only once, further name parts are fields of a struct. What these rules do not decide is
reported as `NotPlanned`, and the view is then left to Spark as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from slackwater.planner.plan.nodes import column, position_of


class NotPlanned(Exception):
    """The delta rules do not cover the query; `reason` names the construct, `advice` a way out."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


@dataclass(frozen=True, slots=True)
class Source:
    """One relation of a FROM clause: the parts of its name, its columns, where they start.

    `hidden` are columns that USING took from another source: reachable by qualifier alone.
    """

    qualifier: tuple[str, ...]
    names: tuple[str, ...]
    start: int
    hidden: frozenset[str] = frozenset()

    def matches(self, qualifier: Sequence[str]) -> bool:
        own = tuple(part.lower() for part in self.qualifier)
        wanted = tuple(part.lower() for part in qualifier)
        return not wanted or own[len(own) - len(wanted) :] == wanted

    def positions(self, name: str, qualified: bool) -> list[int]:
        wanted = name.lower()
        if not qualified and wanted in self.hidden:
            return []
        return [self.start + i for i, own in enumerate(self.names) if own.lower() == wanted]


@dataclass(frozen=True, slots=True)
class Scope:
    """The sources of one FROM clause, in order."""

    sources: tuple[Source, ...]
    shared: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return sum(len(source.names) for source in self.sources)

    def position(self, parts: Sequence[str]) -> tuple[int, tuple[str, ...]] | None:
        """The column that a dotted name means, and the struct fields that are left; None: none.

        Raises NotPlanned if it means more than one.
        """
        for split in range(len(parts) - 1, -1, -1):
            qualifier, name = parts[:split], parts[split]
            found = [
                position
                for source in self.sources
                if source.matches(qualifier)
                for position in source.positions(name, bool(qualifier))
            ]
            if len(found) > 1:
                raise NotPlanned(
                    f"the name {'.'.join(parts)} is not unique", "Qualify it with its relation."
                )
            if found:
                return found[0], tuple(parts[split + 1 :])
        return None

    def star(self, qualifier: Sequence[str]) -> list[tuple[str, int]]:
        """The columns that ``*`` or ``qualifier.*`` stands for: name and position."""
        if qualifier:
            chosen = [source for source in self.sources if source.matches(qualifier)]
            if len(chosen) != 1:
                raise NotPlanned(
                    f"{'.'.join(qualifier)}.* is not the name of one relation", "List the columns."
                )
            source = chosen[0]
            return [(name, source.start + i) for i, name in enumerate(source.names)]
        shared = [
            (name, position[0])
            for name in self.shared
            if (position := self.position((name,))) is not None
        ]
        first = {position for _, position in shared}
        rest = [
            (name, source.start + i)
            for source in self.sources
            for i, name in enumerate(source.names)
            if source.start + i not in first and name.lower() not in source.hidden
        ]
        return shared + rest

    def resolve(self, expression: exp.Expr) -> exp.Expr:
        """A copy of `expression` whose columns are references by position.

        Raises NotPlanned for a name that no source has.
        """
        return self._resolve(expression, {})

    def resolve_with(self, expression: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        """As `resolve`; a plain name that no source has may be one of the resolved `aliases`."""
        return self._resolve(expression, aliases)

    def speaks_of(self, expression: exp.Expr, inner: Scope) -> bool:
        """Whether an expression of a subquery speaks of these sources, which are around `inner`."""
        return any(
            inner.position([part.name for part in node.parts]) is None
            for node in expression.find_all(exp.Column)
        )

    def resolve_around(self, expression: exp.Expr, inner: Scope) -> exp.Expr:
        """As `resolve`, over these sources followed by those of `inner`, whose names go first."""

        def replace(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            found = inner.position([part.name for part in node.parts])
            if found is None:
                return self.resolve(node)
            return _fields(column(found[0] + self.width), found[1])

        return expression.copy().transform(replace, copy=False)

    def _resolve(self, expression: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        def replace(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            parts = [part.name for part in node.parts]
            found = self.position(parts)
            if found is None and position_of(node) is not None:
                return node.copy()
            if found is None:
                alias = aliases.get(parts[0].lower())
                if alias is None:
                    raise NotPlanned(
                        f"the column {'.'.join(parts)} does not come from the FROM clause",
                        "Join the relation that it belongs to.",
                    )
                plain = isinstance(alias, exp.Column)
                return _fields(alias.copy() if plain else exp.paren(alias.copy()), parts[1:])
            position, fields = found
            return _fields(column(position), fields)

        copied = expression.copy()
        if isinstance(copied, exp.Column):
            return replace(copied)
        for node in list(copied.find_all(exp.Column)):
            node.replace(replace(node))
        return copied


def _fields(base: exp.Expr, fields: Sequence[str]) -> exp.Expr:
    for field in fields:
        base = exp.Dot(this=base, expression=exp.to_identifier(field, quoted=True))
    return base
