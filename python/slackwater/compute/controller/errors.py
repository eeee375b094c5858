"""Errors of the compute controller that a caller can act on. Source: spec controllers 4.13.

A violation of the protocol itself, where the original would panic, is a `FatalError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Variant(Enum):
    """The reasons of refusals (spec 4.13)."""

    INSTANCE_MISSING = "there is no such instance"
    INSTANCE_EXISTS = "there is such an instance already"
    REPLICA_MISSING = "there is no such replica"
    REPLICA_EXISTS = "there is such a replica already"
    COLLECTION_MISSING = "there is no such collection"
    COLLECTION_ID_REUSED = "the id is that of another collection"
    MISSING_AS_OF = "the dataflow has no as-of"
    SINCE_VIOLATION = "its history begins later"
    EMPTY_AS_OF_FOR_SUBSCRIBE = "a subscription has nothing to give from the empty frontier on"
    EMPTY_AS_OF_FOR_COPY_TO = "a copy has nothing to write at the empty frontier"
    READ_HOLD_MISSING = "the hold was released"
    READ_HOLD_ID_MISMATCH = "the hold is on other collections"
    READ_HOLD_INSUFFICIENT = "the hold begins later"
    WRITE_ONLY_COLLECTION = "it cannot be read from a replica"
    HYDRATION_CHECK_BAD_TARGET = "none of the replicas exists"


class ComputeError(Exception):
    """A refused operation; nothing was changed.

    `variant` says why, `names` which instances, replicas or collections are concerned.
    """

    def __init__(self, variant: Variant, names: Iterable[str], details: str = "") -> None:
        self.variant = variant
        self.names = tuple(names)
        named = ", ".join(self.names)
        super().__init__(f"{named}: {variant.value}" + (f" ({details})" if details else ""))
