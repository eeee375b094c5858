"""Qualified names, and what they mean in a session.

Source: surface 3. Names resolve as Spark resolves them; case is kept, comparing it is the
catalog's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slackwater.repr.errors import user_error
from slackwater.repr.relation import quote_identifier

CATALOG = "slackwater"
DEFAULT_SCHEMA = "default"
_SESSION_CATALOG = "spark_catalog"


@dataclass(frozen=True, slots=True)
class QualifiedName:
    """A name as it was written: one to three parts, unquoted, case kept."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)

    @property
    def sql(self) -> str:
        """The name with every part quoted."""
        return ".".join(quote_identifier(part) for part in self.parts)

    @property
    def last(self) -> str:
        return self.parts[-1]


def is_elsewhere(name: QualifiedName, catalog: str) -> bool:
    """Whether `name` means an object of another catalog, `catalog` being the session's current."""
    return _catalog_of(name.parts, catalog) != CATALOG


def _catalog_of(parts: Sequence[str], catalog: str) -> str:
    if len(parts) >= 3:
        return parts[0]
    if len(parts) == 2 and parts[0] in (CATALOG, _SESSION_CATALOG, catalog):
        return parts[0]
    return catalog


def resolve(
    name: QualifiedName, catalog: str, namespace: Sequence[str], *, statement: str = "The statement"
) -> tuple[str, str]:
    """Schema and object that `name` means in a session at `catalog` and `namespace`.

    A name of one part is in the current namespace; the namespace of the catalog itself is the
    schema ``default``. `statement` names the statement in errors. Raises
    SLACKWATER_WRONG_CATALOG when the name is in another catalog, and
    SLACKWATER_SCHEMA_NOT_FOUND for nested schemas, which the catalog does not have.
    """
    actual = _catalog_of(name.parts, catalog)
    if actual != CATALOG:
        inside = name.parts[1:] if name.parts[0] == actual else name.parts
        raise user_error(
            "SLACKWATER_WRONG_CATALOG",
            statement=statement,
            objectName=".".join(part for part in inside if part),
            catalogName=actual,
        )
    qualified = len(name.parts) >= 3 or (len(name.parts) == 2 and name.parts[0] == CATALOG)
    own = name.parts[1:] if qualified else name.parts
    schema = own[:-1]
    if not schema and not qualified:
        schema = tuple(namespace)
    if len(schema) > 1:
        raise user_error("SLACKWATER_SCHEMA_NOT_FOUND", schemaName=".".join(schema))
    return (schema[0] if schema else DEFAULT_SCHEMA), own[-1]


def resolve_schema(name: QualifiedName, catalog: str, *, statement: str = "The statement") -> str:
    """The schema that `name` means as the name of a schema. Raises as `resolve` does."""
    return resolve(QualifiedName((*name.parts, "")), catalog, (), statement=statement)[0]
