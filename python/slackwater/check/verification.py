"""Verifies an environment step by step, and tells each finding when it is known.

Files are listed first, then the metastore is read: so a file that a commit names meanwhile is no
leftover. Of each shard the state is read once more by itself, with its parts. A part whose file is
not as it should be is looked for on record again: if a merge has replaced it, it is no finding, and
the shard is verified anew. Nothing is held meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import DatabaseError

from slackwater.adapter.history import recorder
from slackwater.adapter.history.files import damage
from slackwater.adapter.history.levels import named
from slackwater.adapter.history.records import KINDS
from slackwater.adapter.system import dataflow_history, lag_history
from slackwater.check.contents import part_problem
from slackwater.check.files import broken_files, to_look_at, unnamed
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
_HISTORIES = (
    (recorder.FOLDER, KINDS),
    (lag_history.FOLDER, lag_history.KINDS),
    (dataflow_history.FOLDER, dataflow_history.KINDS),
)


@dataclass(frozen=True, slots=True)
class Environment:
    """What is verified. `log` is the file of the coordinator's log on this machine."""

    metastore: ReadOnlyMetastore
    blobs: Blobs
    log: Path


@dataclass(slots=True)
class Counts:
    """What has been verified: shards, their parts, updates, and bytes, of each file once."""

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

    def findings(self) -> Iterator[Finding]:
        """All findings. The last may be that something does not answer."""
        try:
            first = self._metastore()
            yield first
            if first.outcome != "FAIL":
                yield from self._all()
        except SlackwaterError as error:
            yield _refusal(error)
        except DatabaseError as error:
            text = f"the metastore is damaged: {first_line(str(error.orig))}"
            yield Finding("metastore", "FAIL", text, RESTORE)

    def _all(self) -> Iterator[Finding]:
        blobs = self.environment.blobs
        root = blobs.uri("shards")
        # Before the metastore: see above.
        files = tuple(blobs.list(root))
        found = self.environment.metastore.query(overview)
        yield from _told("leader", epoch_problems(found.environment))
        problems = catalog_problems(found.catalog, found.shards)
        yield from _told("catalog", problems)
        if not problems:
            yield Finding("catalog", "ok", f"{len(found.catalog.users)} objects")
        yield from self._shards(found, {blob.uri: blob.size_bytes for blob in files})
        if nameless := unowned(found.catalog, found.shards):
            text = f"{len(nameless)} shards of no object, removed later: {listed(nameless)}"
            yield Finding("leftovers", "ok", text)
        for text in unnamed(files, root, found.file_names).described():
            yield Finding("leftovers", "ok", text)
        yield from self._history()
        yield from self._log()

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
        done, total = 0, sum(found.parts.values())
        for shard_id in (*found.shards, *unknown):
            for finding in self._shard(shard_id, names.get(shard_id, f"shard {shard_id}"), sizes):
                failed = True
                yield finding
            done += found.parts.get(shard_id, 0)
            self.progressed(done, total)
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
        yield from _told("shards", [f"{name}: {each}" for each in shard_problems(shard)])
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
        for part in shard.parts:
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

    def _history(self) -> Iterator[Finding]:
        blobs = self.environment.blobs
        count, damaged = 0, []
        for folder, kinds in _HISTORIES:
            for blob in blobs.list(blobs.uri(folder)):
                # Others have been begun by a leader, and not ended.
                if named(blob.uri) is None:
                    continue
                count += 1
                if (reason := damage(blobs, blob.uri, kinds)) is not None:
                    damaged.append(f"{blob.uri} ({reason})")
        if damaged:
            text = f"files cannot be read: {listed(damaged)}"
            yield Finding("history", "warn", text, "they are ignored: what they had is not shown")
        else:
            yield Finding("history", "ok", f"{count} files")

    def _log(self) -> Iterator[Finding]:
        log = self.environment.log
        if not log.exists():
            return
        try:
            with log.open(encoding="utf-8") as lines:
                broken = sum(_is_broken(line) for line in lines if line.endswith("\n"))
        except (OSError, UnicodeDecodeError) as error:
            yield Finding("log", "warn", f"{log} cannot be read: {error}", "look at the file")
            return
        if broken:
            text = f"{log} has {broken} lines that are no JSON"
            yield Finding("log", "warn", text, "another program may have written them")
        else:
            yield Finding("log", "ok", str(log))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen of a shard's parts: those that are `broken`, by id, and negative rows."""

    broken: Mapping[int, str]
    negative: int = 0


def _refusal(error: SlackwaterError) -> Finding:
    """The finding that the metastore, or the store of the files, does not answer."""
    match error.condition:
        case "SLACKWATER_STORAGE_UNAVAILABLE":
            # Its text speaks of writing, which nobody wants to here.
            text = f"the location cannot be listed: {error.parameters['reason']}"
            return Finding("files", "FAIL", text)
        case "SLACKWATER_STORAGE_UNREADABLE":
            return Finding("files", "FAIL", first_line(error.message))
        case _:
            return Finding("metastore", "FAIL", " ".join(error.message.split()))


def _told(name: str, problems: Iterable[str]) -> Iterator[Finding]:
    return (Finding(name, "FAIL", problem, RESTORE) for problem in problems)


def _has_environment(conn: Connection) -> bool:
    return inspect(conn).has_table(environment.name)


def _integrity(conn: Connection, *, is_deep: bool) -> str:
    pragma = "integrity_check" if is_deep else "quick_check"
    return str(conn.exec_driver_sql(f"PRAGMA {pragma}(1)").scalar_one())


def _is_broken(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False
