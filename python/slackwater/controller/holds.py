"""Read holds: tokens with an identity that keep collections readable. Source: spec 1.6, trap 7."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId


class HoldKind(Enum):
    """The purpose of a hold."""

    STATEMENT = "statement"
    TRANSACTION = "transaction"
    SUBSCRIPTION = "subscription"
    SNAPSHOT = "snapshot"
    DEFINITION = "definition"
    VIEW = "view"
    INDEX = "index"
    SINK = "sink"
    INGESTION = "ingestion"


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of a hold: the session, or the object, that `name` says."""

    kind: HoldKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name}"


@dataclass(frozen=True, slots=True)
class ReadHold:
    """A token: `ids` stay readable at and after `since` until it is released.

    It names the hold and says where it was when this value was made; the controller knows where it
    is. Releasing a token twice has no effect on any other.
    """

    hold_id: int
    ids: frozenset[GlobalId]
    since: Timestamp
    holder: Holder
