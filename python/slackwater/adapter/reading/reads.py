"""Reads: from the collections of a query to one timestamp, a hold, and the parts to read.

Source: spec coordinator 2 (timestamp selection), architecture section 5 (binding).
"""

from __future__ import annotations

import base64
import threading
import time as clocks
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from slackwater.adapter.catalog.model import CatalogItem, ItemKind, fold
from slackwater.adapter.environment import READABLE, Environment
from slackwater.adapter.reading.older_plans import refuse_older_plan
from slackwater.adapter.reading.stalled import tell_of_stalled
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.selection import (
    AtLeastTimestamp,
    AtTimestamp,
    FreshestTableWrite,
    Immediately,
    InBlock,
    InputFrontiers,
    InputKind,
    Isolation,
    QueryWhen,
    TimestampDetermination,
    TimestampRequest,
    as_of_timestamp,
    determine,
    is_transactional,
)
from slackwater.adapter.time.watch import Cancellation
from slackwater.adapter.transactions import (
    check_read,
    check_write_outside_block,
    in_block,
    read_time,
    record_read,
)
from slackwater.compute.relations import relation_json
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.persist.leadership import LEASE_MS
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.errors import StorageError

ATTEMPTS = 3
"""How often a statement whose time is ours to choose is bound before it is refused."""


@dataclass(frozen=True, slots=True)
class LockLease:
    """How long an application that has a write lock may be silent, by a clock in seconds."""

    ms: int = LEASE_MS
    monotonic: Callable[[], float] = clocks.monotonic


@dataclass(slots=True)
class OpenHold:
    """The holds of a running statement, and whether it has locked shards for a write.

    One hold is on all collections that are read at the statement's time, and one on each that is
    read at a time of its own. `last_renewed_s` is when its application last spoke of a lock that
    waits for its write, on the monotonic clock; None while there is none, or the coordinator works
    on it.
    """

    session: Session
    locked: bool
    last_renewed_s: float | None = None
    shared: ReadHold | None = None
    own: dict[GlobalId, ReadHold] = field(default_factory=dict)


class SystemRows(Protocol):
    """What the system says of itself."""

    def rows(self, times: Mapping[GlobalId, Timestamp]) -> Mapping[GlobalId, bytes]:
        """The rows of some system relations at one moment, now.

        Each is an Arrow IPC stream of updates at the relation's time in `times`.
        """
        ...


class Reads:
    """Binds queries. Thread-safe; waits in the caller's thread."""

    def __init__(self, env: Environment, system: SystemRows, lease: LockLease) -> None:
        self._env = env
        self._system = system
        self._lease = lease
        self._lock = threading.Lock()
        self._open: dict[str, OpenHold] = {}

    def bind(
        self,
        session: Session,
        relations: Sequence[Mapping[str, Any]],
        as_of: Mapping[str, int] | None,
        write_targets: Sequence[GlobalId],
        cancellation: Cancellation,
    ) -> dict[str, Any]:
        """The binding of protocol section 2.

        Waits until every input is complete at the chosen time. Raises
        SLACKWATER_NO_VALID_TIMESTAMP, SLACKWATER_WAIT_TIMEOUT, SLACKWATER_CANCELED,
        SLACKWATER_DEPENDENCY_DROPPED, what the state of the session's transaction forbids, and
        what `refuse_older_plan` raises.
        """
        if write_targets:
            check_write_outside_block(session.transaction, "A write that reads relations")
        free = as_of is None and not any(relation.get("as_of") for relation in relations)
        for _ in range(ATTEMPTS - 1):
            try:
                return self._bind(session, relations, as_of, write_targets, cancellation)
            except SlackwaterError as error:
                # A view that recovered meanwhile has no contents for the time that was chosen.
                if not free or error.condition != "SLACKWATER_NO_VALID_TIMESTAMP":
                    raise
        return self._bind(session, relations, as_of, write_targets, cancellation)

    def refuse_past(
        self, relations: Sequence[Mapping[str, Any]], as_of: Mapping[str, int] | None
    ) -> None:
        """Raises SLACKWATER_UNSUPPORTED for a system relation at an exact time that is named."""
        for relation in relations:
            when = _when(relation.get("as_of")) or _when(as_of)
            refuse_past(self._env.relations.item(GlobalId(relation["id"])), when)

    def _bind(
        self,
        session: Session,
        relations: Sequence[Mapping[str, Any]],
        as_of: Mapping[str, int] | None,
        write_targets: Sequence[GlobalId],
        cancellation: Cancellation,
    ) -> dict[str, Any]:
        items = [self._readable(GlobalId(relation["id"])) for relation in relations]
        token = uuid.uuid4().hex
        own = [_when(relation.get("as_of")) for relation in relations]
        common = _when(as_of)
        opened = self._open_hold(token, session, items, write_targets, cancellation)
        try:
            self._env.persist.transactions.confirm_leadership()
            self._hold(opened, items, own)
            inputs = self.inputs(items)
            shared = [i for i, when in zip(inputs, own, strict=True) if when is None]
            with session.lock:
                # Two reads of a block, at once, must not choose a time each.
                timestamp = self._statement_time(session, shared, common, write_targets)
            times = [
                timestamp if when is None else self._determine(session, (i,), when).timestamp
                for i, when in zip(inputs, own, strict=True)
            ]
            tell_of_stalled(self._env, session, items)
            self._wait(items, inputs, times, cancellation)
            self._downgrade(opened, items, times)
            system = self._system_rows(items, times)
            answers = [
                system.get(item.id) or self._relation(item, time, relation.get("not_null") or ())
                for item, time, relation in zip(items, times, relations, strict=True)
            ]
            # Nobody would release what nobody is told of.
            cancellation.check()
        except BaseException:
            self.release(token)
            raise
        if not items:
            self.release(token)
        answer = {
            "timestamp": timestamp,
            "hold": token if items else None,
            "relations": answers,
        }
        if not opened.locked:
            return answer
        with self._lock:
            opened.last_renewed_s = self._lease.monotonic()
        return {**answer, "lease_ms": self._lease.ms}

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
            self._env.storage.release(hold)
        if opened.locked:
            self._env.committer.release(token)
        opened.session.holds.discard(token)

    def renew(self, token: str) -> None:
        """The application that has the lock lives. Unknown ones are ignored."""
        with self._lock:
            opened = self._open.get(token)
            if opened is not None and opened.last_renewed_s is not None:
                opened.last_renewed_s = self._lease.monotonic()

    def claim(self, token: str) -> bool:
        """Keeps a lock for the write that has come; false if it is not there any more."""
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
        """Ends the locks whose applications have renewed nothing for a lease; gives their sessions.

        What they have read stays readable no longer, either: their writes are refused.
        """
        before_s = self._lease.monotonic() - self._lease.ms / 1000
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
        """Ends what a transaction block kept readable."""
        with session.lock:
            hold, session.block_hold = session.block_hold, None
        if hold is not None:
            self._env.storage.release(hold)

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
        return determine(
            TimestampRequest(
                inputs=tuple(inputs),
                isolation=Isolation(session.variable("transaction_isolation")),
                when=when,
                oracle_read_ts=self._env.oracle.read_ts(),
                depends_on_time=depends_on_time,
            )
        )

    def inputs(self, items: Sequence[CatalogItem]) -> tuple[InputFrontiers, ...]:
        """The frontiers of `items`, as timestamp selection takes them."""
        return tuple(
            InputFrontiers(
                item.id,
                item.full_name,
                *self._env.relations.frontiers(item),
                InputKind.COMPUTE if item.kind is ItemKind.MATERIALIZED_VIEW else InputKind.STORAGE,
            )
            for item in items
        )

    def wait_complete(self, item: CatalogItem, time: Timestamp, cancellation: Cancellation) -> None:
        """Returns once the item's contents at `time` are final.

        Raises SLACKWATER_WAIT_TIMEOUT at the statement's deadline, and SLACKWATER_CANCELED.
        """

        def reached() -> bool:
            if item.id not in self._env.state.items:
                raise user_error("SLACKWATER_DEPENDENCY_DROPPED", objectName=item.full_name)
            return not self._env.relations.upper(item).allows(time)

        if not self._env.watch.wait_until(reached, cancellation.left_s(), cancellation):
            raise user_error(
                "SLACKWATER_WAIT_TIMEOUT",
                objectName=item.full_name,
                timestamp=str(time),
                seconds=f"{cancellation.timeout_ms / 1000:g}",
                complete=str(self._env.relations.upper(item).last_complete()),
                reason=self._failing_below(item),
            )

    def _failing_below(self, item: CatalogItem) -> str:
        """What keeps the item, or a view that it reads, from going on; "": nothing is known."""
        failure = self._env.worker.failure(item.id)
        if failure is not None:
            return f" The last attempt to maintain {item.full_name} failed: {failure.message}"
        below = (self._env.state.items.get(each) for each in item.depends_on)
        found = (self._failing_below(each) for each in below if each is not None)
        return next(filter(None, found), "")

    def _readable(self, global_id: GlobalId) -> CatalogItem:
        item = self._env.relations.item(global_id)
        if item.kind not in READABLE or (
            item.shard_id is None and item.kind is not ItemKind.SYSTEM_TABLE
        ):
            raise user_error(
                "SLACKWATER_WRONG_KIND",
                objectName=item.full_name,
                actualKind=item.kind.display_name,
                expectedKind="relation that can be read",
            )
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
            ids = self._env.relations.tables_below([*(item.id for item in items), *write_targets])
            self._env.committer.lock(ids, token, cancellation=cancellation)
        opened = OpenHold(session, bool(write_targets))
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

        What is read at one time is read at or after the latest since, so holding it there lets no
        since go back.
        """
        holder = Holder(HoldKind.STATEMENT, opened.session.session_id)
        together: list[CatalogItem] = []
        for item, when in zip(items, own, strict=True):
            if item.shard_id is None:
                continue
            if when is None:
                together.append(item)
            elif item.id not in opened.own:
                opened.own[item.id] = self._env.relations.hold([item], holder)
        if together:
            opened.shared = self._env.relations.hold(together, holder)

    def _downgrade(
        self,
        opened: OpenHold,
        items: Sequence[CatalogItem],
        times: Sequence[Timestamp | None],
    ) -> None:
        """Moves the holds to the times that were chosen."""
        own: dict[GlobalId, Timestamp] = {}
        shared: Timestamp | None = None
        for item, time in zip(items, times, strict=True):
            if item.shard_id is None or time is None:
                continue
            if item.id in opened.own:
                own[item.id] = min(time, own.get(item.id, time))
            else:
                shared = time
        if opened.shared is not None and shared is not None:
            opened.shared = self._env.storage.downgrade(opened.shared, shared)
        for global_id, time in own.items():
            opened.own[global_id] = self._env.storage.downgrade(opened.own[global_id], time)

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
            return self._env.oracle.read_ts() if named is None else named
        chosen = self._determine(session, inputs, when).timestamp
        if transactional and in_block(session.transaction):
            session.transaction = record_read(session.transaction, chosen)
            self._keep_domain(session, inputs, chosen)
        return chosen

    def _keep_domain(
        self, session: Session, inputs: Sequence[InputFrontiers], time: Timestamp
    ) -> None:
        """Keeps readable at `time` what later reads of the block may name.

        That is everything in the schemas that its first read names (spec coordinator 2.9).
        """
        schemas = {fold(self._env.relations.item(each.id).schema_name) for each in inputs}
        holder = Holder(HoldKind.TRANSACTION, session.session_id)
        while session.block_hold is None:
            readable = [
                item
                for item in self._env.state.items.values()
                if item.shard_id is not None
                and fold(item.schema_name) in schemas
                and self._is_readable(item, time)
            ]
            if not readable:
                return
            try:
                session.block_hold = self._env.storage.acquire(
                    [item.id for item in readable], holder, time
                )
            except StorageError:
                # What cannot be read at the time any more is left out with the next look.
                continue

    def _is_readable(self, item: CatalogItem, time: Timestamp) -> bool:
        try:
            return self._env.relations.since(item).value <= time
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
        times: Sequence[Timestamp | None],
        cancellation: Cancellation,
    ) -> None:
        """Waits for those that were not complete when the time was chosen."""
        for item, chosen_from, time in zip(items, inputs, times, strict=True):
            if time is not None and chosen_from.upper.allows(time):
                self.wait_complete(item, time, cancellation)

    def _system_rows(
        self, items: Sequence[CatalogItem], times: Sequence[Timestamp | None]
    ) -> dict[GlobalId, dict[str, Any]]:
        """The system relations among `items`, all at one moment."""
        wanted = {
            item.id: time
            for item, time in zip(items, times, strict=True)
            if item.kind is ItemKind.SYSTEM_TABLE and time is not None
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
            for global_id, rows in self._system.rows(wanted).items()
        }

    def _relation(
        self, item: CatalogItem, time: Timestamp | None, not_null: Collection[str]
    ) -> dict[str, Any]:
        if time is None:
            raise AssertionError("a bound relation has a time")
        if item.shard_id is None:
            raise AssertionError(f"{item.id} has no shard")
        self._env.relations.refuse_errors(item, time, Timestamp(time + 1))
        parts = self._env.persist.reads.parts_at(item.shard_id, time)
        state = self._env.persist.reads.state(item.shard_id)
        refuse_older_plan(item, state.desc, not_null)
        relation = relation_json(parts, state.desc, as_of=time)
        return {"id": item.id, "as_of": time, **relation}


def refuse_past(item: CatalogItem, when: QueryWhen | None) -> None:
    """Raises SLACKWATER_UNSUPPORTED for a system relation at an exact time: it has no history."""
    if item.kind is ItemKind.SYSTEM_TABLE and isinstance(when, AtTimestamp):
        raise user_error(
            "SLACKWATER_UNSUPPORTED",
            feature=f"AS OF over the system relation {item.full_name}",
            advice="It shows what is, and keeps no history: leave AS OF out, or read it in a"
            " query of its own.",
        )


def _when(as_of: Mapping[str, int] | None) -> QueryWhen | None:
    if as_of is None:
        return None
    if "at" in as_of:
        return AtTimestamp(Timestamp(as_of["at"]))
    return AtLeastTimestamp(Timestamp(as_of["at_least"]))
