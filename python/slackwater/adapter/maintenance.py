"""Maintenance: the thread that keeps shards small and removes files that nobody needs.

Each turn does a bounded amount of work, beside the writers: it renews the leader's reader lease,
finalizes dropped shards, merges parts (and moves the durable since of a shard only when that pays),
deletes garbage, and looks for files of writers and of leaders that crashed. All of it may stop at
any point and goes on with the next turn, or with the next leader. Source: spec controllers 2.6, 3.5
to 3.9.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import structlog
from sqlalchemy import Connection, func, select

from slackwater.adapter.catalog.model import CatalogItem, shards_of
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.compute.controller.shell import Compute
from slackwater.persist import garbage, holds
from slackwater.persist.blobs import Blob
from slackwater.persist.client import UnknownShard
from slackwater.persist.compaction import (
    CompactionSettings,
    Compactor,
    Merge,
    Rewriter,
    choose,
    is_large,
)
from slackwater.persist.garbage import LEASE_MS, ORPHAN_AGE_MS, GarbageFile
from slackwater.persist.leadership import Fenced
from slackwater.persist.tables import parts as parts_table
from slackwater.planner.parser.parameters import milliseconds, size_bytes
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.storage.controller.errors import StorageError

_log = structlog.get_logger("maintenance")


@dataclass(frozen=True, slots=True)
class MaintenanceSettings:
    """The limits of a turn, and the intervals between its works.

    `revisit_ms`: after so long, a shard whose parts cannot be merged yet is looked at again.
    `search_ms`: the interval at which the location is searched for files that nobody names.
    """

    interval_ms: int = 5_000
    shards_per_turn: int = 64
    merges_per_turn: int = 16
    large_merges_per_turn: int = 1
    finalized_per_turn: int = 10
    files_per_turn: int = 200
    listed_per_turn: int = 1_000
    revisit_ms: int = 30_000
    search_ms: int = 6 * 3600 * 1000
    lease_ms: int = LEASE_MS
    orphan_age_ms: int = ORPHAN_AGE_MS
    ddl_wait_ms: int = 1_000
    compaction: CompactionSettings = field(default_factory=CompactionSettings)


@dataclass(slots=True)
class _Search:
    """The search for orphans, which goes on from turn to turn."""

    listed: Iterator[Blob] | None = None
    next_ms: int = 0


@dataclass(slots=True)
class _Agenda:
    """The times at which shards are to be looked at."""

    due_ms: dict[int, int] = field(default_factory=dict)

    def add(self, shard_ids: Iterable[int], at_ms: int) -> None:
        for shard_id in shard_ids:
            self.due_ms[shard_id] = min(at_ms, self.due_ms.get(shard_id, at_ms))

    def take(self, now_ms: int, count: int) -> list[int]:
        """Takes the shards that are due off the agenda, at most `count`, the oldest first."""
        due = sorted((at, shard) for shard, at in self.due_ms.items() if at <= now_ms)
        taken = [shard for _, shard in due[:count]]
        for shard in taken:
            del self.due_ms[shard]
        return taken


@dataclass(slots=True)
class _Left:
    """The numbers of merges that this turn may still do."""

    merges: int
    large: int

    def take(self, is_large: bool) -> bool:
        if not self.merges or (is_large and not self.large):
            return False
        self.merges -= 1
        self.large -= is_large
        return True


class Maintenance:
    """Runs turns in a thread of its own between `start` and `stop`.

    `rewriter` does the merges that are too large for this process. `on_fatal` is called once, when
    another application leads or an invariant is broken; after any other error, which is logged, the
    work is tried again. `clock_ms` never goes back and is that of the storage controller's holds.
    """

    def __init__(
        self,
        relations: Relations,
        oracle: TimestampOracle,
        compute: Compute,
        rewriter: Rewriter,
        stashed: StashedRows,
        *,
        epoch: int,
        clock_ms: Callable[[], int],
        on_fatal: Callable[[str], None],
        settings: MaintenanceSettings | None = None,
    ) -> None:
        self._catalog = relations.catalog
        self._storage = relations.storage
        self._persist = relations.persist
        self._oracle = oracle
        self._compute = compute
        self._rewriter = rewriter
        self._stashed = stashed
        self._has_others = True
        self._reader_id = f"leader-{epoch}"
        self._clock_ms = clock_ms
        self._on_fatal = on_fatal
        self._settings = settings or MaintenanceSettings()
        self._agenda = _Agenda()
        self._is_crowd_unknown = True
        self._search = _Search()
        self._renewed_ms: int | None = None
        self._foreign: tuple[holds.ReaderLease, ...] = ()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def configure(self, parameters: Mapping[str, str]) -> None:
        """Goes on, from its next step on, with those of the parameters that concern it."""
        target = size_bytes(parameters, "persist_blob_target_size")
        memory = size_bytes(parameters, "persist_compaction_memory_bound_bytes")
        inline = size_bytes(parameters, "persist_inline_writes_total_max_bytes")
        lease_ms = milliseconds(parameters, "persist_reader_lease_duration")
        before = self._settings
        merges = before.compaction
        self._settings = replace(
            before,
            lease_ms=before.lease_ms if lease_ms is None else lease_ms,
            compaction=replace(
                merges,
                target_bytes=merges.target_bytes if target is None else target,
                memory_bytes=merges.memory_bytes if memory is None else memory,
                inline_level_bytes=merges.inline_level_bytes if inline is None else inline,
            ),
        )
        # What could not be merged as it was may be now.
        self._is_crowd_unknown = self._is_crowd_unknown or self._settings.compaction != merges
        if lease_ms is not None:
            # The lease of the former length may end before a quarter of the new one has passed.
            self._renewed_ms = None

    def start(self) -> None:
        """Registers the leader's reader lease, then starts the thread."""
        self._lease()
        self._thread.start()

    def stop(self, timeout_ms: int = 2_000) -> None:
        """Ends after the step that is being done, which is abandoned after `timeout_ms`.

        The reader lease stays: plans of other applications may go on reading.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_ms / 1000)

    def turn(self) -> None:
        """Makes one turn. Raises `Fenced` and `FatalError`; other errors of a step are logged."""
        steps = (
            self._compute.maintain,
            self._lease,
            self._finalize,
            self._compact,
            self._collect,
            self._find,
            self._clear,
        )
        for step in steps:
            if self._stopping.is_set():
                return
            try:
                step()
            except (FatalError, Fenced):
                raise
            except Exception:
                _log.exception("maintenance failed", step=step.__name__.strip("_"))

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.interval_ms / 1000):
            try:
                self.turn()
            except (FatalError, Fenced) as error:
                self._on_fatal(f"{type(error).__name__}: {error}")
                return

    # Leases

    def _lease(self) -> None:
        """Renews the reader lease each quarter of its length, and reads those of other leaders."""
        now_ms, lease_ms = self._clock_ms(), self._settings.lease_ms
        if self._renewed_ms is not None and now_ms - self._renewed_ms < lease_ms // 4:
            return
        oldest = self._storage.oldest_hold()
        since = self._oracle.read_ts() if oldest is None else oldest
        lease = holds.ReaderLease(self._reader_id, self._reader_id, since, now_ms + lease_ms)

        def renew(conn: Connection) -> tuple[holds.ReaderLease, ...]:
            holds.register(conn, lease)
            holds.expire(conn, now_ms)
            return holds.leases(conn)

        found = self._persist.transactions.transact(renew)
        self._foreign = tuple(each for each in found if each.reader_id != self._reader_id)
        self._renewed_ms = now_ms

    def _foreign_leases(self) -> tuple[holds.ReaderLease, ...]:
        now_ms = self._clock_ms()
        return tuple(lease for lease in self._foreign if lease.expires_ms > now_ms)

    # Finalization

    def _finalize(self) -> None:
        for shard_id in self._storage.finalizable(self._settings.finalized_per_turn):
            if self._stopping.is_set():
                return
            # Who holds the shard delays this; afterwards nobody can hold it any more.
            if self._persist.maintenance.finalize(shard_id):
                self._storage.finalized(shard_id)
                self._remove([self._persist.files.shard_directory(shard_id)])

    # Compaction

    def _crowded(self) -> Sequence[int]:
        """The shards that may have something to merge, of all that there are."""
        statement = (
            select(parts_table.c.shard_id)
            .group_by(parts_table.c.shard_id)
            .having(func.count() >= self._settings.compaction.fan_in)
        )
        return self._persist.transactions.query(lambda conn: conn.scalars(statement).all())

    def _compact(self) -> None:
        settings = self._settings
        if self._is_crowd_unknown:
            self._agenda.add(self._crowded(), self._clock_ms())
            self._is_crowd_unknown = False
        self._agenda.add(self._persist.commits.take_changed(), self._clock_ms())
        taken = self._agenda.take(self._clock_ms(), settings.shards_per_turn)
        if not taken:
            return
        owners = {s: item for item in self._catalog.state.items.values() for s in shards_of(item)}
        left = _Left(settings.merges_per_turn, settings.large_merges_per_turn)
        for position, shard_id in enumerate(taken):
            try:
                done = not self._stopping.is_set() and self._compact_shard(
                    shard_id, owners.get(shard_id), left
                )
            except (FatalError, Fenced):
                raise
            except Exception:
                _log.exception("compaction failed", shard=shard_id)
                self._agenda.add([shard_id], self._clock_ms() + settings.revisit_ms)
                continue
            if not done:
                self._agenda.add(taken[position:], self._clock_ms())
                return

    def _compact_shard(self, shard_id: int, owner: CatalogItem | None, left: _Left) -> bool:
        """Merges the shard's parts; False: the rest has to wait for another turn."""
        settings = self._settings
        while True:
            # No definition may begin to read at a time while a later since is being chosen.
            with self._catalog.lock.within(settings.ddl_wait_ms / 1000) as is_locked:
                if not is_locked:
                    return False
                try:
                    chosen = self._chosen(shard_id, owner)
                except UnknownShard:
                    return True
            if chosen is None:
                return True
            if self._stopping.is_set() or not left.take(is_large(chosen[0], settings.compaction)):
                return False
            if not self._merge(shard_id, *chosen):
                self._agenda.add([shard_id], self._clock_ms() + settings.revisit_ms)
                return True

    def _chosen(self, shard_id: int, owner: CatalogItem | None) -> tuple[Merge, Timestamp] | None:
        """The next merge of the shard, and a since for it, before which nobody can hold the shard.

        None: there is nothing to merge now.
        """
        persist, settings = self._persist, self._settings
        found, durable = persist.reads.parts(shard_id), persist.reads.state(shard_id).since
        allowed = durable
        if owner is not None:
            allowed = max(durable, self._allowed(owner) or durable)
        merge = choose(found, allowed, settings.compaction)
        if merge is not None:
            return merge, allowed if merge.first < allowed else durable
        if any(part.max_time > allowed for part in found):
            self._agenda.add([shard_id], self._clock_ms() + settings.revisit_ms)
        return None

    def _merge(self, shard_id: int, merge: Merge, since: Timestamp) -> bool:
        try:
            compactor = Compactor(self._persist, self._settings.compaction, self._rewriter)
            return compactor.compact(shard_id, merge, since)
        except UnknownShard:
            return False

    def _allowed(self, owner: CatalogItem) -> Timestamp | None:
        """The time up to which its shards may be compacted; None: not at all."""
        # The controller gives no hold before this any more, whatever happens next.
        try:
            if self._storage.upper(owner.id).is_empty:
                return None
            limits = [self._storage.since(owner.id)]
        except StorageError:
            return None
        limits.extend(Frontier(lease.since) for lease in self._foreign_leases())
        since = min(limits)
        return None if since.is_empty else Timestamp(since.value)

    # Garbage

    def _collect(self) -> None:
        """Marks unused files for deletion, then deletes the marked ones."""
        persist, left = self._persist, self._settings.files_per_turn
        for shard_id, oldest_ms in persist.transactions.query(garbage.waiting):
            # Asked anew for each: a hold that is taken later reads parts that are there now.
            until_ms = garbage.deletable_until(
                self._clock_ms(),
                self._opened_ms(shard_id),
                bool(self._foreign_leases()),
                self._settings.lease_ms,
            )
            if until_ms is None or left <= 0 or self._stopping.is_set():
                break
            if oldest_ms <= until_ms:
                left -= self._mark_for_deletion(shard_id, until_ms, left)
        self._delete()

    def _opened_ms(self, shard_id: int) -> int | None:
        """The time since which a hold or a replica may know names of the shard's files."""
        known = (self._storage.opened_ms().get(shard_id), self._compute.lease_ms())
        return min((each for each in known if each is not None), default=None)

    def _mark_for_deletion(self, shard_id: int, until_ms: int, limit: int) -> int:
        return self._persist.transactions.transact(
            lambda conn: garbage.mark_for_deletion(conn, shard_id, until_ms, limit)
        )

    def _delete(self) -> None:
        persist, deleted = self._persist, []
        limit = self._settings.files_per_turn
        for uri in persist.transactions.query(
            lambda conn: garbage.marked_for_deletion(conn, limit)
        ):
            if self._stopping.is_set():
                break
            try:
                persist.blobs.delete(uri)
            except SlackwaterError as error:
                _log.warning("a file could not be deleted", uri=uri, error=str(error))
                continue
            deleted.append(uri)
        if deleted:
            around = {garbage.abandoned(uri, persist.reads.is_finalized) for uri in deleted}
            self._remove(directory for directory in around if directory is not None)
            persist.transactions.transact(lambda conn: garbage.forget(conn, deleted))

    def _remove(self, directories: Iterable[str]) -> None:
        """Removes the directories that are empty."""
        for directory in directories:
            try:
                self._persist.blobs.remove_directory(directory)
            except SlackwaterError as error:
                _log.warning("a directory was not removed", uri=directory, error=str(error))

    # Orphans

    def _find(self) -> None:
        """Puts old files that nobody names onto the garbage list."""
        persist, search, settings = self._persist, self._search, self._settings
        now_ms = self._clock_ms()
        if search.listed is None:
            if now_ms < search.next_ms:
                return
            search.listed = iter(persist.blobs.list(persist.blobs.uri("shards")))
        chunk = list(islice(search.listed, settings.listed_per_turn))
        if not chunk:
            search.listed, search.next_ms = None, now_ms + settings.search_ms
            return
        old = [blob for blob in chunk if now_ms - blob.modified_ms > settings.orphan_age_ms]
        found = list(_in_shards(old, persist.blobs.uri("shards")))
        if found:
            persist.transactions.transact(lambda conn: garbage.adopt_orphans(conn, found, now_ms))

    # Rows of peeks

    def _clear(self) -> None:
        """Deletes the rows that earlier leaders put into files, once nobody can read them."""
        if self._has_others and not self._foreign_leases():
            self._stashed.clear_others()
            self._has_others = False


def _in_shards(blobs: Iterable[Blob], root: str) -> Iterator[GarbageFile]:
    """The files that are in the directory of a shard."""
    for blob in blobs:
        name = blob.uri.removeprefix(root.rstrip("/") + "/").partition("/")[0]
        if name.isdigit():
            yield GarbageFile(blob.uri, int(name), blob.size_bytes, blob.modified_ms)
