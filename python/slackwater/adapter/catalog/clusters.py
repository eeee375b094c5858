"""Clusters and their replicas, as the catalog has them. Source: spec coordinator 4.2, 5.4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cattrs import Converter

from slackwater.planner.parser.variables import CLUSTER
from slackwater.repr.errors import FatalError, user_error
from slackwater.repr.ids import GlobalId, user_id

SIZES: Mapping[str, int] = {
    f"{number}cc": number for number in (25, 50, 100, 200, 300, 400, 600, 800, 1200, 1600, 3200)
}
"""The sizes of replicas with their weights: what replicas share, each gets by its weight."""

DEFAULT_SIZE = "100cc"


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """A replica, which computes all that its cluster has."""

    id: GlobalId
    name: str
    size: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A cluster. With a `size` it is managed: its replicas have that size and names of ours.

    `on_refresh_ms` None: it has the replicas that statements say. Else it has one from so many
    milliseconds before a refresh of a view on it until that is made, and none at other times.
    """

    id: GlobalId
    name: str
    size: str | None
    replicas: tuple[ReplicaEntry, ...]
    owner: str = ""
    comment: str | None = None
    on_refresh_ms: int | None = None

    @property
    def is_managed(self) -> bool:
        return self.size is not None

    def replica(self, name: str) -> ReplicaEntry | None:
        """The replica of that name, in any case."""
        wanted = name.casefold()
        return next((r for r in self.replicas if r.name.casefold() == wanted), None)

    def validate(self) -> None:
        """Raises FatalError when its replicas contradict each other or the cluster."""
        names = {replica.name.casefold() for replica in self.replicas}
        ids = {replica.id for replica in self.replicas}
        if len(names) < len(self.replicas) or len(ids) < len(self.replicas):
            raise FatalError(f"two replicas of the cluster {self.name} are one")
        sizes = {replica.size for replica in self.replicas}
        if sizes - SIZES.keys() or (self.is_managed and sizes - {self.size}):
            raise FatalError(f"the cluster {self.name} has replicas of the sizes {sorted(sizes)}")
        if self.on_refresh_ms is not None and not (self.is_managed and len(self.replicas) <= 1):
            raise FatalError(f"the cluster {self.name} has a schedule, and is not managed by it")

    def to_json(self) -> str:
        """The form in the metastore."""
        return json.dumps(_converter.unstructure(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> ClusterEntry:
        """The cluster that `to_json` wrote."""
        return _converter.structure(json.loads(text), ClusterEntry)


_converter = Converter(detailed_validation=False)

DEFAULT_CLUSTER = ClusterEntry(
    user_id(1), CLUSTER, DEFAULT_SIZE, (ReplicaEntry(user_id(1), "r1", DEFAULT_SIZE),)
)
"""The cluster that an environment begins with."""


def checked_size(size: str) -> str:
    """The size as it is kept. Raises SLACKWATER_UNKNOWN_CLUSTER_SIZE."""
    found = size.strip().lower()
    if found not in SIZES:
        raise user_error("SLACKWATER_UNKNOWN_CLUSTER_SIZE", size=size, sizes=", ".join(SIZES))
    return found
