"""The files of shards: where they are, and updates as parts of a shard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.persist import blobs
from slackwater.persist.blobs import INLINE_LIMIT_BYTES, Blobs
from slackwater.persist.garbage import STAGING_PREFIX
from slackwater.persist.parts import FileBody, NewPart

_WRITE_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(slots=True)
class ShardFiles:
    """The files of an environment's shards, in `blobs`. Thread-safe.

    Updates up to `inline_bytes`, which may change at any time, become inline parts.
    """

    blobs: Blobs
    inline_bytes: int = INLINE_LIMIT_BYTES

    def shard_directory(self, shard_id: int) -> str:
        """The URI of the directory of the shard's files. It need not exist yet."""
        return self.blobs.uri("shards", str(shard_id))

    def staging_directory(self, shard_id: int, write_id: str) -> str:
        """The URI of a directory for the files of one write. Registered files stay there.

        Raises ValueError for a write id that is no plain name.
        """
        if _WRITE_ID.fullmatch(write_id) is None:
            raise ValueError(f"{write_id!r} cannot be the id of a write")
        return self.blobs.uri("shards", str(shard_id), f"{STAGING_PREFIX}{write_id}")

    def new_parts(self, shard_id: int, updates: pa.Table) -> tuple[NewPart, ...]:
        """The updates as parts of the shard: one inline, or a file if large; none for no rows.

        Raises what `blobs.file_part` raises.
        """
        directory = self.shard_directory(shard_id)
        return blobs.new_parts(self.blobs, updates, directory, self.inline_bytes)

    def discard(self, news: Sequence[NewPart]) -> None:
        """Deletes the files of parts that were made and will not be committed."""
        for new in news:
            if isinstance(new.body, FileBody):
                self.blobs.delete(new.body.uri)
