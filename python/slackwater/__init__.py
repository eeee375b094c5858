"""Slackwater: consistent, incrementally maintained collections for Apache Spark.

`configure` adds Slackwater to a `SparkSession.builder`; `subscribe` follows a relation's changes;
`notices` has the notices of a session, which are warnings as well.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slackwater.repr.version import VERSION

if TYPE_CHECKING:
    from slackwater.spark.notices import Notice, SlackwaterNotice, notices, warn_of_notices
    from slackwater.spark.session import configure
    from slackwater.spark.subscribe import subscribe

__version__ = VERSION
__all__ = [
    "Notice",
    "SlackwaterNotice",
    "__version__",
    "configure",
    "notices",
    "subscribe",
    "warn_of_notices",
]
_HOMES = {
    "Notice": "notices",
    "SlackwaterNotice": "notices",
    "configure": "session",
    "notices": "notices",
    "subscribe": "subscribe",
    "warn_of_notices": "notices",
}


def __getattr__(name: str) -> Any:
    """Loads what is public on first use: the coordinator's process needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"slackwater.spark.{_HOMES[name]}"), name)
