"""The storage controller as a value: commands and responses go in, effects come out.

It knows no clock, no thread and no file. A shell calls its methods one at a time and carries out,
in order, what `process` and `maintain` hand over. After a `FatalError` it is not to be used again.

Source: spec controllers 2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slackwater.controller.protocol import DroppedIds, FrontierUppers, StatusUpdate
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ReadPolicy
from slackwater.storage.controller.appends import Appends, CollectionAppend, Snapshots
from slackwater.storage.controller.capabilities import Capabilities
from slackwater.storage.controller.creation import Creation, unknown
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    ExportDescription,
    IngestionDescription,
    IngestionExport,
)
from slackwater.storage.controller.effects import AnswerAppend, Effect
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.exports import CreateExportToken, Exports
from slackwater.storage.controller.placement import FINALIZATION_PARAMETER, Placement
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
    sources share. Callers use the parts directly, with the effects that their calls leave:

    * `capabilities` knows the collections, and who may read them when;
    * `exports` knows the sinks, and those that are being prepared;
    * `placement` knows the instances, their replicas, and what runs where;
    * `shards` knows which object a shard belongs to.

    The methods here are the operations that concern several of them. They have the names and,
    unless they say otherwise, the meaning of the specification; what it recommends is done: tokens
    work once, repeated policies of one id accumulate, drops can be repeated.

    It does not guarantee that an effect is carried out, nor that a report is true: it believes what
    it is told of uppers, and that a shell carries out each effect once, in order, or stops.
    """

    def __init__(self, durable: DurableState, tables_upper: Frontier) -> None:
        self._effects: list[Effect] = []
        self.capabilities = Capabilities(tables_upper)
        self._appends = Appends(self.capabilities)
        self._snapshots = Snapshots(self.capabilities)
        self.exports = Exports(self.capabilities)
        self.shards = ShardMappings(durable)
        self._statuses = Statuses(self._effects)
        self.placement = Placement(self.capabilities, self.exports, self._statuses, self._effects)
        self._sinces = DurableSinces(self.capabilities, self.placement, self.shards, self._effects)
        self._responses: deque[Response] = deque()

    # Collections: M9, M10, M16, M19

    def migrate_collections(self) -> frozenset[GlobalId]:
        """Makes the durable mappings of shards such that collections can be created (M9).

        To be called once, before the first of them. A shard that is to be finalized, and that an
        object of the catalog has, is kept. Returns the objects of which a shard is lost; they
        cannot be created. Deviates from spec M9: an upgrade changes mappings in the transaction of
        the object's entry (decision 0006).
        """
        effects, losers = self.shards.migrate()
        self._effects += effects
        return losers

    def create_collections(
        self,
        collections: Sequence[tuple[GlobalId, CollectionDescription]],
        metadata: Mapping[GlobalId, CollectionMetadata],
    ) -> None:
        """Installs collections whose shards are mapped (M10), inputs before what reads them.

        Each is readable from its since on and stays so until a read policy is set. Ingestions are
        sent to their instances. Deviates from spec M10: the mappings are made by the definition's
        own transaction, before; and an identical collection may be created again, with no effect.

        Raises, with no effect, COLLECTION_ID_REUSED, IDENTIFIER_MISSING (no mapping, or a remap
        collection or ingestion that does not exist), INGESTION_INSTANCE_MISSING,
        SHARD_ALREADY_IN_USE, READ_BEFORE_SINCE.
        """
        new = unknown(collections, self.capabilities)
        creation = Creation(new, metadata, self.capabilities)
        creation.check(self.shards, self.placement)
        runs: dict[GlobalId, None] = {}
        for global_id in creation.by_dependency():
            description, found = new[global_id], metadata[global_id]
            dependencies = creation.dependencies(global_id)
            self.capabilities.add(global_id, description, found, dependencies)
            self.shards.opened(found.shards)
            self._sinces.opened(global_id, found)
            match description.data_source:
                case IngestionDescription():
                    runs[global_id] = None
                case IngestionExport(ingestion):
                    runs[ingestion] = None
                case _:
                    pass
        self.placement.run_ingestions(runs)

    def drop_sources(self, ids: Iterable[GlobalId]) -> None:
        """Gives up those of the collections that exist (M19).

        Holds keep a dropped collection readable; when the last one ends its since becomes empty,
        durably and at once, and its shards can be finalized. A dropped ingestion stops writing at
        once. Idempotent. Deviates from spec M19: the ingestion of a dropped export goes on
        without it.
        """
        changed: dict[GlobalId, None] = {}
        for global_id in ids:
            state = self.capabilities.collections.get(global_id)
            if state is None or state.is_dropped:
                continue
            source = state.description.data_source
            self.capabilities.drop(state)
            if isinstance(source, IngestionExport):
                changed[source.ingestion] = None
            if isinstance(source, IngestionDescription):
                self.placement.stop(global_id, source.instance)
            self._statuses.report(global_id, "dropped")
        known = self.capabilities.collections
        self.placement.run_ingestions(i for i in changed if i in known and not known[i].is_dropped)

    # Exports: M13, M17, M18

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
            self.exports.check(token, description)
            if not self.placement.has_instance(description.instance):
                raise StorageError(Variant.EXPORT_INSTANCE_MISSING, [token.id])
        for token, description in exports:
            state = self.exports.create(token, description)
            run = RunSink(token.id, description, state.as_of)
            self.placement.run(description.instance, run)

    def alter_export(self, global_id: GlobalId, description: ExportDescription) -> None:
        """Lets an export go on with another input, where it is (2.5).

        Raises IDENTIFIER_MISSING, INVALID_USAGE for another instance, and READ_BEFORE_SINCE with
        the input when that cannot be read just before what the export has written.
        """
        state = self.exports.get(global_id)
        self.exports.alter(state, description)
        run = RunSink(global_id, description, state.as_of)
        self.placement.run(description.instance, run)

    def move_ingestion(self, global_id: GlobalId, instance_id: str) -> None:
        """Lets an ingestion go on on another instance, from what its collections have.

        The old one is told to end before the new one is told to begin. Raises IDENTIFIER_MISSING,
        INGESTION_INSTANCE_MISSING.
        """
        state = self.capabilities.live(global_id)
        source = state.description.data_source
        if not isinstance(source, IngestionDescription):
            raise StorageError(Variant.IDENTIFIER_MISSING, [global_id])
        if not self.placement.has_instance(instance_id):
            raise StorageError(Variant.INGESTION_INSTANCE_MISSING, [global_id])
        if source.instance == instance_id:
            return
        self.placement.stop(global_id, source.instance)
        moved = replace(source, instance=instance_id)
        state.description = replace(state.description, data_source=moved)
        self.placement.run_ingestions([global_id])

    def move_export(self, global_id: GlobalId, instance_id: str) -> None:
        """Lets an export go on on another instance, where it is; see `move_ingestion`.

        Raises IDENTIFIER_MISSING, EXPORT_INSTANCE_MISSING.
        """
        state = self.exports.get(global_id)
        if not self.placement.has_instance(instance_id):
            raise StorageError(Variant.EXPORT_INSTANCE_MISSING, [global_id])
        if state.description.instance == instance_id:
            return
        self.placement.stop(global_id, state.description.instance)
        state.description = replace(state.description, instance=instance_id)
        self.placement.run(instance_id, RunSink(global_id, state.description, state.as_of))

    def drop_sinks(self, ids: Iterable[GlobalId]) -> None:
        """Gives up those of the exports that exist (M18).

        Deviates from spec M18, and can be repeated: the hold is released by identity, the state is
        removed, and replicas are told that nothing of it is needed.
        """
        for global_id in ids:
            state = self.exports.states.get(global_id)
            if state is None:
                continue
            self.exports.drop(state)
            self.placement.stop(global_id, state.description.instance)
            self._statuses.report(global_id, "dropped")

    # Data: M20, M21

    def append(
        self,
        commands: Sequence[CollectionAppend],
        tables_upper: Frontier | None = None,
        extras: object = None,
    ) -> int:
        """Appends rows and moves uppers, all or nothing; answered by `AnswerAppend` (M20).

        The upper that tables and sources share moves to `tables_upper`, also without rows for any
        of them; `extras` goes with the commit. Returns the ticket of the answer. Deviates from spec
        M20: it is one commit over all collections, and an unknown id is refused.

        Raises, with nothing written, UPDATE_BEYOND_UPPER, IDENTIFIER_MISSING, INVALID_UPPERS for an
        upper that is behind, INVALID_USAGE when an id comes twice, collections that share an upper
        are to get different ones, or rows are for a shard of another collection.
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

    # Frontiers and policies: M22, M23

    def set_read_policy(self, policies: Sequence[tuple[GlobalId, ReadPolicy]]) -> None:
        """Sets policies in the given order; the last one of an id stays (M22).

        What the ones before it allowed is not taken back: a policy never wins back history. An
        unknown id is a FatalError, and then nothing was changed. Idempotent. A policy that asks for
        the empty frontier gives up what it is set for; an export is dropped by it.
        """
        for global_id, policy in policies:
            if global_id in self.exports.states:
                continue
            if global_id not in self.capabilities.collections:
                raise FatalError(f"there is no {global_id} to set {policy} for")
        self.capabilities.set_policies(
            [(i, policy) for i, policy in policies if i not in self.exports.states]
        )
        for global_id, policy in policies:
            export = self.exports.states.get(global_id)
            if export is None:
                continue
            if policy.frontier(export.write_frontier).is_empty:
                self.drop_sinks([global_id])
            else:
                export.policy = policy
                self.exports.follow(export)

    def update_write_frontiers(self, updates: Iterable[tuple[GlobalId, Frontier]]) -> None:
        """Reports how far collections and exports are written (M23).

        A report that is behind is ignored. A collection that shares the tables upper reports for
        all that do. Deviates from spec M23: ids that do not exist any more are ignored,
        because reports of what was dropped arrive late.
        """
        for global_id, upper in updates:
            state = self.capabilities.collections.get(global_id)
            if state is not None:
                self.capabilities.report(state, upper)
                continue
            export = self.exports.states.get(global_id)
            if export is not None:
                self.exports.report(export, upper)

    # Responses and effects: M26, M27

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
        self._sinces.close_collections()
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def maintain(
        self, limit: int, finalized_at_once: int = FINALIZED_AT_ONCE
    ) -> tuple[Effect, ...]:
        """Moves the durable sinces of at most `limit` collections, and finalizes a few shards.

        Whatever the limits, each gets its turn.
        """
        self._sinces.turn(limit)
        if self.placement.parameters.get(FINALIZATION_PARAMETER) != "off":
            self._effects += self.shards.finalize(finalized_at_once)
        return self.process()

    def announce_since(self, global_id: GlobalId) -> None:
        """Makes the since of the collection durable with the next effects, out of turn."""
        self._sinces.announce(self.capabilities.state(global_id))

    def reconcile_state(self) -> None:
        """Cleans up after a crash, once all that the catalog has was created (M27).

        Shards that nobody claims are registered for finalization. Idempotent; finalization itself
        comes later.
        """
        self._effects += self.shards.reconcile()

    def validate(self) -> None:
        """Raises FatalError unless the parts agree with themselves and with each other."""
        self.capabilities.validate()
        self.exports.validate()
        self.placement.validate()
        known = [*self.capabilities.collections.values(), *self.capabilities.closed]
        self.shards.validate(shard for state in known for shard in state.metadata.shards)

    # Parts of the operations

    def _take(self, response: Response) -> None:
        match response:
            case FrontierUppers(uppers):
                self.update_write_frontiers(uppers)
            case DroppedIds():
                # Late reports of what was dropped are ignored anyway.
                pass
            case StatusUpdate(global_id, status, error):
                if self._exists(global_id):
                    self._statuses.report(global_id, status, error)
            case AppendDone(ticket):
                self._appended(ticket)
            case AppendRefused(ticket, uppers, tables_upper):
                self.update_write_frontiers(uppers)
                if tables_upper is not None:
                    self.capabilities.advance_tables(tables_upper)
                self._effects += self._appends.refused(ticket, [each for each, _ in uppers])
            case AppendFailed(ticket):
                self._appends.failed(ticket)
            case SnapshotRead(ticket):
                self._snapshots.close(ticket)
            case ShardFinalized(shard):
                self.shards.is_gone(shard)

    def _appended(self, ticket: int) -> None:
        done = self._appends.done(ticket)
        if done is None:
            return
        if done.tables is not None:
            self.capabilities.advance_tables(done.tables[1])
        self.update_write_frontiers((each.id, each.upper) for each in done.appends)
        self._effects.append(AnswerAppend(ticket))

    def _exists(self, global_id: GlobalId) -> bool:
        state = self.capabilities.collections.get(global_id)
        return global_id in self.exports.states or (state is not None and not state.is_dropped)
