"""Where a statement runs: what its names mean, and for whom it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Context:
    """Where a statement runs: the Spark session's current catalog and namespace, and its user.

    `settings` are those of Spark's that can change the result of a query, where the statement is
    one that needs them; a definition keeps them. `functions` are temporary functions of the session
    that the statement may call, as the shim describes them.
    """

    catalog: str
    namespace: tuple[str, ...]
    user: str
    settings: Mapping[str, str] | None = None
    functions: tuple[Mapping[str, Any], ...] = ()

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> Context:
        given = body.get("context") or {}
        return Context(
            catalog=given.get("catalog") or "slackwater",
            namespace=tuple(given.get("namespace") or ("default",)),
            user=given.get("user") or "anonymous",
            settings=given.get("settings"),
            functions=tuple(given.get("functions") or ()),
        )
