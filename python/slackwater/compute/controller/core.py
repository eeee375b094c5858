"""The compute controller as a value: operations and responses go in, effects come out.

It does no I/O, knows no clock and is not thread-safe. The operations are those of the
specification, in the order in which a program uses them:

start       `create_instance`, `update_configuration`, `restore` with all dataflows of the catalog
            (or `create_dataflows` with as-ofs of one's own), `set_read_policy`,
            `allow_writes`, `add_replica_to_instance`, `initialization_complete`.
definition  `create_dataflow`, then `set_read_policy` for its indexes, `allow_writes` for a view.
            From then on `collection` says how far it is, `is_hydrated` whether it can be read at
            its as-of, `hydration` how far that is, `dependencies` what it reads.
drop        `drop_collections`; what was held stays readable until the holds end, and the state
            goes when no replica works on it any more.
peek        `acquire_read_hold`, choose a time, `peek` with the hold, then one `AnswerPeek`;
            `cancel_peek` ends it before.
view        a replica sends `Computed`, `CommitOutput` is carried out, and `OutputCommitted`,
            `OutputRefused` or `OutputFailed` comes back.
loss        a connection that ends is told by `ReplicaFailed`; `maintain` connects again, and the
            replica is told everything anew, with the peeks that have no answer.
always      `respond` with each response, `process` as long as `ready`, `maintain` once a second;
            each returns effects that a shell carries out in order.

Source: spec controllers 4.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from slackwater.compute.controller.as_of import FailedConstraint, Selection
from slackwater.compute.controller.collections import Collections, CollectionState
from slackwater.compute.controller.dataflows import Creation
from slackwater.compute.controller.descriptions import DataflowDescription, ExportKind
from slackwater.compute.controller.effects import (
    AnswerCopyTo,
    AnswerPeek,
    DiscardStash,
    Effect,
    RenewLease,
    ReportStatus,
    ReportViolation,
    SendToReplica,
)
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.hydration import Phase
from slackwater.compute.controller.instance import Instance, Replica, ReplicaCollection
from slackwater.compute.controller.outputs import Outputs
from slackwater.compute.controller.peeks import Peeks, PendingPeek
from slackwater.compute.controller.placement import Placement
from slackwater.compute.controller.protocol import (
    CancelPeek,
    Computed,
    CopyToAnswered,
    CopyToDropped,
    CopyToFailed,
    DataflowStatus,
    FromReplica,
    FrontierReport,
    Heartbeat,
    IndexOpened,
    OutputAdvanced,
    OutputCommitted,
    OutputFailed,
    OutputRefused,
    Peek,
    PeekAnswer,
    PeekAnswered,
    PeekCanceled,
    PeekFailed,
    ReplicaFailed,
    Response,
    SubscribeBatch,
    SubscribeDropped,
)
from slackwater.compute.controller.storage_collections import StorageCollections
from slackwater.compute.controller.subscribes import Subscribes
from slackwater.compute.peeked_rows import PeekStashed
from slackwater.controller.frontiers import CollectionFrontiers
from slackwater.controller.holds import Holder, HoldKind, ReadHold, ReleasedHold
from slackwater.controller.protocol import Parameters
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId, is_transient
from slackwater.repr.read_policy import ReadPolicy

_START = Holder(HoldKind.DEFINITION, "start")


@dataclass(frozen=True, slots=True)
class Restored:
    """The outcome of a start: the as-of of each dataflow by its first export.

    `refused`: why a dataflow was not created, which leaves the others as they are. `failed`: what
    an as-of had to keep to and does not; to be logged.
    """

    as_ofs: Mapping[GlobalId, Frontier]
    refused: Mapping[GlobalId, ComputeError]
    failed: tuple[FailedConstraint, ...]


class ComputeController:
    """The instances of an environment, their replicas, and the dataflows on them.

    Each operation that is refused has changed nothing. An error of `ComputeError` names its reason;
    what only a defect of the caller can cause is a FatalError.

    It does not guarantee that an effect is carried out, nor that a replica tells the truth: it
    believes reports, and that a shell carries out each effect once, in order, or stops. If it is
    `read_only` it never lets a replica write, and commits nothing.
    """

    def __init__(self, storage: StorageCollections, *, read_only: bool = False) -> None:
        self._storage = storage
        self._read_only = read_only
        self._effects: list[Effect] = []
        self._collections = Collections(storage)
        self._placement = Placement(self._collections, storage, self._effects)
        self._peeks = Peeks()
        self._subscribes = Subscribes()
        self._outputs = Outputs()
        self._responses: deque[Response] = deque()

    # Instances, replicas, configuration (4.2)

    def create_instance(
        self, instance_id: str, parameters: Parameters = (), logs: Sequence[GlobalId] = ()
    ) -> None:
        """Adds an instance without replicas; `logs` can be read from 0 on.

        `parameters` are what its replicas are made with, and never change. Raises INSTANCE_EXISTS,
        COLLECTION_ID_REUSED for a log.
        """
        if self._placement.find(instance_id) is not None:
            raise ComputeError(Variant.INSTANCE_EXISTS, [instance_id])
        reused = [each for each in logs if each in self._collections.states]
        if reused or len(set(logs)) < len(logs):
            raise ComputeError(Variant.COLLECTION_ID_REUSED, reused or logs)
        self._placement.create_instance(instance_id, parameters, logs)

    def drop_instance(self, instance_id: str) -> None:
        """Removes the instance, its replicas and its collections; an unknown one is ignored.

        Peeks and subscriptions end with an error, and whoever holds a collection holds nothing.
        Deviates from spec 4.2: replicas that are left are dropped first, so that none leaks.
        """
        instance = self._placement.find(instance_id)
        if instance is None:
            return
        for name in list(instance.replicas):
            self._remove(instance, name)
        for pending in self._peeks.of_instance(instance_id):
            self._finish(pending.peek.peek_id, PeekFailed("the instance was dropped"))
        for state in list(self._collections.states.values()):
            if state.instance == instance_id:
                self._fail_sink(state, "the instance was dropped")
        self._placement.forget_instance(instance_id)

    def add_replica_to_instance(self, instance_id: str, name: str, location: str) -> None:
        """Connects to the replica and tells it everything that it must know.

        Raises INSTANCE_MISSING, REPLICA_EXISTS.
        """
        instance = self._placement.instance(instance_id)
        if name in instance.replicas:
            raise ComputeError(Variant.REPLICA_EXISTS, [instance_id, name])
        self._placement.connect(instance, name, location)

    def drop_replica(self, instance_id: str, name: str) -> None:
        """Gives up the replica; what only it was asked ends with an error, the rest goes on.

        Raises INSTANCE_MISSING, REPLICA_MISSING.
        """
        self._placement.replica(instance_id, name)
        self._remove(self._placement.instance(instance_id), name)

    def update_configuration(self, parameters: Mapping[str, str]) -> None:
        """Merges the parameters into the configuration, for present and future replicas.

        ``compute_hydration_concurrency`` says how many dataflows may hydrate at once on a replica;
        ValueError unless it is a number from 1 on.
        """
        self._placement.update_configuration(parameters)

    def initialization_complete(self) -> None:
        """Tells all replicas that all there is was sent, so that they drop what was not."""
        self._placement.initialization_complete()

    @property
    def instances(self) -> tuple[str, ...]:
        """The ids of all instances."""
        return self._placement.instances

    # Dataflows (4.4 to 4.6)

    def create_dataflow(
        self,
        instance_id: str,
        dataflow: DataflowDescription,
        target_replica: str | None = None,
    ) -> None:
        """Creates one dataflow, as `create_dataflows` does."""
        self.create_dataflows(instance_id, [dataflow], target_replica)

    def create_dataflows(
        self,
        instance_id: str,
        dataflows: Sequence[DataflowDescription],
        target_replica: str | None = None,
    ) -> None:
        """Creates dataflows, all or none, each after those that it reads.

        The imports stay readable at the as-of until the exports have moved on or are dropped (I40).
        The id of a dropped collection may be used again if no other collection reads that: whoever
        still held it holds nothing then, peeks of it fail, and replicas may not be done with it.
        `target_replica`: only that one computes them; for an index that is a FatalError.

        Raises, with no effect: INSTANCE_MISSING, REPLICA_MISSING, COLLECTION_ID_REUSED for a second
        definition, MISSING_AS_OF, EMPTY_AS_OF_FOR_SUBSCRIBE, EMPTY_AS_OF_FOR_COPY_TO,
        COLLECTION_MISSING for an import or an output, SINCE_VIOLATION.
        """
        instance = self._placement.instance(instance_id)
        if target_replica is not None:
            self._placement.replica(instance_id, target_replica)
        creation = Creation(instance_id, self._collections, self._storage)
        for dataflow in dataflows:
            creation.check(dataflow, target_replica)
        for dataflow in dataflows:
            self._give_ids(dataflow.export_ids)
            for state in self._placement.install(instance, dataflow, target_replica):
                if state.kind is ExportKind.SUBSCRIBE:
                    self._subscribes.open(state.id, dataflow.until)
                elif state.kind is ExportKind.COPY_TO:
                    self._subscribes.open_copy(state.id)

    def restore(
        self,
        dataflows: Sequence[tuple[str, DataflowDescription]],
        policies: Mapping[GlobalId, ReadPolicy],
        now: Timestamp,
    ) -> Restored:
        """Creates the dataflows of a start, each on its instance, at as-ofs chosen together (4.6).

        They may come in any order. `policies` are of indexes, and are set. What is read stays
        readable meanwhile. Raises INSTANCE_MISSING, with no effect.
        """
        for instance_id, _ in dataflows:
            self._placement.instance(instance_id)
        descriptions = [dataflow for _, dataflow in dataflows]
        stored = self._stored(descriptions)
        holds = [
            self._storage.acquire([each], _START)
            for each, found in stored.items()
            if not found.is_dropped
        ]
        selection = Selection(descriptions, stored, policies, now)
        as_ofs = selection.as_ofs()
        refused: dict[GlobalId, ComputeError] = {}
        for position in selection.by_dependency():
            instance_id, dataflow = dataflows[position]
            try:
                self.create_dataflow(instance_id, dataflow.at(as_ofs[position]))
            except ComputeError as error:
                refused[dataflow.export_ids[0]] = error
                continue
            own = [(i.id, policies[i.id]) for i in dataflow.index_exports if i.id in policies]
            self.set_read_policy(instance_id, own)
        for hold in holds:
            self._storage.holds.release(hold)
        firsts = [each.export_ids[0] for each in descriptions]
        chosen = dict(zip(firsts, as_ofs, strict=True))
        return Restored(chosen, refused, tuple(selection.failed))

    def drop_collections(self, instance_id: str, ids: Iterable[GlobalId]) -> None:
        """Gives up the collections, which nobody can name from then on.

        Holds keep a dropped collection readable, and inputs stay held until replicas are done.
        Raises, with no effect, INSTANCE_MISSING, COLLECTION_MISSING.
        """
        self._placement.instance(instance_id)
        states = [self._collections.live(instance_id, each) for each in dict.fromkeys(ids)]
        for state in states:
            self._drop(state)

    def set_read_policy(
        self, instance_id: str, policies: Sequence[tuple[GlobalId, ReadPolicy]]
    ) -> None:
        """Sets policies in the given order; the last one of an id stays.

        A policy never wins back history. One that asks for the empty frontier drops the collection.
        Raises, with no effect, INSTANCE_MISSING, COLLECTION_MISSING, WRITE_ONLY_COLLECTION.
        """
        self._placement.instance(instance_id)
        found = [(self._collections.live(instance_id, i), policy) for i, policy in policies]
        written = [state.id for state, _ in found if not state.kind.is_readable]
        if written:
            raise ComputeError(Variant.WRITE_ONLY_COLLECTION, written)
        for state in self._collections.set_policies(found):
            self._drop(state)

    def acquire_read_hold(
        self,
        instance_id: str,
        global_id: GlobalId,
        holder: Holder,
        at: Timestamp | None = None,
    ) -> ReadHold:
        """A hold at `at`, or at the first time at which the collection can be read.

        Raises INSTANCE_MISSING, COLLECTION_MISSING, SINCE_VIOLATION.
        """
        return self._collections.acquire(self.collection(instance_id, global_id), holder, at)

    def downgrade_read_hold(self, hold: ReadHold, frontier: Frontier) -> ReadHold:
        """Moves the hold forward. Raises ValueError when backward, ReleasedHold when released."""
        return self._collections.holds.downgrade(hold, frontier)

    def release_read_hold(self, hold: ReadHold) -> bool:
        """Ends the hold. False, and no effect, when it had been released before."""
        return self._collections.holds.release(hold)

    def allow_writes(self, instance_id: str, global_id: GlobalId) -> None:
        """Lets replicas offer what they compute for the collection, for ever.

        Nothing happens the second time, for an empty as-of, and in a controller that is read-only.
        Raises INSTANCE_MISSING, COLLECTION_MISSING.
        """
        state = self.collection(instance_id, global_id)
        if not self._read_only:
            self._placement.allow_writes(state)

    # Peeks (4.8)

    def peek(
        self,
        instance_id: str,
        peek: Peek,
        target_replica: str | None = None,
        hold: ReadHold | None = None,
    ) -> None:
        """Reads an index at the time of the peek; answered once, by `AnswerPeek` (I46).

        `hold` is taken over: it keeps nothing for the caller any more. Without replicas the answer
        waits for one. An id that is under way is a FatalError.

        Raises, with no effect: INSTANCE_MISSING, REPLICA_MISSING, COLLECTION_MISSING,
        SINCE_VIOLATION, READ_HOLD_ID_MISMATCH, READ_HOLD_INSUFFICIENT, READ_HOLD_MISSING.
        """
        instance = self._placement.instance(instance_id)
        if target_replica is not None:
            self._placement.replica(instance_id, target_replica)
        state = self._collections.live(instance_id, peek.id)
        if not state.kind.is_readable:
            raise ComputeError(Variant.COLLECTION_MISSING, [peek.id], "it is no index")
        if hold is not None:
            self._check_hold(hold, peek)
        holder = Holder(HoldKind.PEEK, peek.peek_id)
        if self._peeks.get(peek.peek_id) is not None:
            raise FatalError(f"a peek {peek.peek_id} is under way")
        own = self._collections.acquire(state, holder, peek.time)
        if hold is not None:
            self._collections.holds.release(hold)
        self._peeks.open(PendingPeek(peek, instance_id, target_replica, own))
        if target_replica is not None:
            instance.peek_targets[peek.peek_id] = target_replica
        self._effects += instance.send(peek)

    def cancel_peek(self, peek_id: str) -> None:
        """Answers the peek with `PeekCanceled`, unless it has an answer."""
        self.cancel_peeks([peek_id])

    def cancel_peeks(self, peek_ids: Iterable[str]) -> None:
        """Cancels each of the peeks."""
        for peek_id in peek_ids:
            self._finish(peek_id, PeekCanceled())

    # Looking

    def collection(self, instance_id: str, global_id: GlobalId) -> CollectionState:
        """The collection with its frontiers. Raises INSTANCE_MISSING, COLLECTION_MISSING."""
        self._placement.instance(instance_id)
        return self._collections.live(instance_id, global_id)

    def collections(self, instance_id: str) -> list[CollectionState]:
        """All collections of the instance that were not dropped. Raises INSTANCE_MISSING."""
        self._placement.instance(instance_id)
        states = self._collections.states.values()
        return [each for each in states if each.instance == instance_id and not each.is_dropped]

    def replicas(self, instance_id: str) -> Mapping[str, Replica]:
        """The replicas of the instance by name. Raises INSTANCE_MISSING."""
        return dict(self._placement.instance(instance_id).replicas)

    def replica_frontiers(
        self, instance_id: str, global_id: GlobalId
    ) -> Mapping[str, ReplicaCollection]:
        """The progress of each replica with the collection. Raises as `collection` does."""
        self.collection(instance_id, global_id)
        replicas = self._placement.instance(instance_id).replicas
        return {
            name: replica.collections[global_id]
            for name, replica in replicas.items()
            if global_id in replica.collections
        }

    def peeks(self, instance_id: str) -> list[Peek]:
        """The peeks of the instance that have no answer yet, the oldest first."""
        return [pending.peek for pending in self._peeks.of_instance(instance_id)]

    def statuses(self, instance_id: str, global_id: GlobalId) -> Mapping[str, DataflowStatus]:
        """The last status of the collection on each replica that told one."""
        self.collection(instance_id, global_id)
        replicas = self._placement.instance(instance_id).replicas
        return {n: r.statuses[global_id] for n, r in replicas.items() if global_id in r.statuses}

    def dependencies(
        self, instance_id: str, global_id: GlobalId
    ) -> tuple[tuple[GlobalId, ...], tuple[GlobalId, ...]]:
        """The stored collections that it reads, then the compute ones."""
        state = self.collection(instance_id, global_id)
        return state.stored_ids, state.dependencies

    def is_hydrated(self, instance_id: str, global_id: GlobalId) -> bool:
        """True if a replica has the contents at the as-of, or if there is no replica."""
        if self.collection(instance_id, global_id).as_of.is_empty:
            return True
        hosted = self.replica_frontiers(instance_id, global_id).values()
        return not hosted or any(each.is_hydrated for each in hosted)

    def hydration(self, instance_id: str, global_id: GlobalId) -> Mapping[str, Phase]:
        """The phase of the collection's hydration on each replica that has it."""
        hosted = self.replica_frontiers(instance_id, global_id)
        replicas = self._placement.instance(instance_id).replicas
        return {
            name: Phase.HYDRATED if each.is_hydrated else replicas[name].hydration.phase(global_id)
            for name, each in hosted.items()
        }

    def are_hydrated(
        self,
        instance_id: str,
        replicas: Sequence[str] | None = None,
        exclude: frozenset[GlobalId] = frozenset(),
    ) -> bool:
        """True if each collection is hydrated on one of the replicas, or on any.

        Transient ones, and those in `exclude`, do not count. Raises INSTANCE_MISSING, and
        HYDRATION_CHECK_BAD_TARGET if there are replicas, and none of those that were named.
        """
        known = self._placement.instance(instance_id).replicas
        if not known:
            return True
        chosen = known.values() if replicas is None else [known[i] for i in replicas if i in known]
        if not chosen:
            raise ComputeError(Variant.HYDRATION_CHECK_BAD_TARGET, replicas or ())
        for state in self.collections(instance_id):
            if is_transient(state.id) or state.id in exclude or state.as_of.is_empty:
                continue
            hosted = [r.collections[state.id] for r in chosen if state.id in r.collections]
            if hosted and not any(each.is_hydrated for each in hosted):
                return False
        return True

    # Responses and effects

    def respond(self, response: Response) -> None:
        """Takes what a replica or the shell has to say; `process` deals with it."""
        self._responses.append(response)

    @property
    def is_waiting(self) -> bool:
        """True if a dataflow waits for its inputs to have its as-of: `process` looks for that."""
        return self._placement.is_waiting

    def ready(self) -> bool:
        """True if `process` has something to do."""
        return bool(self._responses or self._effects) or self._placement.ready()

    def process(self) -> tuple[Effect, ...]:
        """Deals with all responses and hands over what is to be done, in order.

        Sinces that moved are told to replicas at the end, after the last word on peeks (trap 14).
        """
        while self._responses:
            self._take(self._responses.popleft())
        self._placement.schedule_ready()
        self._placement.compact()
        self._placement.forget_finished()
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def maintain(self) -> tuple[Effect, ...]:
        """Connects to failed replicas again, and looks at what is stored; then `process`.

        Called about once a second, after the responses so far.
        """
        self.look_around()
        return self.process()

    def look_around(self) -> None:
        """As `maintain`; what follows is left for `process`."""
        for name, replica in list(self._placement.failed()):
            instance = self._placement.instance(replica.key.instance)
            self._remove(instance, name)
            self._placement.connect(instance, name, replica.location)
        self._placement.keep_up()

    def validate(self) -> None:
        """Raises FatalError unless the parts agree with themselves and with each other.

        I9 to I12, I15, I16, I38, I40 to I42 and I48 hold, and each peek has its hold (I46).
        """
        self._collections.validate()
        self._placement.validate()
        self._peeks.validate(self._collections.holds)
        self._subscribes.validate()
        self._outputs.validate()

    # Parts of the operations

    def _stored(
        self, descriptions: Sequence[DataflowDescription]
    ) -> dict[GlobalId, CollectionFrontiers]:
        ids: dict[GlobalId, None] = {}
        for each in descriptions:
            ids |= dict.fromkeys((*each.source_ids, *each.target_ids))
        frontiers = {each: self._storage.frontiers(each) for each in ids}
        return {each: found for each, found in frontiers.items() if found is not None}

    def _give_ids(self, ids: Iterable[GlobalId]) -> None:
        """Ends what still reads dropped collections of these ids, which are used again."""
        for global_id in ids:
            state = self._collections.states.get(global_id)
            if state is None:
                continue
            for pending in self._peeks.of_instance(state.instance):
                if pending.peek.id == global_id:
                    self._finish(pending.peek.peek_id, PeekFailed("the collection was dropped"))
            self._placement.give_id(state)

    def _drop(self, state: CollectionState) -> None:
        self._collections.drop(state)
        self._subscribes.close(state.id)
        self._placement.dropped(state)

    def _check_hold(self, hold: ReadHold, peek: Peek) -> None:
        try:
            current = self._collections.holds.current(hold)
        except ReleasedHold:
            raise ComputeError(Variant.READ_HOLD_MISSING, [peek.id]) from None
        if current.ids != {peek.id}:
            raise ComputeError(Variant.READ_HOLD_ID_MISMATCH, sorted(current.ids))
        if current.since > peek.time:
            raise ComputeError(Variant.READ_HOLD_INSUFFICIENT, [peek.id], f"at {current.since}")

    def _finish(self, peek_id: str, answer: PeekAnswer) -> None:
        """The client is answered, then no replica works for it, then nothing is held (trap 14)."""
        pending = self._peeks.close(peek_id)
        if pending is None:
            return
        self._effects.append(AnswerPeek(peek_id, answer))
        instance = self._placement.instance(pending.instance)
        self._effects += instance.send(CancelPeek(peek_id))
        instance.peek_targets.pop(peek_id, None)
        self._collections.holds.release(pending.hold)

    def _fail_sink(self, state: CollectionState, error: str) -> None:
        delivery = self._subscribes.fail(state.id, error)
        if delivery is not None:
            self._effects.append(delivery)
        elif self._subscribes.close(state.id):
            self._effects.append(AnswerCopyTo(state.id, CopyToFailed(error)))

    def _remove(self, instance: Instance, name: str) -> None:
        self._placement.disconnect(instance, name)
        error = "the replica that it was for failed or was dropped"
        for pending in self._peeks.of_instance(instance.id):
            if pending.target_replica == name:
                self._finish(pending.peek.peek_id, PeekFailed(error))
        for global_id, target in instance.targets.items():
            if target == name:
                self._fail_sink(self._collections.states[global_id], error)

    def _take(self, response: Response) -> None:
        match response:
            case FromReplica(key, nonce):
                instance = self._placement.find(key.instance)
                replica = None if instance is None else instance.replicas.get(key.replica)
                # Whatever comes over an older connection is about a replica that is no more.
                if replica is not None and replica.nonce == nonce and not replica.has_failed:
                    self._heard(replica, response)
                elif isinstance(response.response, PeekAnswered):
                    self._unwanted(response.response.answer)
            case ReplicaFailed(key, nonce):
                self._placement.has_failed(key, nonce)
            case OutputCommitted(ticket):
                commit = self._outputs.close(ticket)
                if commit is not None:
                    self._output_is_at(commit.id, commit.upper)
            case OutputRefused(ticket, upper):
                commit = self._outputs.close(ticket)
                if commit is not None:
                    self._output_is_at(commit.id, upper)
            case OutputFailed(ticket):
                commit = self._outputs.close(ticket)
                if commit is not None:
                    self._output_is_at(commit.id, MINIMUM_FRONTIER)

    def _output_is_at(self, global_id: GlobalId, upper: Frontier) -> None:
        state = self._collections.states.get(global_id)
        if state is not None:
            stored = self._placement.stored_upper(state)
            self._placement.output_is_at(state, max(upper, stored))

    def _heard(self, replica: Replica, message: FromReplica) -> None:
        if replica.is_about_former(message.response):
            return
        match message.response:
            case FrontierReport() as report:
                self._reported(replica, report)
            case PeekAnswered(peek_id, answer):
                self._peek_answered(replica, peek_id, answer)
            case SubscribeBatch() as batch:
                self._subscribed(replica, batch)
            case SubscribeDropped(global_id):
                self._ended(replica, global_id)
                if self._subscribes.frontier(global_id) is not None:
                    self._violation(replica, f"{global_id} is followed, and was dropped")
            case CopyToAnswered() as answered:
                self._copied(replica, answered)
            case Computed() as computed:
                self._computed(replica, computed)
            case DataflowStatus() as status:
                self._told(replica, status)
            case IndexOpened(global_id, program):
                if program is None or global_id not in replica.collections:
                    replica.programs.pop(global_id, None)
                else:
                    replica.programs[global_id] = program
            case Heartbeat(busy_ms):
                self._effects.append(RenewLease(replica.key, busy_ms))

    def _told(self, replica: Replica, status: DataflowStatus) -> None:
        if status.id not in replica.collections:
            return
        before = replica.statuses.get(status.id, DataflowStatus(status.id))
        replica.statuses[status.id] = status
        self._effects.append(ReportStatus(replica.key, before, status))
        if status.is_stalled:
            self._effects += replica.forward(replica.hydration.stalled(status.id))

    def _reported(self, replica: Replica, report: FrontierReport) -> None:
        hosted = replica.collections.get(report.id)
        if hosted is None:
            return
        violation = self._placement.report(replica, report)
        if violation is not None:
            self._violation(replica, violation)
        state = self._collections.states[report.id]
        # A view is as far as it is stored, and a subscription as far as its batches came: else a
        # new replica could begin after what the client has seen.
        theirs = (ExportKind.MATERIALIZED_VIEW, ExportKind.SUBSCRIBE)
        if report.write is not None and state.kind not in theirs:
            self._placement.advance(state, hosted.write)

    def _peek_answered(self, replica: Replica, peek_id: str, answer: PeekAnswer) -> None:
        pending = self._peeks.get(peek_id)
        if (
            pending is None
            or pending.instance != replica.key.instance
            or pending.target_replica not in (None, replica.key.replica)
        ):
            self._unwanted(answer)
            return
        if isinstance(answer, PeekCanceled):
            self._violation(replica, f"nobody has cancelled the peek {peek_id}")
        self._finish(peek_id, answer)

    def _unwanted(self, answer: PeekAnswer) -> None:
        if isinstance(answer, PeekStashed):
            self._effects.append(DiscardStash(answer.uri))

    def _subscribed(self, replica: Replica, batch: SubscribeBatch) -> None:
        hosted = replica.collections.get(batch.id)
        if hosted is None:
            return
        if hosted.write.is_empty:
            self._violation(replica, f"{batch.id} had ended, and goes on to {batch.upper}")
            return
        reached = self._subscribes.frontier(batch.id)
        if reached is not None and reached < batch.lower:
            self._violation(replica, f"{batch.id} goes on at {batch.lower}, after {reached}")
            return
        write = batch.upper if batch.upper > hosted.write else None
        output = batch.upper if batch.upper > hosted.output else None
        self._placement.report(replica, FrontierReport(batch.id, write=write, output=output))
        self._placement.advance(self._collections.states[batch.id], batch.upper)
        delivery = self._subscribes.deliver(batch)
        if delivery is not None:
            self._effects.append(delivery)

    def _copied(self, replica: Replica, answered: CopyToAnswered) -> None:
        self._ended(replica, answered.id)
        is_waited_for = self._subscribes.is_copied(answered.id)
        if isinstance(answered.answer, CopyToDropped):
            if is_waited_for:
                self._violation(replica, f"{answered.id} is waited for, and was dropped")
            return
        if is_waited_for:
            self._subscribes.close(answered.id)
            self._effects.append(AnswerCopyTo(answered.id, answered.answer))
        if answered.id in replica.collections:
            # Nobody has to read the inputs any more; the other replicas end it.
            self._placement.advance(self._collections.states[answered.id], EMPTY_FRONTIER)

    def _ended(self, replica: Replica, global_id: GlobalId) -> None:
        """The replica gives no more of a subscription or copy."""
        hosted = replica.collections.get(global_id)
        if hosted is not None:
            write = None if hosted.write.is_empty else EMPTY_FRONTIER
            output = None if hosted.output.is_empty else EMPTY_FRONTIER
            self._placement.report(replica, FrontierReport(global_id, write=write, output=output))

    def _computed(self, replica: Replica, computed: Computed) -> None:
        """The first that offers the next interval has it committed, the others go on from its end.

        A replica that another controller has let write may offer what is not to be written here.
        """
        state = self._collections.states.get(computed.id)
        if state is None or state.is_dropped or state.target is None or state.is_read_only:
            return
        if state.instance != replica.key.instance:
            return
        if computed.lower >= computed.upper:
            self._violation(replica, f"{computed.id} from {computed.lower} to {computed.upper}")
            return
        stored = self._placement.stored_upper(state)
        commit = self._outputs.offer(computed, state.target, stored, replica.key)
        if commit is not None:
            self._effects.append(commit)
        elif not self._outputs.is_under_way(computed.id):
            advanced = OutputAdvanced(computed.id, stored)
            self._effects.append(SendToReplica(replica.key, replica.nonce, advanced))

    def _violation(self, replica: Replica, message: str) -> None:
        self._effects.append(ReportViolation(replica.key, message))
