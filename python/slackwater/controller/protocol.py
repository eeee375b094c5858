"""The part of the protocol with replicas that every controller has, whatever replicas run.

Source: spec controllers 2.3, 2.7.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId

Parameters = tuple[tuple[str, str], ...]
"""Configuration as sorted pairs of name and value."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A connection begins; `nonce` tells it from earlier ones of the same replica."""

    nonce: int


@dataclass(frozen=True, slots=True)
class UpdateConfiguration:
    """Sets these parameters and leaves the others as they are."""

    parameters: Parameters


@dataclass(frozen=True, slots=True)
class InitializationComplete:
    """Ends the first commands: the replica drops what was not among them."""


@dataclass(frozen=True, slots=True)
class AllowCompaction:
    """Times before `since` are not needed any more; the empty frontier ends the object."""

    id: GlobalId
    since: Frontier


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica, by its name and that of its instance."""

    instance: str
    replica: str


@dataclass(frozen=True, slots=True)
class FrontierUppers:
    """The collections and sinks have been written up to here."""

    uppers: tuple[tuple[GlobalId, Frontier], ...]


@dataclass(frozen=True, slots=True)
class DroppedIds:
    """The replica does not work on these any more and will not speak of them again."""

    replica: ReplicaKey
    ids: tuple[GlobalId, ...]


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """The status of an object: "running", "stalled", ..."""

    id: GlobalId
    status: str
    error: str | None = None
