"""A query as a tree that both engines' texts are made of, and that can be made smaller."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

_MARK = re.compile(r"«([^«»]*)¦([^«»]*)»")
_SOURCE = re.compile(r"@(\d+)")
_NAME = re.compile(r"[tv]\d+")


def both(spark: str, duck: str) -> str:
    """What is one thing in Spark's words, and in DuckDB's."""
    return f"«{spark}¦{duck}»"


@dataclass(frozen=True, slots=True)
class Query:
    """The name of a relation, or a query with the columns `columns`, which have these kinds.

    In its `text`, `items` and `where` stand ``@0`` and so on for `sources`, in its text ``@items``
    and ``@where`` for the others.
    """

    text: str
    columns: Mapping[str, str]
    sources: tuple[Query, ...] = ()
    items: tuple[str, ...] = ()
    where: tuple[str, ...] = ()

    def in_spark(self) -> str:
        return self._spelled(1)

    def in_duck(self) -> str:
        return self._spelled(2)

    def _spelled(self, engine: int) -> str:
        where = f" WHERE {' AND '.join(f'({each})' for each in self.where)}" if self.where else ""
        text = self.text.replace("@items", ", ".join(self.items)).replace("@where", where)
        count = 1
        while count:
            text, count = _MARK.subn(lambda found: found[engine], text)
        return _SOURCE.sub(lambda found: self.sources[int(found[1])]._relation(engine), text)

    def _relation(self, engine: int) -> str:
        text = self._spelled(engine)
        return text if _NAME.fullmatch(text) else f"({text})"


def smaller(query: Query) -> Iterator[Query]:
    """Queries with less in them; some of them mean nothing. The smallest come first."""
    yield from query.sources
    for i, source in enumerate(query.sources):
        for other in smaller(source):
            yield replace(query, sources=_with(query.sources, i, other))
    for i in range(len(query.where)):
        yield replace(query, where=_without(query.where, i))
    if len(query.items) > 1:
        for i in range(len(query.items)):
            yield replace(query, items=_without(query.items, i))


def _with(values: tuple, place: int, value: object) -> tuple:
    return (*values[:place], value, *values[place + 1 :])


def _without(values: tuple, place: int) -> tuple:
    return (*values[:place], *values[place + 1 :])
