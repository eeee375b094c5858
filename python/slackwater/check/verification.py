"""Verifies an environment step by step, and tells each finding when it is known.

Files are listed first, then the metastore is read: so a file that a commit names meanwhile is no
leftover. Of each shard the state is read once more by itself, with its parts. A part whose file is
not as it should be is looked for on record again: if a merge has replaced it, it is no finding, and
the shard is verified anew. Nothing is held meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DatabaseError

from slackwater.check.contents import part_problem
from slackwater.check.files import broken_files, to_look_at, unnamed
from slackwater.check.histories import history_finding, log_finding
from slackwater.check.objects import catalog_problems, epoch_problems, shard_names, unowned
from slackwater.check.shards import listed, present_parts, shard_problems
from slackwater.check.stored import Overview, look, overview
from slackwater.findings import Finding
from slackwater.persist.blobs import Blobs
from slackwater.persist.inspection import ShardRecord, missing_columns, on_record, shard_record
from slackwater.persist.metastore import check_version
from slackwater.persist.migrations import HISTORY
from slackwater.persist.parts import FileBody, InlineBody
from slackwater.persist.read_only import ReadOnlyMetastore
from slackwater.persist.reading import read_in_groups
from slackwater.persist.retractions import unmatched_retractions
from slackwater.persist.tables import environment
from slackwater.repr.errors import FatalError, SlackwaterError, first_line

ATTEMPTS = 3
"""So often a shard is verified whose parts are replaced meanwhile."""
RESTORE = "restore a backup: docs/user/tasks/back_up_and_recover.md"
_UNREADABLE = (FatalError, OSError, ValueError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment that is verified. `log` is the coordinator's log on this machine."""

    metastore: ReadOnlyMetastore
    blobs: Blobs
    log: Path


@dataclass(slots=True)
class Counts:
    """The numbers of what was verified. `rows` are updates; `bytes` has each file once."""

    shards: int = 0
    parts: int = 0
    rows: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Verification:
    """Verifies `environment`. `progressed` is told how many of all parts are done.

    `is_deep`: also the contents of each part are read.
    """

    environment: Environment
    is_deep: bool
    progressed: Callable[[int, int], None]
    counts: Counts = field(default_factory=Counts)
    _done: int = 0
    _total: int = 0

    def findings(self) -> Iterator[Finding]:
        """All findings. The last may be that something does not answer."""
        try:
            first = self._metastore()
            yield first
            if first.outcome != "FAIL":
                yield from self._all()
        except SlackwaterError as error:
            yield _refusal(error)
        except OSError as error:
            # Of a file of the metastore that has gone meanwhile.
            yield Finding("metastore", "FAIL", f"{error.filename}: {error.strerror}", RESTORE)
        except DatabaseError as error:
            text = f"the metastore is damaged: {first_line(str(error.orig))}"
            yield Finding("metastore", "FAIL", text, RESTORE)

    def _all(self) -> Iterator[Finding]:
        blobs = self.environment.blobs
        root = blobs.uri("shards")
        files = tuple(blobs.list(root))
        found = self.environment.metastore.query(overview)
        yield from _told(
            "leader", epoch_problems(found.environment), f"epoch {found.environment.epoch}"
        )
        yield from _told(
            "catalog",
            catalog_problems(found.catalog, found.shards),
            f"{len(found.catalog.users)} objects",
        )
        yield from self._shards(found, {blob.uri: blob.size_bytes for blob in files})
        if nameless := unowned(found.catalog, found.shards):
            text = f"{len(nameless)} shards of no object, removed later: {listed(nameless)}"
            yield Finding("leftovers", "ok", text)
        for text in unnamed(files, root, found.file_names).described():
            yield Finding("leftovers", "ok", text)
        yield history_finding(blobs)
        if (finding := log_finding(self.environment.log)) is not None:
            yield finding

    def _metastore(self) -> Finding:
        metastore = self.environment.metastore
        url = metastore.engine.url.render_as_string(hide_password=True)
        # SQLite alone can be asked for pages that contradict each other.
        if metastore.file is not None:
            found = metastore.query(partial(_integrity, is_deep=self.is_deep))
            if found != "ok":
                return Finding("metastore", "FAIL", f"{url} is damaged: {found}", RESTORE)
        if not metastore.query(_has_environment):
            text = f"{url} has no environment"
            return Finding("metastore", "FAIL", text, "check --location and --metastore")
        version = metastore.query(check_version)
        if version != HISTORY.head:
            text = f"{url} is of version {version}, not {HISTORY.head}"
            return Finding("metastore", "FAIL", text, "start an application, which upgrades it")
        if lacking := metastore.query(missing_columns):
            return Finding("metastore", "FAIL", f"{url} lacks {listed(lacking)}", RESTORE)
        return Finding("metastore", "ok", f"{url}, version {version}")

    def _shards(self, found: Overview, sizes: Mapping[str, int]) -> Iterator[Finding]:
        names = shard_names(found.catalog.users)
        unknown = [shard for shard in found.parts if shard not in found.shards]
        failed = bool(found.in_deletion)
        if failed:
            text = f"files of parts are being deleted: {listed(found.in_deletion)}"
            yield Finding("files", "FAIL", text, RESTORE)
        # Of a tombstone without parts nothing is left that could be damaged.
        known = [
            shard_id
            for shard_id, shard in found.shards.items()
            if shard_id in found.parts or not shard.is_tombstone
        ]
        self._total = sum(found.parts.values())
        for shard_id in (*known, *unknown):
            for finding in self._shard(shard_id, names.get(shard_id, f"shard {shard_id}"), sizes):
                failed = True
                yield finding
            self._done += found.parts.get(shard_id, 0)
            self.progressed(self._done, self._total)
        if not failed:
            read = "read" if self.is_deep else "there, not read (--deep does)"
            counts = self.counts
            yield Finding("shards", "ok", f"{counts.shards} shards, {counts.parts} parts, {read}")

    def _shard(self, shard_id: int, name: str, sizes: Mapping[str, int]) -> Iterator[Finding]:
        query = self.environment.metastore.query
        for _ in range(ATTEMPTS):
            shard = query(partial(shard_record, shard_id=shard_id))
            seen = self._seen(shard, sizes)
            kept = query(partial(on_record, part_ids=seen.broken)) if seen.broken else frozenset()
            if len(kept) == len(seen.broken):
                break
        else:
            text = f"{name}: its parts are replaced while they are read"
            yield Finding("contents", "warn", text, "run this again when less is written")
        self._count(shard)
        for problem in shard_problems(shard):
            yield Finding("shards", "FAIL", f"{name}: {problem}", RESTORE)
        real = [problem for part_id, problem in seen.broken.items() if part_id in kept]
        if real:
            yield Finding("files", "FAIL", f"{name}: {listed(dict.fromkeys(real))}", RESTORE)
        if seen.negative:
            text = f"{name}: {seen.negative} rows are there less than zero times"
            yield Finding("contents", "FAIL", text, RESTORE)

    def _seen(self, shard: ShardRecord, sizes: Mapping[str, int]) -> _Seen:
        blobs = self.environment.blobs
        suspects = to_look_at(shard.parts, sizes)
        uris = {part.body.uri for part in suspects if isinstance(part.body, FileBody)}
        broken = dict(broken_files(suspects, {uri: look(blobs, uri) for uri in uris}))
        if not self.is_deep or shard.state is None:
            return _Seen(broken)
        desc = shard.state.desc
        for number, part in enumerate(shard.parts):
            self.progressed(self._done + number, self._total)
            if part.part_id not in broken:
                try:
                    problem = part_problem(part, read_in_groups(part, desc, blobs=blobs))
                except _UNREADABLE as error:
                    problem = f"part {part.part_id}: {first_line(str(error))}"
                if problem is not None:
                    broken[part.part_id] = problem
        if broken:
            return _Seen(broken)
        present = present_parts(shard)
        retracting = [part for part in present if part.has_retractions]
        others = [part for part in present if not part.has_retractions]
        try:
            return _Seen({}, unmatched_retractions(others, retracting, desc, blobs))
        except FatalError as error:
            # Each file was there a moment ago: which one has gone does not matter.
            return _Seen({part.part_id: first_line(str(error)) for part in present})

    def _count(self, shard: ShardRecord) -> None:
        inline = (part.body.size_bytes for part in shard.parts if isinstance(part.body, InlineBody))
        self.counts.shards += 1
        self.counts.parts += len(shard.parts)
        self.counts.rows += sum(part.rows for part in shard.parts)
        self.counts.bytes += sum(inline) + sum(shard.files.values())


@dataclass(frozen=True, slots=True)
class _Seen:
    """A look at a shard's parts: those that are `broken`, by id, and how many rows are negative."""

    broken: Mapping[int, str]
    negative: int = 0


def _refusal(error: SlackwaterError) -> Finding:
    """The finding that the metastore, or the store of the files, does not answer."""
    match error.condition:
        case "SLACKWATER_STORAGE_UNREADABLE":
            return Finding("files", "FAIL", first_line(error.message))
        case _:
            return Finding("metastore", "FAIL", error.message)


def _told(name: str, problems: Collection[str], sound: str) -> Iterator[Finding]:
    """The problems; without one, that all is in order, with the text `sound`."""
    for problem in problems:
        yield Finding(name, "FAIL", problem, RESTORE)
    if not problems:
        yield Finding(name, "ok", sound)


def _has_environment(conn: Connection) -> bool:
    return inspect(conn).has_table(environment.name)


def _integrity(conn: Connection, *, is_deep: bool) -> str:
    pragma = "integrity_check" if is_deep else "quick_check"
    return str(conn.exec_driver_sql(f"PRAGMA {pragma}(1)").scalar_one())
