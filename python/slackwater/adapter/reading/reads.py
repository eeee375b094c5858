"""Reads: from the collections of a query to one timestamp, a hold, and the parts to read.

Source: spec coordinator 2 (timestamp selection), architecture section 5 (binding).
"""

from __future__ import annotations

import base64
import threading
import time as clocks
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from slackwater.adapter.catalog.details import (
    KafkaDetails,
    LakeDetails,
    PostgresDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, ItemKind, fold
from slackwater.adapter.catalog.naming import keys_as_stored
from slackwater.adapter.catalog.replaced import refuse_replacement
from slackwater.adapter.controllers.dataflows import IndexOffer
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.protocol import Bind, BindAnswer
from slackwater.adapter.reading.health import Health
from slackwater.adapter.reading.older_plans import refuse_older_plan
from slackwater.adapter.reading.stashed_rows import StashedRows
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.isolation import STRICT_SERIALIZABLE, Level, isolation_of
from slackwater.adapter.time.selection import (
    AtTimestamp,
    FreshestTableWrite,
    Immediately,
    InBlock,
    InputFrontiers,
    InputKind,
    QueryWhen,
    TimestampDetermination,
    TimestampRequest,
    as_of_timestamp,
    determine,
    is_transactional,
)
from slackwater.adapter.time.timeline import Timeline
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import (
    check_read,
    check_write_outside_block,
    in_block,
    read_time,
    record_read,
)
from slackwater.adapter.writing.group_commit import GroupCommitter
from slackwater.compute.relations import relation_json
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.persist.leadership import LEASE_MS
from slackwater.repr.errors import SlackwaterError, unsupported, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.spans import Awaited, NoSpans, Spans
from slackwater.storage.controller.errors import StorageError

READABLE = frozenset(
    {ItemKind.TABLE, ItemKind.SOURCE, ItemKind.MATERIALIZED_VIEW, ItemKind.SYSTEM_TABLE}
)

ATTEMPTS = 3
"""The most attempts to bind a statement without AS OF, for which a time can be chosen anew."""


@dataclass(frozen=True, slots=True)
class LockLease:
    """The lease of write locks: an application that renews nothing for `ms` loses its locks.

    `monotonic` gives seconds.
    """

    ms: int = LEASE_MS
    monotonic: Callable[[], float] = clocks.monotonic


@dataclass(slots=True)
class OpenHold:
    """The holds of a running statement, and whether it has locked shards for a write.

    One hold is on all collections that are read at the statement's time, and one on each that is
    read at a time of its own. `last_renewed_s` is the monotonic time at which the application last
    renewed a lock that waits for its write; None while there is no such lock, or while the
    coordinator works on the statement.
    """

    session: Session
    locked: bool
    last_renewed_s: float | None = None
    shared: ReadHold | None = None
    own: dict[GlobalId, ReadHold] = field(default_factory=dict)


class SystemRows(Protocol):
    """The seam to the rows of system relations."""

    def rows(self, times: Mapping[GlobalId, Timestamp]) -> Mapping[GlobalId, bytes]:
        """The rows of some system relations at one moment, now.

        Each is an Arrow IPC stream of updates at the relation's time in `times`.
        """
        ...


class OpenIndexes(Protocol):
    """The seam to the indexes that the driver keeps."""

    def index(self, global_id: GlobalId) -> IndexOffer | None:
        """The index of that id for queries; None: the driver does not have it."""
        ...


class Snapshots(Protocol):
    """The seam to what sources have read of what there was at first."""

    def has_snapshot(self, source_id: GlobalId) -> bool:
        """Whether the first contents of a source are durable."""
        ...

    def has_begun(self, source_id: GlobalId, export: str) -> bool:
        """Whether an export that was added to a source has its first contents."""
        ...


@dataclass(frozen=True, slots=True)
class Reads:
    """Binds queries. Thread-safe; waits in the caller's thread."""

    relations: Relations
    timeline: Timeline
    committer: GroupCommitter
    health: Health
    lease: LockLease
    system: SystemRows
    indexes: OpenIndexes
    stashed: StashedRows
    snapshots: Snapshots
    spans: Spans = field(default_factory=NoSpans)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _open: dict[str, OpenHold] = field(default_factory=dict, init=False)

    def bind(
        self,
        session: Session,
        asked: Bind,
        cancellation: Cancellation,
    ) -> BindAnswer:
        """The binding of protocol section 2.

        Waits until every input is complete at the chosen time. Raises
        SLACKWATER_NO_VALID_TIMESTAMP, SLACKWATER_WAIT_TIMEOUT, SLACKWATER_CANCELED,
        SLACKWATER_DEPENDENCY_DROPPED, what the state of the session's transaction forbids, and
        what `refuse_older_plan` raises.
        """
        if asked.write_targets:
            refuse_stale_write(session)
            check_write_outside_block(session.transaction, "A write that reads relations")
        if asked.names_no_time:
            self.wait_for_snapshots((each.id for each in asked.relations), cancellation)
        for _ in range(ATTEMPTS - 1):
            try:
                return self._bind(session, asked, cancellation)
            except SlackwaterError as error:
                # A view that recovered meanwhile has no contents for the time that was chosen.
                if not asked.names_no_time or error.condition != "SLACKWATER_NO_VALID_TIMESTAMP":
                    raise
        return self._bind(session, asked, cancellation)

    def refuse_past(self, asked: Bind) -> None:
        """Raises SLACKWATER_UNSUPPORTED for a system relation at an exact time that is named."""
        for relation in asked.relations:
            item = self.relations.item(relation.id)
            refuse_past(item, relation.as_of or asked.as_of)

    def _bind(self, session: Session, asked: Bind, cancellation: Cancellation) -> BindAnswer:
        items = [self._readable(relation.id) for relation in asked.relations]
        token = uuid.uuid4().hex
        own = [relation.as_of for relation in asked.relations]
        write_targets = asked.write_targets
        opened = self._open_hold(token, session, items, write_targets, cancellation)
        cluster = self.relations.state.id_of_cluster(session.variable("cluster"))
        try:
            self.relations.persist.transactions.confirm_leadership()
            self._hold(opened, items, own)
            inputs = self.inputs(items)
            shared = [i for i, when in zip(inputs, own, strict=True) if when is None]
            with session.lock:
                # Two reads of a block, at once, must not choose a time each.
                timestamp = self._statement_time(session, shared, asked.as_of, write_targets)
            times = [
                timestamp if when is None else self._determine(session, (i,), when).timestamp
                for i, when in zip(inputs, own, strict=True)
            ]
            self.health.tell_of_stalled(session, self.relations.state, items)
            self._wait(items, inputs, times, cancellation)
            self._downgrade(opened, items, times)
            errors = self._errors_after(items, times)
            system = self._system_rows(items, times)
            answers = [
                system.get(item.id) or self._relation(item, time, relation.not_null, cluster)
                for item, time, relation in zip(items, times, asked.relations, strict=True)
            ]
            # Nobody would release what nobody is told of.
            cancellation.check()
        except BaseException:
            self.release(token)
            raise
        if not items:
            self.release(token)
        hold = token if items else None
        views = self._indexed(asked.views, cluster)
        most = session.result_limit_bytes
        if not opened.locked:
            again = asked.names_no_time and not errors and self._may_read_again(session, answers)
            return BindAnswer(timestamp, hold, tuple(answers), most, again, views=views)
        with self._lock:
            opened.last_renewed_s = self.lease.monotonic()
        return BindAnswer(
            timestamp, hold, tuple(answers), most, lease_ms=self.lease.ms, views=views
        )

    def _may_read_again(
        self,
        session: Session,
        answers: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Whether the session's next read of these relations, by their indexes, may do without a
        bind, if they have no error at any time from now on: the mark tells of those that come.

        It reads at the oracle's read timestamp, as a strict one outside of a block does.
        """
        return (
            bool(answers)
            and all(answer.get("indexes") for answer in answers)
            and isolation_of(session.variable("transaction_isolation")) == STRICT_SERIALIZABLE
            and not in_block(session.transaction)
            and session.variable("emit_timestamp_notice") != "on"
        )

    def lock_for_write(
        self, session: Session, tables: Sequence[GlobalId], cancellation: Cancellation
    ) -> str:
        """A hold that reads nothing and keeps other writes away from `tables`."""
        token = uuid.uuid4().hex
        self._open_hold(token, session, (), tables, cancellation)
        return token

    def release(self, token: str) -> None:
        """Ends a hold and its write locks. Unknown holds are ignored."""
        with self._lock:
            opened = self._open.pop(token, None)
        if opened is not None:
            self._end(token, opened)

    def _end(self, token: str, opened: OpenHold) -> None:
        for hold in (*([] if opened.shared is None else [opened.shared]), *opened.own.values()):
            self.relations.storage.release(hold)
        if opened.locked:
            self.committer.release(token)
        self.stashed.end(token)
        opened.session.holds.discard(token)

    def renew(self, token: str) -> None:
        """Renews the lease of a lock. Unknown holds are ignored."""
        with self._lock:
            opened = self._open.get(token)
            if opened is not None and opened.last_renewed_s is not None:
                opened.last_renewed_s = self.lease.monotonic()

    def claim(self, token: str) -> bool:
        """Keeps a lock for the write that has come; False if there is no such lock any more."""
        with self._lock:
            opened = self._open.get(token)
            if opened is not None:
                opened.last_renewed_s = None
            return opened is not None

    def has_lock(self, token: str) -> bool:
        """Whether the hold keeps others' writes away."""
        with self._lock:
            opened = self._open.get(token)
            return opened is not None and opened.locked

    def end_expired(self) -> tuple[str, ...]:
        """Ends the locks that were not renewed for a lease; returns their sessions' ids.

        Their holds end as well, and their writes are refused.
        """
        before_s = self.lease.monotonic() - self.lease.ms / 1000
        with self._lock:
            expired = {
                token: opened
                for token, opened in self._open.items()
                if opened.last_renewed_s is not None and opened.last_renewed_s <= before_s
            }
            for token in expired:
                del self._open[token]
        for token, opened in expired.items():
            self._end(token, opened)
        return tuple(opened.session.session_id for opened in expired.values())

    def release_block(self, session: Session) -> None:
        """Releases the hold of a transaction block."""
        with session.lock:
            hold, session.block_hold = session.block_hold, None
        if hold is not None:
            self.relations.storage.release(hold)

    def choose(self, session: Session, items: Sequence[CatalogItem], when: QueryWhen) -> Timestamp:
        """Chooses the time for reading `items`, which the caller holds; does not wait.

        In a block it is, or becomes, the time of the block, unless `when` states it. Raises
        SLACKWATER_NO_VALID_TIMESTAMP, and what the state of the session's transaction forbids.
        """
        with session.lock:
            return self._statement_time(session, self.inputs(items), when, ())

    def determination(
        self,
        session: Session,
        items: Sequence[CatalogItem],
        when: QueryWhen,
        *,
        depends_on_time: bool = True,
    ) -> TimestampDetermination:
        """Chooses a time for reading `items`, without a hold and without waiting.

        In a block that has read, it is the time of the block. Raises what such a read would.
        """
        inputs = self.inputs(items)
        if is_transactional(when):
            with session.lock:
                block = self._block_time(session, inputs)
            when = when if block is None else InBlock(block)
        return self._determine(session, inputs, when, depends_on_time=depends_on_time)

    def _block_time(self, session: Session, inputs: Sequence[InputFrontiers]) -> Timestamp | None:
        """The time at which the session's block reads `inputs`, if that is chosen.

        Raises what `check_read` does, and SLACKWATER_OUTSIDE_TIMEDOMAIN.
        """
        if not inputs:
            return read_time(session.transaction)
        fixed = check_read(session.transaction, inputs[0].name)
        if fixed is not None:
            self._check_domain(inputs, fixed)
        return fixed

    def _determine(
        self,
        session: Session,
        inputs: Sequence[InputFrontiers],
        when: QueryWhen,
        *,
        depends_on_time: bool = True,
    ) -> TimestampDetermination:
        isolation = isolation_of(session.variable("transaction_isolation"))
        oracle_ts = self.timeline.read_ts()
        by_session = isolation.level is Level.STRONG_SESSION_SERIALIZABLE
        return determine(
            TimestampRequest(
                inputs=tuple(inputs),
                isolation=isolation,
                when=when,
                oracle_read_ts=oracle_ts,
                depends_on_time=depends_on_time,
                present=self.relations.storage.tables_upper(),
                # What the session has seen before it went by that, nobody knows: at most this.
                session_ts=(session.seen_ts or oracle_ts) if by_session else None,
            )
        )

    def inputs(self, items: Sequence[CatalogItem]) -> tuple[InputFrontiers, ...]:
        """The frontiers of `items`, as timestamp selection takes them."""
        return tuple(
            InputFrontiers(
                item.id,
                item.full_name,
                *self.relations.frontiers(item),
                InputKind.COMPUTE if item.kind is ItemKind.MATERIALIZED_VIEW else InputKind.STORAGE,
            )
            for item in items
        )

    def wait_complete(self, item: CatalogItem, time: Timestamp, cancellation: Cancellation) -> None:
        """Returns once the item's contents at `time` are final.

        Raises SLACKWATER_WAIT_TIMEOUT at the statement's deadline, and SLACKWATER_CANCELED.
        """

        def reached() -> bool:
            if item.id not in self.relations.state.items:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=item.full_name)
            return not self.relations.upper(item).allows(time)

        def awaited() -> str:
            last = self.relations.upper(item).last_complete()
            return self.health.awaited(self.relations.state, item, last, time)

        if reached():
            return
        with cancellation.waiting(awaited), self.spans.wait("wait", self._awaited(item, time)):
            if not self.timeline.watch.wait_until(reached, cancellation.left_s(), cancellation):
                raise user_error(
                    "SLACKWATER_WAIT_TIMEOUT",
                    objectName=item.full_name,
                    timestamp=str(time),
                    seconds=f"{cancellation.timeout_ms / 1000:g}",
                    complete=str(self.relations.upper(item).last_complete()),
                    reason=self.health.failing_below(self.relations.state, item)
                    or self.health.next_refresh(self.relations.state, item, time),
                )

    def _awaited(self, item: CatalogItem, time: Timestamp | None = None) -> Awaited:
        def below() -> set[GlobalId]:
            found = self.relations.state.below([item.id])
            return {each.id for each in found} | {each.feeder for each in found if each.feeder}

        return Awaited(item.id, below, time)

    def wait_for_snapshots(self, ids: Iterable[GlobalId], cancellation: Cancellation) -> None:
        """Returns once each topic below these relations was read up to where it was at first, and
        once the tables of each publication and of lakes were copied, and once each table that was
        added to a source has its first contents.

        Before that they would seem to be empty. Raises SLACKWATER_SNAPSHOT_TIMEOUT at the
        statement's deadline, and SLACKWATER_CANCELED.
        """
        below = self.relations.state.below(ids)
        for source in map(self.relations.item, sorted({i.feeder for i in below if i.feeder})):
            # Other sources have something to show as soon as they have begun.
            if isinstance(source.details, KafkaDetails | PostgresDetails | LakeDetails):
                found = partial(self.snapshots.has_snapshot, source.id)
                self._wait_for_snapshot(found, source, source, cancellation)
        for item in below:
            if item.later_export is not None:
                source_id, export = item.later_export
                source = self.relations.item(source_id)
                found = partial(self.snapshots.has_begun, source_id, export)
                self._wait_for_snapshot(found, item, source, cancellation)

    def _wait_for_snapshot(
        self,
        found: Callable[[], bool],
        item: CatalogItem,
        source: CatalogItem,
        cancellation: Cancellation,
    ) -> None:
        def awaited() -> str:
            return f"The first contents of {source.full_name}. {self.health.waits_for(source)}"

        if found():
            return
        with cancellation.waiting(awaited), self.spans.wait("wait", self._awaited(item)):
            if not self.timeline.watch.wait_until(found, cancellation.left_s(), cancellation):
                raise user_error(
                    "SLACKWATER_SNAPSHOT_TIMEOUT",
                    objectName=item.full_name,
                    seconds=f"{cancellation.timeout_ms / 1000:g}",
                    reason=self.health.waits_for(source),
                )

    def _readable(self, global_id: GlobalId) -> CatalogItem:
        item = self.relations.item(global_id)
        if item.kind not in READABLE or (
            item.shard_id is None and item.kind is not ItemKind.SYSTEM_TABLE
        ):
            raise item.wrong_kind("relation that can be read")
        refuse_replacement(item)
        return item

    def _open_hold(
        self,
        token: str,
        session: Session,
        items: Sequence[CatalogItem],
        write_targets: Sequence[GlobalId],
        cancellation: Cancellation,
    ) -> OpenHold:
        if write_targets:
            ids = self.relations.tables_below([*(item.id for item in items), *write_targets])
            self.committer.lock(ids, token, cancellation=cancellation)
        opened = OpenHold(session, bool(write_targets))
        self.stashed.begin(token)
        with self._lock:
            self._open[token] = opened
        session.holds.add(token)
        return opened

    def _hold(
        self,
        opened: OpenHold,
        items: Sequence[CatalogItem],
        own: Sequence[QueryWhen | None],
    ) -> None:
        """Takes the holds at the earliest times at which the statement may read.

        Collections that are read at one time are read at or after the latest of their sinces, so
        that a hold there is early enough.
        """
        holder = Holder(HoldKind.STATEMENT, opened.session.session_id)
        together: list[CatalogItem] = []
        for item, when in zip(items, own, strict=True):
            if item.shard_id is None:
                continue
            if when is None:
                together.append(item)
            elif item.id not in opened.own:
                opened.own[item.id] = self.relations.hold([item], holder)
        if together:
            opened.shared = self.relations.hold(together, holder)

    def _downgrade(
        self,
        opened: OpenHold,
        items: Sequence[CatalogItem],
        times: Sequence[Timestamp],
    ) -> None:
        """Moves the holds to the times that were chosen."""
        own: dict[GlobalId, Timestamp] = {}
        shared: Timestamp | None = None
        for item, time in zip(items, times, strict=True):
            if item.shard_id is None:
                continue
            if item.id in opened.own:
                own[item.id] = min(time, own.get(item.id, time))
            else:
                shared = time
        if opened.shared is not None and shared is not None:
            opened.shared = self.relations.storage.downgrade(opened.shared, shared)
        for global_id, time in own.items():
            opened.own[global_id] = self.relations.storage.downgrade(opened.own[global_id], time)

    def _statement_time(
        self,
        session: Session,
        inputs: Sequence[InputFrontiers],
        common: QueryWhen | None,
        write_targets: Sequence[GlobalId],
    ) -> Timestamp:
        """The time of all relations that do not state their own; the value of mz_now()."""
        unasked: QueryWhen = FreshestTableWrite() if write_targets else Immediately()
        when = common or unasked
        transactional = is_transactional(when) and not write_targets
        block = self._block_time(session, inputs) if transactional else None
        if block is not None:
            return block
        if not inputs:
            named = as_of_timestamp(when)
            return self.timeline.read_ts() if named is None else named
        determination = self._determine(session, inputs, when)
        chosen = determination.timestamp
        if transactional:
            by_session = determination.session_ts
            session.seen_ts = None if by_session is None else max(by_session, chosen)
        if transactional and in_block(session.transaction):
            session.transaction = record_read(session.transaction, chosen)
            self._keep_domain(session, inputs, chosen)
        return chosen

    def _keep_domain(
        self, session: Session, inputs: Sequence[InputFrontiers], time: Timestamp
    ) -> None:
        """Holds at `time` everything that later reads of the block may name.

        That is all of the schemas that its first read names (spec coordinator 2.9).
        """
        schemas = {fold(self.relations.item(each.id).schema_name) for each in inputs}
        holder = Holder(HoldKind.TRANSACTION, session.session_id)
        while session.block_hold is None:
            readable = [
                item
                for item in self.relations.state.items.values()
                if item.shard_id is not None
                and fold(item.schema_name) in schemas
                and self._is_readable(item, time)
            ]
            if not readable:
                return
            try:
                session.block_hold = self.relations.storage.acquire(
                    [item.id for item in readable], holder, time
                )
            except StorageError:
                # What cannot be read at the time any more is left out with the next look.
                continue

    def _is_readable(self, item: CatalogItem, time: Timestamp) -> bool:
        try:
            return self.relations.since(item).value <= time
        except SlackwaterError:
            return False

    def _check_domain(self, inputs: Sequence[InputFrontiers], time: Timestamp) -> None:
        for each in inputs:
            if each.since.value > time:
                raise user_error(
                    "SLACKWATER_OUTSIDE_TIMEDOMAIN",
                    objectName=each.name,
                    timestamp=str(time),
                    reason=f"it can be read from {each.since.value} on",
                )

    def _wait(
        self,
        items: Sequence[CatalogItem],
        inputs: Sequence[InputFrontiers],
        times: Sequence[Timestamp],
        cancellation: Cancellation,
    ) -> None:
        """Waits for the inputs that were not complete at their times when these were chosen."""
        for item, chosen_from, time in zip(items, inputs, times, strict=True):
            if chosen_from.upper.allows(time):
                self.wait_complete(item, time, cancellation)

    def _system_rows(
        self, items: Sequence[CatalogItem], times: Sequence[Timestamp]
    ) -> dict[GlobalId, dict[str, Any]]:
        """The rows of the system relations among `items`, all of one moment."""
        wanted = {
            item.id: time
            for item, time in zip(items, times, strict=True)
            if item.kind is ItemKind.SYSTEM_TABLE
        }
        return {
            global_id: {
                "id": global_id,
                "as_of": wanted[global_id],
                "files": [],
                "inline": [base64.b64encode(rows).decode()],
                "retractions": False,
                "time_filter": False,
            }
            for global_id, rows in self.system.rows(wanted).items()
        }

    def _errors_after(self, items: Sequence[CatalogItem], times: Sequence[Timestamp]) -> bool:
        """Whether one of the items has an error after its time.

        Raises SLACKWATER_SOURCE_ERROR or SLACKWATER_DATA_ERROR for one at that time.
        """
        found = map(self.relations.first_error, items, times)
        later = False
        for time, first in zip(times, found, strict=True):
            if first is not None and first.since == time:
                raise first.error
            later = later or first is not None
        return later

    def _relation(
        self,
        item: CatalogItem,
        time: Timestamp,
        not_null: Collection[str],
        cluster: GlobalId | None,
    ) -> dict[str, Any]:
        shard_id = item.stored.shard_id
        parts = self.relations.persist.reads.parts_at(shard_id, time)
        state = self.relations.persist.reads.state(shard_id)
        refuse_older_plan(item, state.desc, not_null)
        relation = relation_json(parts, state.desc, as_of=time)
        # The since is that of the parts, or a later one.
        read_by = {"indexes": self._offers(item.id, cluster), "since": state.since}
        return {"id": item.id, "as_of": time, **read_by, **relation}

    def _indexed(
        self, views: Sequence[GlobalId], cluster: GlobalId | None
    ) -> dict[GlobalId, list[dict[str, Any]]]:
        """The indexes on those of the views that have some. A view that was dropped has none."""
        offers = {view: self._offers(view, cluster) for view in views}
        return {view: found for view, found in offers.items() if found}

    def _offers(self, global_id: GlobalId, cluster: GlobalId | None) -> list[dict[str, Any]]:
        """The indexes of the cluster on the relation that the driver may read for the parts."""
        state = self.relations.state
        users = state.dependents(global_id)
        indexes = [i for i in users if i.kind is ItemKind.INDEX and i.cluster == cluster]
        offers = ((each, self.indexes.index(each.id)) for each in indexes)
        return [
            {
                "id": each.id,
                "program": offer.program,
                "upper": offer.upper,
                "name": each.full_name,
                "keys": keys_as_stored(each, state.item(global_id)),
            }
            for each, offer in offers
            if offer is not None
        ]


def refuse_stale_write(session: Session) -> None:
    """Raises SLACKWATER_READ_ONLY_TRANSACTION where the session's isolation is for reads alone."""
    level = isolation_of(session.variable("transaction_isolation")).level
    if level is Level.BOUNDED_STALENESS:
        raise user_error(
            "SLACKWATER_READ_ONLY_TRANSACTION", reason=f"its isolation is {level.value}"
        )


def refuse_past(item: CatalogItem, when: QueryWhen | None) -> None:
    """Raises SLACKWATER_UNSUPPORTED for a system relation at an exact time: it has no history."""
    if item.kind is ItemKind.SYSTEM_TABLE and isinstance(when, AtTimestamp):
        raise unsupported(
            f"AS OF over the system relation {item.full_name}",
            advice="It shows what is, and keeps no history: leave AS OF out, or read it in a"
            " query of its own.",
        )
