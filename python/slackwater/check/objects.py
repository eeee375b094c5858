"""Whether the catalog holds together with itself and with the shards. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, shards_of
from slackwater.check.shards import listed
from slackwater.persist.inspection import EnvironmentRecord, ShardOutline
from slackwater.repr.errors import FatalError
from slackwater.repr.ids import is_user

_STORED = (ItemKind.TABLE, ItemKind.MATERIALIZED_VIEW)
"""The kinds of objects that always have contents of their own."""


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """The catalog with the system's objects, as far as it decodes.

    `undecodable` has for each entry that does not what it is, and why. `next_id` is the number of
    the next object; `secrets` are the ids of secrets with a value.
    """

    state: CatalogState
    undecodable: tuple[str, ...]
    next_id: int
    secrets: frozenset[str]

    @property
    def users(self) -> tuple[CatalogItem, ...]:
        """The objects of users."""
        return tuple(item for item in self.state.items.values() if is_user(item.id))


def catalog_problems(catalog: StoredCatalog, shards: Mapping[int, ShardOutline]) -> tuple[str, ...]:
    """All that is wrong with the catalog; nothing for a sound one."""
    return (*catalog.undecodable, *_of_names(catalog), *_of_shards(catalog, shards))


def _of_names(catalog: StoredCatalog) -> Iterator[str]:
    try:
        catalog.state.validate()
    except FatalError as error:
        yield str(error)
    for item in catalog.users:
        if int(item.id[1:]) >= catalog.next_id:
            yield f"{item.full_name} has the id {item.id}, which is still to be given"
        if item.kind is ItemKind.SECRET and item.id not in catalog.secrets:
            yield f"{item.full_name} is a secret without a value"


def _of_shards(catalog: StoredCatalog, shards: Mapping[int, ShardOutline]) -> Iterator[str]:
    owners: dict[int, str] = {}
    for item in catalog.users:
        if item.kind in _STORED and item.shard_id is None:
            yield f"{item.full_name} has no shard"
        for shard_id in shards_of(item):
            found = shards.get(shard_id)
            if found is None or found.is_dropped:
                state = "does not exist" if found is None else "was dropped"
                yield f"{item.full_name} needs shard {shard_id}, which {state}"
            elif shard_id == item.shard_id and found.desc and not item.has_types_of(found.desc):
                yield f"{item.full_name} has other types than its shard {shard_id}"
            if shard_id in owners:
                yield f"{item.full_name} and {owners[shard_id]} have one shard, {shard_id}"
            owners[shard_id] = item.full_name


def shard_names(items: Collection[CatalogItem]) -> Mapping[int, str]:
    """For each shard of the objects what it has, as text."""
    names = {}
    for item in items:
        kinds = (
            (item.shard_id, ""),
            (item.errors_shard, "errors of "),
            (item.progress_shard, "progress of "),
        )
        for shard_id, what in kinds:
            if shard_id is not None:
                names[shard_id] = f"shard {shard_id} ({what}{item.full_name})"
    return names


def unowned(catalog: StoredCatalog, shards: Mapping[int, ShardOutline]) -> tuple[int, ...]:
    """The shards that no object has, and that were not dropped: the next leader does so."""
    owned = {shard_id for item in catalog.users for shard_id in shards_of(item)}
    return tuple(
        shard_id
        for shard_id, shard in shards.items()
        if shard_id not in owned and not shard.is_dropped
    )


def epoch_problems(environment: EnvironmentRecord) -> tuple[str, ...]:
    """All that is wrong with who leads; nothing for a sound environment."""
    epoch = environment.epoch
    found = []
    later = sorted(each for each in environment.leaders | environment.leased if each > epoch)
    if later:
        found.append(f"the epoch is {epoch}, and leaders have had {listed(later)}")
    if epoch and epoch not in environment.leaders:
        found.append(f"nobody is on record as the leader of epoch {epoch}")
    return tuple(found)
