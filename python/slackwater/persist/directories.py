"""Where the files of a shard are."""

from __future__ import annotations

import re

from slackwater.persist.blobs import Blobs
from slackwater.persist.garbage import STAGING_PREFIX

_WRITE_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


def shard_directory(blobs: Blobs, shard_id: int) -> str:
    """See `PersistClient.shard_directory`."""
    return blobs.uri("shards", str(shard_id))


def staging_directory(blobs: Blobs, shard_id: int, write_id: str) -> str:
    """See `PersistClient.staging_directory`."""
    if _WRITE_ID.fullmatch(write_id) is None:
        raise ValueError(f"{write_id!r} cannot be the id of a write")
    return blobs.uri("shards", str(shard_id), f"{STAGING_PREFIX}{write_id}")
