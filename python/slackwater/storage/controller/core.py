"""The storage controller as a value: commands and responses go in, effects come out.

It knows no clock, no thread and no file. A shell calls its methods one at a time and carries out,
in order, what `process` and `maintain` hand over. After a `FatalError` it is not to be used again.

Source: spec controllers 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slackwater.controller.holds import Holder, ReadHold
from slackwater.controller.protocol import DroppedIds, FrontierUppers, ReplicaKey, StatusUpdate
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ReadPolicy
from slackwater.storage.controller.appends import Appends, CollectionAppend, Snapshots
from slackwater.storage.controller.capabilities import Capabilities, CollectionState
from slackwater.storage.controller.creation import Creation, unknown
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    ExportDescription,
    IngestionDescription,
    IngestionExport,
)
from slackwater.storage.controller.effects import (
    AnswerAppend,
    Effect,
)
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.exports import CreateExportToken, Exports, ExportState
from slackwater.storage.controller.placement import Placement
from slackwater.storage.controller.protocol import (
    AppendDone,
    AppendFailed,
    AppendRefused,
    Response,
    RunSink,
    ShardFinalized,
    SnapshotRead,
)
from slackwater.storage.controller.shards import ShardMappings
from slackwater.storage.controller.sinces import DurableSinces
from slackwater.storage.controller.statuses import Statuses

FINALIZED_AT_ONCE = 10


class StorageController:
    """All collections and exports of an environment.

    `durable` is what the metastore says at the start, `tables_upper` the upper that tables and
    sources share. The operations have the names and, unless they say otherwise, the meaning of the
    specification; what it recommends is done: tokens work once, repeated policies of one id
    accumulate, drops can be repeated.
    """

    def __init__(self, durable: DurableState, tables_upper: Frontier) -> None:
        self._capabilities = Capabilities(tables_upper)
        self._appends = Appends(self._capabilities)
        self._snapshots = Snapshots(self._capabilities)
        self._exports = Exports(self._capabilities)
        self._shards = ShardMappings(durable)
        self._statuses = Statuses()
        self._placement = Placement(self._capabilities, self._exports, self._statuses)
        self._sinces = DurableSinces(self._capabilities, self._placement, self._shards)
        self._responses: deque[Response] = deque()
        self._effects: list[Effect] = []

    # Instances, replicas, configuration: M1, M2, M4 to M6

    def initialization_complete(self) -> None:
        """Tells every instance, and those to come, that everything there is was sent (M1)."""
        self._effects += self._placement.initialization_complete()

    def update_configuration(self, parameters: Mapping[str, str]) -> None:
        """Merges the parameters into the configuration, for present and future instances (M2).

        ``finalize_shards`` = ``off`` keeps dropped shards from being finalized.
        """
        self._effects += self._placement.update_configuration(parameters)

    def create_instance(self, instance_id: str) -> None:
        """A new instance without replicas (M4). A known id is a FatalError."""
        self._effects += self._placement.create_instance(instance_id)

    def drop_instance(self, instance_id: str) -> None:
        """Forgets the instance; what is left for its replicas to be told is lost (M5).

        A later form: replicas that are still attached are detached first, so that none leaks.
        """
        self._effects += self._placement.drop_instance(instance_id)

    def connect_replica(self, instance_id: str, replica: str, location: str) -> None:
        """Attaches a replica and tells it what it must know (M6).

        A later form: an instance may have several replicas, by name. A repeated connect starts
        over with the same replica.
        """
        self._effects += self._placement.connect_replica(instance_id, replica, location)

    def drop_replica(self, instance_id: str, replica: str) -> None:
        """Detaches a replica; nobody waits any longer for what it was to give up."""
        self._effects += self._placement.drop_replica(instance_id, replica)

    def working_on_dropped(self) -> Mapping[GlobalId, frozenset[ReplicaKey]]:
        """Dropped objects, and the replicas that have not said yet that they gave them up."""
        return self._placement.working_on_dropped()

    # Collections: M3, M7 to M10, M16, M19

    def collection(self, global_id: GlobalId) -> CollectionState:
        """The collection as it is now (M3, M7). Raises IDENTIFIER_MISSING.

        A later form: a collection that was dropped and that nobody holds is gone.
        """
        return self._capabilities.state(global_id)

    def collections(self) -> Iterator[tuple[GlobalId, CollectionState]]:
        """All collections as they are now (M8)."""
        for global_id, state in list(self._capabilities.collections.items()):
            self._capabilities.settle(state)
            yield global_id, state

    def map_shards(self, mapped: Iterable[tuple[GlobalId, int]]) -> None:
        """A durable definition gave these shards to these objects. Raises SHARD_ALREADY_IN_USE."""
        self._shards.map(mapped)

    def give_up_shards(self, ids: Iterable[GlobalId]) -> None:
        """A durable definition dropped these objects: their shards are to be finalized."""
        self._shards.give_up(ids)

    def create_collections(
        self,
        collections: Sequence[tuple[GlobalId, CollectionDescription]],
        metadata: Mapping[GlobalId, CollectionMetadata],
    ) -> None:
        """Installs collections whose shards are mapped (M10), inputs before what reads them.

        A later form: the mappings are made by the definition's own transaction, before; and an
        identical collection may be created again, with no effect. Each is readable from its since
        on and stays so until a read policy is set. Ingestions are sent to their instances. Raises,
        with no effect, COLLECTION_ID_REUSED, IDENTIFIER_MISSING (no mapping, or a remap collection
        or ingestion that does not exist), INGESTION_INSTANCE_MISSING, SHARD_ALREADY_IN_USE,
        READ_BEFORE_SINCE.
        """
        new = unknown(collections, self._capabilities)
        creation = Creation(new, metadata, self._capabilities)
        creation.check(self._shards, self._placement)
        runs: dict[GlobalId, None] = {}
        for global_id in creation.by_dependency():
            description, found = new[global_id], metadata[global_id]
            dependencies = creation.dependencies(global_id)
            self._capabilities.add(global_id, description, found, dependencies)
            self._shards.opened(found.shards)
            self._sinces.opened(global_id, found)
            match description.data_source:
                case IngestionDescription():
                    runs[global_id] = None
                case IngestionExport(ingestion):
                    runs[ingestion] = None
                case _:
                    pass
        self._effects += self._placement.run_ingestions(runs)

    def drop_sources(self, ids: Iterable[GlobalId]) -> None:
        """Gives up those of the collections that exist (M19).

        Holds keep a dropped collection readable; when the last one ends its since becomes empty,
        durably and at once, and its shards can be finalized. A dropped ingestion stops writing at
        once. Idempotent. A later form: the ingestion of a dropped export goes on without it.
        """
        changed: dict[GlobalId, None] = {}
        for global_id in ids:
            state = self._capabilities.collections.get(global_id)
            if state is None or state.is_dropped:
                continue
            source = state.description.data_source
            self._capabilities.drop(state)
            if isinstance(source, IngestionExport):
                changed[source.ingestion] = None
            if isinstance(source, IngestionDescription):
                self._effects += self._placement.stop(global_id, source.instance)
            self._effects += self._statuses.report(global_id, "dropped")
        known = self._capabilities.collections
        self._effects += self._placement.run_ingestions(
            i for i in changed if i in known and not known[i].is_dropped
        )

    def owners(self, shard_ids: Iterable[int]) -> dict[int, GlobalId]:
        """The objects that the shards belong to, durably. Shards of none are left out."""
        return self._shards.owners_of(shard_ids)

    # Exports: M11 to M15, M17, M18

    def export(self, global_id: GlobalId) -> ExportState:
        """The export (M11, M12). Raises IDENTIFIER_MISSING."""
        return self._exports.get(global_id)

    def exports(self) -> Iterator[tuple[GlobalId, ExportState]]:
        """All exports."""
        return iter(list(self._exports.states.items()))

    def prepare_export(self, global_id: GlobalId, from_id: GlobalId) -> CreateExportToken:
        """Holds the input from its since on, while the as-of of the export is chosen (M14).

        A later form: the hold is at the effective since, so that every time that anybody can still
        read may be chosen. Raises SINK_ID_REUSED, IDENTIFIER_MISSING.
        """
        return self._exports.prepare(global_id, from_id)

    def cancel_prepare_export(self, token: CreateExportToken) -> None:
        """Gives up what was prepared (M15). A token that was used has no effect."""
        self._exports.cancel(token)

    def create_exports(
        self, exports: Sequence[tuple[CreateExportToken, ExportDescription]]
    ) -> None:
        """Creates exports from prepared tokens and runs them (M13).

        Where an export begins is recorded once, and moved on only by a since that is later (2.5).
        Raises, with no effect, SINK_ID_REUSED, INVALID_USAGE (a used token, another input),
        EXPORT_INSTANCE_MISSING.
        """
        ids = [token.id for token, _ in exports]
        if len(set(ids)) < len(ids):
            raise StorageError(Variant.SINK_ID_REUSED, ids)
        for token, description in exports:
            self._exports.check(token, description)
            if not self._placement.has_instance(description.instance):
                raise StorageError(Variant.EXPORT_INSTANCE_MISSING, [token.id])
        for token, description in exports:
            state = self._exports.create(token, description)
            run = RunSink(token.id, description, state.as_of)
            self._effects += self._placement.run(description.instance, run)

    def alter_export(self, global_id: GlobalId, description: ExportDescription) -> None:
        """Lets an export go on with another input, where it is (2.5).

        Raises IDENTIFIER_MISSING, INVALID_USAGE for another instance, and READ_BEFORE_SINCE with
        the input when that cannot be read just before what the export has written.
        """
        state = self._exports.get(global_id)
        self._exports.alter(state, description)
        run = RunSink(global_id, description, state.as_of)
        self._effects += self._placement.run(description.instance, run)

    def drop_sinks(self, ids: Iterable[GlobalId]) -> None:
        """Gives up those of the exports that exist (M18).

        A later form, which can be repeated: the hold is released by identity, the state is removed,
        and replicas are told that nothing of it is needed.
        """
        for global_id in ids:
            state = self._exports.states.get(global_id)
            if state is None:
                continue
            self._exports.drop(state)
            self._effects += self._placement.stop(global_id, state.description.instance)
            self._effects += self._statuses.report(global_id, "dropped")

    # Data: M20, M21

    def append(
        self,
        commands: Sequence[CollectionAppend],
        tables_upper: Frontier | None = None,
        extras: object = None,
    ) -> int:
        """Appends rows and moves uppers, all or nothing; answered by `AnswerAppend` (M20).

        A later form: one commit over all collections, and an unknown id is refused. The upper that
        tables and sources share moves to `tables_upper`, also without rows for any of them; `also`
        goes with the commit. Returns the ticket of the answer. Raises, with nothing written,
        UPDATE_BEYOND_UPPER, IDENTIFIER_MISSING, INVALID_UPPERS for an upper that is behind,
        INVALID_USAGE when an id comes twice, collections that share an upper are to get different
        ones, or rows are for a shard of another collection.
        """
        effect = self._appends.append(commands, tables_upper, extras)
        self._effects.append(effect)
        return effect.ticket

    def snapshot(self, global_id: GlobalId, as_of: Timestamp) -> int:
        """Asks for the contents at `as_of`, once they are complete (M21).

        Returns the ticket of the `ReadSnapshot`; the collection is held until the shell reports
        `SnapshotRead`. Raises IDENTIFIER_MISSING, READ_BEFORE_SINCE.
        """
        return self._snapshots.open(global_id, as_of)

    # Frontiers and capabilities: M22 to M24

    def set_read_policy(self, policies: Sequence[tuple[GlobalId, ReadPolicy]]) -> None:
        """Sets policies in the given order; the last one of an id stays (M22).

        What the ones before it allowed is not taken back: a policy never wins back history. An
        unknown id is a FatalError, and then nothing was changed. Idempotent. A policy that asks for
        the empty frontier gives up what it is set for; an export is dropped by it.
        """
        for global_id, policy in policies:
            if global_id in self._exports.states:
                continue
            if global_id not in self._capabilities.collections:
                raise FatalError(f"there is no {global_id} to set {policy} for")
        self._capabilities.set_policies(
            [(i, policy) for i, policy in policies if i not in self._exports.states]
        )
        for global_id, policy in policies:
            export = self._exports.states.get(global_id)
            if export is None:
                continue
            if policy.frontier(export.write_frontier).is_empty:
                self.drop_sinks([global_id])
            else:
                export.policy = policy
                self._exports.follow(export)

    def update_write_frontiers(self, updates: Iterable[tuple[GlobalId, Frontier]]) -> None:
        """Reports how far collections and exports are written (M23).

        A report that is behind is ignored. A collection that shares the tables upper reports for
        all that do. A later form: ids that do not exist any more are ignored, because reports of
        what was dropped arrive late.
        """
        for global_id, upper in updates:
            state = self._capabilities.collections.get(global_id)
            if state is not None:
                self._capabilities.report(state, upper)
                continue
            export = self._exports.states.get(global_id)
            if export is not None:
                self._exports.report(export, upper)

    def advance_tables(self, upper: Frontier) -> None:
        """Reports the upper that tables and sources share, at a cost that knows no collection."""
        self._capabilities.advance_tables(upper)

    @property
    def tables_upper(self) -> Frontier:
        return self._capabilities.tables_upper

    # Read holds

    def acquire_read_hold(
        self, ids: Iterable[GlobalId], holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """One hold on all of them, at `at` or at the first time at which all can be read.

        Raises IDENTIFIER_MISSING, and READ_BEFORE_SINCE with those that cannot be read at `at`.
        """
        return self._capabilities.acquire(ids, holder, at)

    def downgrade_read_hold(self, hold: ReadHold, frontier: Frontier) -> ReadHold:
        """Moves the hold forward; the empty frontier releases it.

        Raises ValueError when that would be backward, INVALID_USAGE when it was released.
        """
        return self._capabilities.downgrade(hold, frontier)

    def release_read_hold(self, hold: ReadHold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        return self._capabilities.release(hold)

    def read_holds(self) -> Iterator[ReadHold]:
        """Who holds what, by age of the holds."""
        return self._capabilities.holds()

    def oldest_read_hold(self) -> Timestamp | None:
        """The oldest time that any hold keeps."""
        return self._capabilities.oldest_hold()

    # Responses and effects: M25 to M27

    def respond(self, response: Response) -> None:
        """Takes what a replica or the shell has to say; `process` deals with it."""
        self._responses.append(response)

    def process(self) -> tuple[Effect, ...]:
        """Deals with all responses and hands over what is to be done, in order (M26).

        The last downgrade of a dropped collection is among it; other downgrades of durable sinces
        wait for `maintain`.
        """
        while self._responses:
            self._take(self._responses.popleft())
        self._effects += self._snapshots.turn()
        self._effects += self._sinces.close_collections()
        effects, self._effects = self._effects, []
        return tuple(effects)

    def maintain(
        self, limit: int, finalized_at_once: int = FINALIZED_AT_ONCE
    ) -> tuple[Effect, ...]:
        """What has time: durable sinces and compactions of at most `limit` collections, and the

        finalization of a few shards. Whatever the limits, each gets its turn.
        """
        self._effects += self._sinces.turn(limit)
        if self._placement.parameters.get("finalize_shards") != "off":
            self._effects += self._shards.finalize(finalized_at_once)
        return self.process()

    def announce_since(self, global_id: GlobalId) -> None:
        """Makes the since of the collection durable with the next effects, out of turn."""
        self._effects += self._sinces.announce(self._capabilities.state(global_id))

    def reconcile_state(self) -> None:
        """Cleans up after a crash, once all that the catalog has was created (M27).

        Shards that nobody claims are registered for finalization. Idempotent; finalization itself
        comes later. A FatalError for a shard that an object has although it was dropped.
        """
        self._effects += self._shards.reconcile()

    # Parts of the operations

    def _take(self, response: Response) -> None:
        match response:
            case FrontierUppers(uppers):
                self.update_write_frontiers(uppers)
            case DroppedIds(replica, ids):
                self._placement.gave_up(replica, ids)
            case StatusUpdate(global_id, status, error):
                if self._exists(global_id):
                    self._effects += self._statuses.report(global_id, status, error)
            case AppendDone(ticket):
                self._appended(ticket)
            case AppendRefused(ticket, uppers, tables_upper):
                self.update_write_frontiers(uppers)
                if tables_upper is not None:
                    self.advance_tables(tables_upper)
                self._effects += self._appends.refused(ticket, [each for each, _ in uppers])
            case AppendFailed(ticket):
                self._appends.failed(ticket)
            case SnapshotRead(ticket):
                self._snapshots.close(ticket)
            case ShardFinalized(shard):
                self._shards.is_gone(shard)

    def _appended(self, ticket: int) -> None:
        done = self._appends.done(ticket)
        if done is None:
            return
        if done.tables is not None:
            self.advance_tables(done.tables[1])
        self.update_write_frontiers((each.id, each.upper) for each in done.appends)
        self._effects.append(AnswerAppend(ticket))

    def _exists(self, global_id: GlobalId) -> bool:
        state = self._capabilities.collections.get(global_id)
        return global_id in self._exports.states or (state is not None and not state.is_dropped)
