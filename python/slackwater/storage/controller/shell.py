"""The storage controller for the threads of a process: one lock, and somebody who does the work.

Every call goes to the core under the lock; the effects are carried out after it was given back, in
the thread that caused them. Definitions are serialised by their caller, so what they cause comes
in their order; a durable since only moves forward, so the order of downgrades is of no importance.

Here the race between a new hold and a since that moves is decided (I12, I24): both happen under
the lock, so either the hold was first and the since stops at it, or the hold is refused.

An append is carried out, and answered, in the thread that asks for it. A snapshot is read by the
thread that waits for it; whoever moves its upper only wakes that thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeVar

import pyarrow as pa
import structlog

from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ReadPolicy
from slackwater.storage.controller import effects as ef
from slackwater.storage.controller.appends import CollectionAppend
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    ExportDescription,
)
from slackwater.storage.controller.errors import StorageError
from slackwater.storage.controller.exports import CreateExportToken
from slackwater.storage.controller.protocol import (
    AppendDone,
    AppendFailed,
    AppendRefused,
    Response,
    ShardFinalized,
    SnapshotRead,
)

T = TypeVar("T")

_READS_FILES = frozenset(
    {HoldKind.STATEMENT, HoldKind.TRANSACTION, HoldKind.SUBSCRIPTION, HoldKind.SNAPSHOT}
)
_log = structlog.get_logger("storage")


class ShardStore(Protocol):
    """The durable shards, as far as effects need them."""

    def set_since(self, sinces: Mapping[int, Timestamp]) -> None:
        """Moves durable sinces forward; never back."""
        ...

    def drop_shards(self, shard_ids: Sequence[int]) -> None:
        """Registers the shards for finalization, durably."""
        ...

    def reclaim_shards(self, shard_ids: Sequence[int]) -> None:
        """Takes the registration of the shards back, durably."""
        ...

    def append(self, effect: ef.AppendRows) -> AppendDone | AppendRefused:
        """One commit, all or nothing. What it raises leaves open whether it happened."""
        ...

    def snapshot(self, shard_id: int, as_of: Timestamp) -> pa.Table:
        """The consolidated updates at `as_of`, which is complete and held."""
        ...


@dataclass(frozen=True, slots=True)
class Storage:
    """Collections, exports and read holds. Thread-safe.

    `replica` is told of connections, of what to run and what to stop, and `configure` of parameters
    that have other values, in whatever thread that follows; neither may block. `clock_ms` never
    goes back; it dates the holds.
    """

    core: StorageController
    store: ShardStore
    clock_ms: Callable[[], int]
    replica: Callable[[ef.ToReplica], None]
    configure: Callable[[Mapping[str, str]], None] = lambda _: None
    _lock: Lock = field(default_factory=Lock, init=False)
    _opened_ms: dict[int, int] = field(default_factory=dict, init=False)
    _answers: dict[int, StorageError | None] = field(default_factory=dict, init=False)
    _snapshots: dict[int, Future[ef.ReadSnapshot]] = field(default_factory=dict, init=False)

    # Definitions

    def create(
        self,
        collections: Sequence[tuple[GlobalId, CollectionDescription, CollectionMetadata]],
        policies: Sequence[tuple[GlobalId, ReadPolicy]],
    ) -> None:
        """Installs collections whose shards were made by a transaction that is durable."""

        def create(core: StorageController) -> None:
            mapped = [(i, shard) for i, _, found in collections for shard in found.shards]
            core.shards.map(mapped)
            core.create_collections(
                [(i, description) for i, description, _ in collections],
                {i: found for i, _, found in collections},
            )
            core.set_read_policy(policies)

        self.do(create)

    def set_policy(self, global_id: GlobalId, policy: ReadPolicy) -> None:
        """Sets another policy. The since that was reached stays, also after a restart."""

        def change(core: StorageController) -> None:
            core.announce_since(global_id)
            core.set_read_policy([(global_id, policy)])

        self.do(change)

    def create_instance(self, instance_id: str) -> None:
        """Adds an instance without replicas."""
        self.do(lambda core: core.placement.create_instance(instance_id))

    def drop_instance(self, instance_id: str) -> None:
        """Removes an instance with its replicas; nothing runs on it any more."""
        self.do(lambda core: core.placement.drop_instance(instance_id))

    def connect_replica(self, instance_id: str, replica: str) -> None:
        """Lets a replica of this process run what its instance has, from now on."""
        self.do(lambda core: core.placement.connect_replica(instance_id, replica, "this process"))

    def initialization_complete(self) -> None:
        """All that there is was created: replicas end what was not."""
        self.do(lambda core: core.placement.initialization_complete())

    def drop_replica(self, instance_id: str, replica: str) -> None:
        """Lets the replica go: what only it ran is paused until another one is connected."""
        self.do(lambda core: core.placement.drop_replica(instance_id, replica))

    def running_on(self) -> Mapping[GlobalId, str]:
        """The replica that runs each source, by the source's id; paused ones have none."""
        return self.look(lambda core: core.placement.running_on())

    def frontiers_of_all(self) -> Mapping[GlobalId, tuple[Frontier, Frontier]]:
        """Since and upper of each collection, all at one moment."""
        with self._lock:
            found = self.core.capabilities.settled()
            return {state.id: (state.since, state.upper) for state in found}

    def drop(self, collections: Sequence[GlobalId], exports: Sequence[GlobalId]) -> None:
        """Gives up objects that a durable transaction took out of the catalog."""

        def drop(core: StorageController) -> None:
            core.shards.give_up([*collections, *exports])
            core.drop_sinks(exports)
            core.drop_sources(collections)

        self.do(drop)

    def create_export(
        self, token: CreateExportToken, description: ExportDescription, shards: Sequence[int]
    ) -> None:
        """Creates the export and runs it. `shards` belong to it, durably."""

        def create(core: StorageController) -> None:
            mapped = [(token.id, shard) for shard in shards]
            core.shards.map(mapped)
            core.create_exports([(token, description)])

        self.do(create)

    # Data

    def append(
        self,
        commands: Sequence[CollectionAppend],
        tables_upper: Frontier | None = None,
        extras: object = None,
    ) -> None:
        """Commits rows and uppers; durable, and reported, when it returns (M20).

        Raises what `StorageController.append` does, INVALID_UPPERS when somebody else has moved an
        upper, and what the store raises, after which the append may have happened or not.
        """
        ticket = self.do(lambda core: core.append(commands, tables_upper, extras))
        refused = self._answers.pop(ticket)
        if refused is not None:
            raise refused

    def snapshot(self, global_id: GlobalId, as_of: Timestamp) -> pa.Table:
        """The consolidated updates at `as_of`; waits until that is complete (M21).

        The collection is held meanwhile. Raises IDENTIFIER_MISSING, also when it is dropped before
        it gets there, and READ_BEFORE_SINCE. Errors beside the rows are for the caller to look for.
        """
        found: Future[ef.ReadSnapshot] = Future()

        def ask(core: StorageController) -> int:
            ticket = core.snapshot(global_id, as_of)
            self._snapshots[ticket] = found
            return ticket

        ticket = self.do(ask)
        try:
            return self.store.snapshot(found.result().shard_id, as_of)
        finally:
            with self._lock:
                del self._snapshots[ticket]
                if found.exception() is None:
                    del self._opened_ms[found.result().hold.hold_id]
            self.respond(SnapshotRead(ticket))

    def owners(self, shard_ids: Iterable[int]) -> Mapping[int, GlobalId]:
        """The objects that the shards belong to. Shards of none are left out."""
        with self._lock:
            return self.core.shards.owners_of(shard_ids)

    # Frontiers

    def since(self, global_id: GlobalId) -> Frontier:
        """From where on the collection can be read and held. Raises IDENTIFIER_MISSING."""
        return self.frontiers(global_id)[0]

    def upper(self, global_id: GlobalId) -> Frontier:
        """The time before which the collection is complete. Raises IDENTIFIER_MISSING."""
        return self.frontiers(global_id)[1]

    def frontiers(self, global_id: GlobalId) -> tuple[Frontier, Frontier]:
        """Since and upper at one moment. Raises IDENTIFIER_MISSING."""
        with self._lock:
            state = self.core.capabilities.state(global_id)
            return state.since, state.upper

    def tables_upper(self) -> Frontier:
        """The time before which tables and sources are complete."""
        with self._lock:
            return self.core.capabilities.tables_upper

    def report(self, uppers: Iterable[tuple[GlobalId, Frontier]]) -> None:
        """Collections and exports have been written up to here (M23)."""
        self.do(lambda core: core.update_write_frontiers(uppers))

    # Holds

    def acquire(
        self, ids: Iterable[GlobalId], holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """One hold on all of them, which `Capabilities.acquire` grants or refuses."""
        with self._lock:
            hold = self.core.capabilities.acquire(ids, holder, at)
            self._opened_ms[hold.hold_id] = self.clock_ms()
            return hold

    def downgrade(self, hold: ReadHold, time: Timestamp) -> ReadHold:
        """Moves the hold forward; its reader uses no names of files that it got before.

        Raises ValueError when that would be backward, ReleasedHold when it was released.
        """
        with self._lock:
            moved = self.core.capabilities.holds.downgrade(hold, Frontier(time))
            self._opened_ms[hold.hold_id] = self.clock_ms()
            return moved

    def release(self, hold: ReadHold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        with self._lock:
            self._opened_ms.pop(hold.hold_id, None)
        return self.do(lambda core: core.capabilities.holds.release(hold))

    def holds(self) -> tuple[ReadHold, ...]:
        """All holds, the oldest first."""
        with self._lock:
            return tuple(self.core.capabilities.holds)

    def oldest_hold(self) -> Timestamp | None:
        """The oldest time that any hold keeps."""
        with self._lock:
            return self.core.capabilities.holds.oldest()

    def opened_ms(self) -> Mapping[int, int]:
        """For each shard that readers hold, when the one who reads longest got names of its files.

        Files that were replaced before that time are in use by none of them.
        """
        found: dict[int, int] = {}
        with self._lock:
            for hold in self.core.capabilities.holds:
                opened = self._opened_ms.get(hold.hold_id)
                if opened is None or hold.holder.kind not in _READS_FILES:
                    continue
                for global_id in hold.ids:
                    metadata = self.core.capabilities.state(global_id).metadata
                    for shard in (metadata.shard_id, *metadata.error_shards):
                        found[shard] = min(opened, found.get(shard, opened))
        return found

    # Finalization

    def finalizable(self, limit: int) -> tuple[int, ...]:
        """At most `limit` shards that no object has and nobody can read any more.

        Durable sinces are not swept here: they move with the merges that profit (decision 0008).
        """
        with self._lock:
            effects = self.core.maintain(0, limit)
        others = [each for each in effects if not isinstance(each, ef.FinalizeShard)]
        self._carry_out(others)
        return tuple(each.shard_id for each in effects if isinstance(each, ef.FinalizeShard))

    def finalized(self, shard_id: int) -> None:
        """The shard is a tombstone."""
        self.respond(ShardFinalized(shard_id))

    def respond(self, response: Response) -> None:
        """Takes a response of a replica, or of what carried out an effect."""
        self.do(lambda core: core.respond(response))

    def validate(self) -> None:
        """Raises FatalError when the core is not consistent, or a hold is dated that is over."""
        with self._lock:
            self.core.validate()
            over = self._opened_ms.keys() - {each.hold_id for each in self.core.capabilities.holds}
        if over:
            raise FatalError(f"the holds {sorted(over)} are over")

    # Effects

    def do(self, action: Callable[[StorageController], T]) -> T:
        """Runs the action on the core under the lock, then carries out what follows from it.

        Raises what the action raises, and what the store does. The action must neither block nor
        call this object.
        """
        with self._lock:
            result = action(self.core)
            effects = self.core.process()
        self._carry_out(effects)
        return result

    def look(self, action: Callable[[StorageController], T]) -> T:
        """Runs the action, which changes nothing, on the core under the lock."""
        with self._lock:
            return action(self.core)

    def _carry_out(self, effects: Iterable[ef.Effect]) -> None:
        sinces: dict[int, Timestamp] = {}
        for effect in effects:
            match effect:
                case ef.SendToReplica() | ef.ConnectReplica() | ef.DisconnectReplica():
                    self.replica(effect)
                case ef.DowngradeSince(shard, since):
                    # The last downgrade comes with the tombstone, in its transaction.
                    if not since.is_empty:
                        sinces[shard] = Timestamp(since.value)
                case ef.RegisterFinalization(shards):
                    self.store.drop_shards(shards)
                case ef.ReclaimShards(shards):
                    _log.warning("dropped shards are kept: objects have them", shards=shards)
                    self.store.reclaim_shards(shards)
                case ef.AppendRows():
                    self.respond(self._appended(effect))
                case ef.AnswerAppend(ticket, refused):
                    self._answers[ticket] = refused
                case ef.ReadSnapshot(ticket):
                    self._wake(ticket, effect)
                case ef.AnswerSnapshot(ticket, never):
                    self._snapshots[ticket].set_exception(never)
                case ef.Configure(parameters):
                    self.configure(dict(parameters))
                case ef.WriteStatus(_, "paused"):
                    # The catalog says which clusters have no replicas; what a replica of this
                    # process runs says itself how it is.
                    pass
                case ef.WriteStatus(global_id, status, error):
                    _log.info("status", object=global_id, status=status, error=error)
                case _:
                    raise FatalError(f"nobody asked for {type(effect).__name__}")
        if sinces:
            self.store.set_since(sinces)

    def _appended(self, effect: ef.AppendRows) -> AppendDone | AppendRefused:
        """Whatever ends the commit, an interrupt too, goes on to the caller of `append`."""
        try:
            return self.store.append(effect)
        except BaseException:
            self.respond(AppendFailed(effect.ticket))
            raise

    def _wake(self, ticket: int, effect: ef.ReadSnapshot) -> None:
        """The reader may begin: from now on files that it is given names of must stay."""
        with self._lock:
            self._opened_ms[effect.hold.hold_id] = self.clock_ms()
            waiting = self._snapshots[ticket]
        waiting.set_result(effect)
