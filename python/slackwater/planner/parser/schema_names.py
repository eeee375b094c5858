"""Other names of schemas in the text of a query, which is otherwise left as the user wrote it.

A relation is named as `schema.relation` or `slackwater.schema.relation`, and a column by that and
its own name. Spark alone knows where a query has relations; here whatever reads like the name of
one that the query is known to have gets the other name. The caller lets Spark say whether the query
means the same then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slackwater.planner.parser.names import CATALOG
from slackwater.planner.parser.tokens import Kind, Token, tokenize
from slackwater.repr.relation import quote_identifier

_NAMES = (Kind.WORD, Kind.QUOTED)


@dataclass(frozen=True, slots=True)
class NamedRelations:
    """The relations that a query names in a session at `catalog`: their schemas and their names.

    Names are folded (`str.casefold`): they are compared without case.
    """

    catalog: str
    relations: Collection[tuple[str, str]]

    def schema_in(self, parts: Sequence[str]) -> int | None:
        """The place of the schema in a name of several parts; None: it names none of these."""
        first = 1 if parts[0] == CATALOG and len(parts) > 2 else 0
        if first == 0 and self.catalog != CATALOG:
            return None
        schema, name = (part.casefold() for part in parts[first : first + 2])
        return first if (schema, name) in self.relations else None


def with_schemas(text: str, named: NamedRelations, names: Mapping[str, str]) -> str:
    """The query with the new names of schemas, by folded ones, where it names relations."""
    made, end = "", 0
    for parts in _dotted(tokenize(text)):
        place = named.schema_in([part.text for part in parts])
        name = None if place is None else names.get(parts[place].text.casefold())
        if place is None or name is None:
            continue
        made += text[end : parts[place].start] + quote_identifier(name)
        end = parts[place].end
    return made + text[end:]


def _dotted(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """The names of two or more parts, each as its parts."""
    index = 0
    while index < len(tokens):
        parts = []
        while tokens[index].kind in _NAMES:
            parts.append(tokens[index])
            if not tokens[index + 1].is_symbol("."):
                break
            index += 2
        index += 1
        if len(parts) > 1:
            yield parts
