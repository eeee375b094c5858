"""The files of shards: where they are, and updates as parts of a shard."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from slackwater.persist import blobs
from slackwater.persist.blobs import Blobs
from slackwater.persist.garbage import STAGING_PREFIX
from slackwater.persist.parts import FileBody, NewPart

_WRITE_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ShardFiles:
    """The files of an environment's shards, in `blobs`. Thread-safe."""

    blobs: Blobs

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
        """The updates as parts of the shard: inline up to 2 MB, else a file; none for no rows.

        Raises what `blobs.file_part` raises.
        """
        return blobs.new_parts(self.blobs, updates, self.shard_directory(shard_id))

    def discard(self, news: Sequence[NewPart]) -> None:
        """Deletes the files of parts that were made and will not be committed."""
        for new in news:
            if isinstance(new.body, FileBody):
                self.blobs.delete(new.body.uri)
