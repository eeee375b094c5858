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

    catalog: str = "slackwater"
    namespace: tuple[str, ...] = ("default",)
    user: str = "anonymous"
    settings: Mapping[str, str] | None = None
    functions: tuple[Mapping[str, Any], ...] = ()
