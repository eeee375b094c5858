"""What must be done to shards that no object claims after a restart. Source: spec M27, 2.6, I27."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.descriptions import DurableState
from slackwater.storage.controller.effects import (
    DeleteExport,
    DeleteMappings,
    Effect,
    RegisterFinalization,
    UnregisterFinalization,
)


def reconcile(
    durable: DurableState, catalog_ids: Iterable[GlobalId]
) -> tuple[tuple[Effect, ...], DurableState]:
    """The effects, in order, and the durable state after all of them.

    A mapping of an id that the catalog does not know is leaked: its shard is registered for
    finalization before the mapping goes, so a crash in between is seen again. A registered shard
    that is in use is not to be finalized. A shard that nobody claims is registered. Doing it again
    has no effects.
    """
    known = frozenset(catalog_ids)
    leaked = sorted(shard for shard, owner in durable.mappings.items() if owner not in known)
    kept = {shard: owner for shard, owner in durable.mappings.items() if owner in known}
    in_use = sorted(durable.unfinalized & kept.keys())
    lost = sorted({*leaked, *durable.unclaimed} - durable.unfinalized - kept.keys())
    forgotten = sorted(durable.exports.keys() - known)
    effects: list[Effect] = []
    if lost:
        effects.append(RegisterFinalization(tuple(lost)))
    if leaked:
        effects.append(DeleteMappings(tuple(leaked)))
    if in_use:
        effects.append(UnregisterFinalization(tuple(in_use)))
    effects += [DeleteExport(each) for each in forgotten]
    after = replace(
        durable,
        mappings=kept,
        unfinalized=(durable.unfinalized | set(lost)) - set(in_use),
        unclaimed=frozenset(),
        exports={key: value for key, value in durable.exports.items() if key in known},
    )
    return tuple(effects), after
