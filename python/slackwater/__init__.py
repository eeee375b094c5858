"""Slackwater: consistent, incrementally maintained collections for Apache Spark.

`configure` adds Slackwater to a `SparkSession.builder`; `subscribe` follows a relation's changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slackwater.repr.version import VERSION

if TYPE_CHECKING:
    from slackwater.spark.session import configure
    from slackwater.spark.subscribe import subscribe

__version__ = VERSION
__all__ = ["__version__", "configure", "subscribe"]


def __getattr__(name: str) -> Any:
    """Loads the public functions on first use: the coordinator's process needs neither."""
    if name == "configure":
        from slackwater.spark.session import configure

        return configure
    if name == "subscribe":
        from slackwater.spark.subscribe import subscribe

        return subscribe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
