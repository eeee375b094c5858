"""Properties of sources that their ingestions need."""

from __future__ import annotations

from slackwater.adapter.catalog.details import GeneratorDetails, KafkaDetails
from slackwater.adapter.catalog.model import CatalogItem
from slackwater.storage.key_value import KeyValueConfig

DEFAULT_INTERVAL_MS = 1000
"""The interval at which a source looks for more, where its definition has none."""


def partitions(source: CatalogItem) -> int | None:
    """The number of partitions of a source; None: it may have more later."""
    match source.details:
        case KafkaDetails():
            return None
        case GeneratorDetails(config=KeyValueConfig(partitions=count)):
            return count
        case _:
            return 1
