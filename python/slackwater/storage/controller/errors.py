"""Errors of the controller that a caller in this program can act on. Source: spec 2.4.

A violation of the protocol itself, where the original would panic, is a `FatalError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from slackwater.repr.ids import GlobalId


class Variant(Enum):
    """The reasons of refusals (spec 2.4)."""

    COLLECTION_ID_REUSED = "the id has another description"
    SINK_ID_REUSED = "the id is that of another sink"
    IDENTIFIER_MISSING = "there is no such collection"
    IDENTIFIER_INVALID = "the object is of another kind"
    UPDATE_BEYOND_UPPER = "an update is not before the new upper"
    READ_BEFORE_SINCE = "its history begins later"
    INVALID_UPPERS = "the upper is another one"
    INGESTION_INSTANCE_MISSING = "its ingestion runs on an instance that does not exist"
    EXPORT_INSTANCE_MISSING = "it runs on an instance that does not exist"
    INVALID_USAGE = "the call does not fit its token"
    SHARD_ALREADY_IN_USE = "its shard belongs to another object"


class StorageError(Exception):
    """A refused operation; nothing was changed.

    `variant` says why, `ids` which objects are concerned. Users see it only where the adapter
    turns it into a condition of the catalogue.
    """

    def __init__(self, variant: Variant, ids: Iterable[GlobalId], details: str = "") -> None:
        self.variant = variant
        self.ids = tuple(ids)
        named = ", ".join(self.ids)
        super().__init__(f"{named}: {variant.value}" + (f" ({details})" if details else ""))
