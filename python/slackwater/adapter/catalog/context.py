"""The context of a statement: the meaning of its names, and its user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.planner.parser.names import QualifiedName, resolve


@dataclass(frozen=True, slots=True)
class Context:
    """The current catalog and namespace of the Spark session of a statement, and its user.

    `settings` are Spark's settings that can change the result of a query, for statements that need
    them; a definition keeps them. `functions` are temporary functions of the session that the
    statement may call, as the shim describes them.
    """

    catalog: str = "slackwater"
    namespace: tuple[str, ...] = ("default",)
    user: str = "anonymous"
    settings: Mapping[str, str] | None = None
    functions: tuple[Mapping[str, Any], ...] = ()

    def resolve(self, name: QualifiedName) -> tuple[str, str]:
        """The schema and the object that `name` means here. Raises what `names.resolve` does."""
        return resolve(name, self.catalog, self.namespace)
