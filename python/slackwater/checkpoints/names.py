"""Names of groups and partitions. Source: spec checkpoint 2.1, 2.2."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slackwater.persist.tables import GROUP_NAME_LENGTH

_PART = re.compile(r'([^".]+|"(?:[^"]|"")+")(\.|\Z)')
_DEEPEST = 2

Schema = tuple[str, ...]
"""The parts of a schema's name, from the database on if that is named."""


@dataclass(frozen=True, slots=True)
class TableGroup:
    """Tables whose checkpoints are one.

    `name` identifies the group, whatever its case; `schema` and `tables` are for the user's own
    use.
    """

    name: str
    schema: Schema = ()
    tables: tuple[str, ...] = ()


def canonical(name: str) -> str:
    """The form in which names are compared and kept: lower case.

    CockroachDB Replicator keeps declared partitions as they are given and looks for lower case, so
    that one with a capital letter holds its group back for ever. Raises ValueError for an empty
    name, one of more than 255 characters, and one with a NUL.
    """
    lowered = name.lower()
    if not lowered or len(lowered) > GROUP_NAME_LENGTH or "\0" in lowered:
        raise ValueError(
            f"{name[:50]!r} is no name of a group or partition: it needs 1 to {GROUP_NAME_LENGTH} "
            "characters, none of them NUL"
        )
    return lowered


def schema_of(group: str) -> Schema:
    """The parts of a dotted name, of which each may be in double quotes.

    Raises ValueError when it is no name of a schema.
    """
    parts: list[str] = []
    at, more = 0, True
    while more:
        found = _PART.match(group, at)
        if found is None or len(parts) == _DEEPEST:
            raise ValueError(f"the group {group!r} is not named like a schema: schema or db.schema")
        text = found[1]
        parts.append(text[1:-1].replace('""', '"') if text[0] == '"' else text)
        at, more = found.end(), found[2] == "."
    return tuple(parts)
