"""The storage controller over the shards of a client, without a catalog."""

from __future__ import annotations

from slackwater.adapter.controllers.persist_shards import PersistShardStore
from slackwater.adapter.controllers.storage_log import StorageLog
from slackwater.persist.client import PersistClient
from slackwater.repr.frontier import Frontier
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    Table,
)
from slackwater.storage.controller.shell import Storage


def storage_of(client: PersistClient) -> Storage:
    """A controller that knows no collection yet."""
    core = StorageController(DurableState(), Frontier(client.reads.tables_upper()))
    return Storage(core, PersistShardStore(client), lambda: 0, lambda command: None)


def tables_of(client: PersistClient, storage: Storage, *shard_ids: int) -> StorageLog:
    """The log of these tables, each of which is the collection ``u<shard>``."""
    storage.create(
        [
            (
                f"u{shard_id}",
                CollectionDescription(Table()),
                CollectionMetadata(
                    shard_id,
                    Frontier(client.reads.state(shard_id).since),
                    Frontier(client.reads.tables_upper()),
                    shares_tables_upper=True,
                ),
            )
            for shard_id in shard_ids
        ],
        (),
    )
    return StorageLog(storage, client)
