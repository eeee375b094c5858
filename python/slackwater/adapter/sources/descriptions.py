"""What the catalog keeps of a source, as those who run it need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.adapter.catalog.model import CatalogItem
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig

DEFAULT_INTERVAL_MS = 1000
"""How often a source looks for more, where its definition does not say."""


def partitions(source: CatalogItem) -> int:
    """The number of partitions of a source."""
    return int(source.details["config"].get("partitions") or 1)


def files_config(settings: Mapping[str, Any]) -> FilesConfig:
    return FilesConfig(
        path=settings["path"],
        format=Format(
            kind=settings["kind"],
            header=settings["header"],
            delimiter=settings["delimiter"],
            null_text=settings["null_text"],
        ),
        pattern=settings["pattern"],
        on_error=settings["on_error"],
    )
