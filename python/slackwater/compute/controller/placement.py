"""Placement: the instances and their replicas, and the dataflows that were sent to them.

Source: spec controllers 4.2, 4.4, 4.5, 4.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from slackwater.compute.controller.collections import Collections, CollectionState
from slackwater.compute.controller.dataflows import state_of
from slackwater.compute.controller.descriptions import DataflowDescription, ExportKind
from slackwater.compute.controller.effects import Effect, ReportUpper
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.hydration import (
    CONCURRENCY_PARAMETER,
    DEFAULT_CONCURRENCY,
    SequentialHydration,
)
from slackwater.compute.controller.instance import (
    Instance,
    Replica,
    ReplicaCollection,
    refreshed,
)
from slackwater.compute.controller.protocol import (
    AllowWrites,
    CreateDataflow,
    CreateInstance,
    FrontierReport,
    OutputAdvanced,
    Schedule,
)
from slackwater.compute.controller.storage_collections import StorageCollections
from slackwater.controller.holds import Holder, HoldKind, ReleasedHold
from slackwater.controller.protocol import (
    AllowCompaction,
    InitializationComplete,
    Parameters,
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId, is_transient
from slackwater.repr.read_policy import ValidFrom


class Placement:
    """The instances, and what was sent to them. Not thread-safe.

    It does not guarantee that a replica does what it is told, nor when.
    """

    def __init__(
        self, collections: Collections, storage: StorageCollections, effects: list[Effect]
    ) -> None:
        """`effects` takes what is to be done, in order."""
        self._collections = collections
        self._storage = storage
        self._effects = effects
        self._instances: dict[str, Instance] = {}
        self._parameters: dict[str, str] = {}
        self._is_initialized = False
        self._connections = 0
        self._unscheduled: dict[GlobalId, CollectionState] = {}
        self._leaving: dict[GlobalId, CollectionState] = {}
        """Dropped collections of which somebody may have let go since the last look."""

    # Instances and configuration

    def instance(self, instance_id: str) -> Instance:
        """The instance. Raises INSTANCE_MISSING."""
        instance = self._instances.get(instance_id)
        if instance is None:
            raise ComputeError(Variant.INSTANCE_MISSING, [instance_id])
        return instance

    def find(self, instance_id: str) -> Instance | None:
        """The instance, if there is one."""
        return self._instances.get(instance_id)

    def replica(self, instance_id: str, name: str) -> Replica:
        """The replica. Raises INSTANCE_MISSING, REPLICA_MISSING."""
        replica = self.instance(instance_id).replicas.get(name)
        if replica is None:
            raise ComputeError(Variant.REPLICA_MISSING, [instance_id, name])
        return replica

    def create_instance(
        self, instance_id: str, parameters: Parameters, logs: Sequence[GlobalId]
    ) -> None:
        """Adds an instance, which is not there, with indexes over its logs."""
        instance = self._instances[instance_id] = Instance(instance_id)
        self._effects += instance.send(CreateInstance(parameters, tuple(logs)))
        for each in logs:
            beginning = MINIMUM_FRONTIER
            state = CollectionState(
                id=each,
                instance=instance_id,
                kind=ExportKind.LOG,
                dataflow=None,
                as_of=beginning,
                policy=ValidFrom(beginning),
                write_frontier=beginning,
                implied=beginning,
                warmup=beginning,
                is_scheduled=True,
            )
            self._collections.add(state)
        if self._parameters:
            self._effects += instance.send(
                UpdateConfiguration(tuple(sorted(self._parameters.items())))
            )
        if self._is_initialized:
            self._effects += instance.send(InitializationComplete())

    def forget_instance(self, instance_id: str) -> None:
        """Removes the instance, whose replicas are gone, with all its collections."""
        own = [each for each in self._collections.states.values() if each.instance == instance_id]
        self._collections.abandon(own)
        for state in own:
            self._unscheduled.pop(state.id, None)
            self._leaving.pop(state.id, None)
        del self._instances[instance_id]

    def initialization_complete(self) -> None:
        """Tells every instance, and those to come, that all that there is was sent."""
        self._is_initialized = True
        for instance in self._instances.values():
            self._effects += instance.send(InitializationComplete())

    def update_configuration(self, parameters: Mapping[str, str]) -> None:
        """Merges the parameters into the configuration, for present and future instances."""
        _concurrency(parameters)
        self._parameters.update(parameters)
        limit = _concurrency(self._parameters)
        command = UpdateConfiguration(tuple(sorted(parameters.items())))
        for instance in self._instances.values():
            self._effects += instance.send(command)
            for replica in instance.replicas.values():
                self._effects += replica.forward(replica.hydration.set_limit(limit))

    @property
    def parameters(self) -> Mapping[str, str]:
        """The configuration as it is now."""
        return self._parameters

    @property
    def instances(self) -> tuple[str, ...]:
        """The ids of all instances."""
        return tuple(self._instances)

    # Replicas

    def connect(self, instance: Instance, name: str, location: str) -> None:
        """Attaches a replica over a new connection and tells it all that it must know.

        Each export that it hosts begins where it can be read now, and is held there for it.
        """
        self.compact()
        self._connections += 1
        hydration = SequentialHydration(_concurrency(self._parameters))
        replica = Replica(ReplicaKey(instance.id, name), location, self._connections, hydration)
        for state in self._collections.states.values():
            is_for_it = state.target_replica in (None, name)
            if state.instance == instance.id and is_for_it and not state.since.is_empty:
                self._host(replica, state, is_new=False)
        self._effects += instance.connect(replica, self._stored_upper)

    def disconnect(self, instance: Instance, name: str) -> Replica:
        """Detaches a replica, which is known, and releases what was held for it."""
        replica, effects = instance.disconnect(name)
        self._effects += effects
        for global_id, hosted in replica.collections.items():
            self._release_inputs(hosted)
            self._may_leave(global_id)
        return replica

    def has_failed(self, key: ReplicaKey, nonce: int) -> None:
        """That connection has ended; an older one says nothing about the replica."""
        instance = self._instances.get(key.instance)
        replica = None if instance is None else instance.replicas.get(key.replica)
        if replica is not None and replica.nonce == nonce:
            replica.has_failed = True

    def failed(self) -> Iterator[tuple[str, Replica]]:
        """The replicas whose connections have ended, with their names."""
        for instance in list(self._instances.values()):
            for name, replica in list(instance.replicas.items()):
                if replica.has_failed:
                    yield name, replica

    def _host(self, replica: Replica, state: CollectionState, *, is_new: bool) -> None:
        """The replica gets a collection that can be read.

        Of a new one it may still have an older dataflow, which reads from before the as-of. What
        was created before is held already, so that also what was dropped can be held once more.
        A log begins anew.
        """
        as_of = MINIMUM_FRONTIER if state.kind is ExportKind.LOG else state.since
        hosted = ReplicaCollection(as_of, as_of, as_of, as_of)
        holder = Holder(HoldKind.REPLICA, f"{replica.key.instance}.{replica.key.replica}")
        for each in state.stored_ids:
            hosted.input_holds[each] = (
                self._storage.acquire([each], holder)
                if is_new
                else self._storage.holds.take([each], Timestamp(as_of.value), holder)
            )
        replica.collections[state.id] = hosted

    def _release_inputs(self, hosted: ReplicaCollection) -> None:
        for hold in hosted.input_holds.values():
            self._storage.holds.release(hold)
        hosted.input_holds.clear()

    def report(self, replica: Replica, report: FrontierReport) -> str | None:
        """The replica says how far it is with an export; the violation that this was, if any.

        What it has read of its stored inputs is not held for it any more.
        """
        hosted = replica.collections.get(report.id)
        if hosted is None:
            return None
        violation = hosted.take(report)
        if report.input is not None:
            for each, hold in hosted.input_holds.items():
                moved = max(hosted.input, Frontier(hold.since))
                hosted.input_holds[each] = self._storage.holds.downgrade(hold, moved)
            if hosted.input.is_empty:
                hosted.input_holds.clear()
        self._effects += replica.forward(replica.hydration.computed(report.id, hosted.output))
        if hosted.is_done:
            self._may_leave(report.id)
        return violation

    # Dataflows

    def install(
        self, instance: Instance, dataflow: DataflowDescription, target_replica: str | None
    ) -> list[CollectionState]:
        """Creates the collections of a dataflow that was checked, and sends it to its replicas.

        Of an empty as-of nothing is sent: there is nothing left to compute.
        """
        dataflow = refreshed(dataflow, self._stored_upper)
        states = [
            state_of(instance.id, dataflow, each, target_replica)
            for each in (*dataflow.index_exports, *dataflow.sink_exports)
        ]
        if target_replica is not None:
            instance.targets |= dict.fromkeys(dataflow.export_ids, target_replica)
        for state in states:
            self._collections.add(state)
        if dataflow.as_of is None or dataflow.as_of.is_empty:
            return states
        for state in states:
            for replica in instance.hosting(target_replica):
                self._host(replica, state, is_new=True)
        self._effects += instance.send(CreateDataflow(dataflow))
        for state in states:
            if state.target is not None:
                self.output_is_at(state, self._stored_upper(state.target))
            self._unscheduled[state.id] = state
            self.schedule(state)
        return states

    def schedule(self, state: CollectionState) -> None:
        """Sends `Schedule` once the inputs have the as-of, and then to what waits for this one."""
        waiting = [state]
        while waiting:
            current = waiting.pop()
            instance = self._instances[current.instance]
            if current.is_scheduled or current.since.is_empty or not self._is_ready(current):
                continue
            current.is_scheduled = True
            self._unscheduled.pop(current.id, None)
            self._effects += instance.send(Schedule(current.id))
            waiting += [self._collections.states[each] for each in sorted(current.dependents)]

    @property
    def is_waiting(self) -> bool:
        """True if something waits for its inputs."""
        return bool(self._unscheduled)

    def schedule_ready(self) -> None:
        """Schedules what waits, as far as it need not wait any more."""
        for state in list(self._unscheduled.values()):
            self.schedule(state)

    def _is_ready(self, state: CollectionState) -> bool:
        if is_transient(state.id):
            return True
        inputs = [self._collections.states[i] for i in state.dependencies if i != state.id]
        uppers = [self._stored_upper(each) for each in state.stored_ids]
        uppers += [each.write_frontier for each in inputs]
        return all(each.is_scheduled for each in inputs) and all(state.since < u for u in uppers)

    def advance(self, state: CollectionState, upper: Frontier) -> None:
        """The collection is complete up to `upper`, for the first time anywhere."""
        if self._collections.advance(state, upper):
            self._effects.append(ReportUpper(state.id, upper))
            for each in sorted(state.dependents):
                self.schedule(self._collections.states[each])

    def output_is_at(self, state: CollectionState, upper: Frontier) -> None:
        """The stored output of the view ends at `upper`; the replicas go on from there."""
        self.advance(state, upper)
        if not state.is_dropped:
            self._effects += self._instances[state.instance].send(OutputAdvanced(state.id, upper))

    def allow_writes(self, state: CollectionState) -> None:
        """Lets the replicas offer what they compute for the view. Once, and for ever."""
        if state.is_read_only and not state.as_of.is_empty:
            state.is_read_only = False
            self._effects += self._instances[state.instance].send(AllowWrites(state.id))

    def stored_upper(self, state: CollectionState) -> Frontier:
        """The upper of a view's stored output now; if that is gone, the last that was known."""
        found = None if state.target is None else self._storage.frontiers(state.target)
        return state.write_frontier if found is None else found.upper

    def _stored_upper(self, global_id: GlobalId) -> Frontier:
        found = self._storage.frontiers(global_id)
        return EMPTY_FRONTIER if found is None else found.upper

    # Compaction and the end

    def compact(self) -> None:
        """Tells the replicas the sinces that moved: what reads an index ends before it."""
        moved = self._collections.compacted.values()
        for state in sorted(moved, key=lambda each: -each.number):
            since = state.since
            if since.is_empty:
                self._may_leave(state.id)
            if not state.as_of.is_empty:
                instance = self._instances[state.instance]
                self._effects += instance.send(AllowCompaction(state.id, since))
        self._collections.compacted.clear()

    def give_id(self, state: CollectionState) -> None:
        """Forgets a dropped collection at once, whoever holds it: its id is to be used again."""
        instance = self._instances[state.instance]
        self.compact()
        if not state.since.is_empty:
            self._effects += instance.send(AllowCompaction(state.id, EMPTY_FRONTIER))
        for replica in instance.replicas.values():
            hosted = replica.collections.pop(state.id, None)
            if hosted is None:
                continue
            self._release_inputs(hosted)
            replica.statuses.pop(state.id, None)
            replica.programs.pop(state.id, None)
            if not hosted.is_done:
                replica.former.setdefault(state.id, []).append(hosted)
        instance.targets.pop(state.id, None)
        self._unscheduled.pop(state.id, None)
        self._leaving.pop(state.id, None)
        self._collections.abandon([state])

    def dropped(self, state: CollectionState) -> None:
        """The collection was dropped; it goes when nobody has anything to do with it any more."""
        self._may_leave(state.id)

    def _may_leave(self, global_id: GlobalId) -> None:
        state = self._collections.states.get(global_id)
        if state is not None and state.is_dropped:
            self._leaving[global_id] = state

    def ready(self) -> bool:
        """True if `compact` or `forget_finished` has something to do."""
        return bool(self._collections.compacted or self._leaving)

    def forget_finished(self) -> None:
        """Removes what was dropped, has no capabilities, and is finished on every replica."""
        for state in self._leaving.values():
            instance = self._instances[state.instance]
            hosting = [r for r in instance.replicas.values() if state.id in r.collections]
            finished = all(r.collections[state.id].is_done for r in hosting)
            if not state.since.is_empty or not finished:
                continue
            for replica in hosting:
                self._release_inputs(replica.collections.pop(state.id))
                replica.statuses.pop(state.id, None)
                replica.programs.pop(state.id, None)
            instance.targets.pop(state.id, None)
            self._unscheduled.pop(state.id, None)
            self._collections.forget(state)
        self._leaving.clear()

    # Upkeep

    def keep_up(self) -> None:
        """Looks at the stored collections once, and lets everything follow that depends on them.

        Views whose output others moved go on behind it; warmup capabilities follow the inputs; an
        index without replicas follows its stored inputs by its policy, so that these can be
        compacted; what can be scheduled now is.
        """
        uppers = _Uppers(self._storage)
        for state in list(self._collections.states.values()):
            if state.is_dropped or state.as_of.is_empty:
                continue
            if state.target is not None and state.write_frontier < (
                stored_upper := self.stored_upper(state)
            ):
                self.output_is_at(state, stored_upper)
            if state.since.is_empty:
                continue
            inputs = [self._collections.states[each] for each in state.dependencies]
            stored = (uppers[each] for each in state.stored_ids)
            self._collections.warm_up(state, chain(stored, (i.write_frontier for i in inputs)))
            if state.policy is not None and not self._instances[state.instance].replicas:
                self._collections.evaluate(state, self._transitive_upper(state, uppers))
        self.schedule_ready()

    def _transitive_upper(self, state: CollectionState, uppers: _Uppers) -> Frontier:
        """The earliest upper of all stored collections that it reads, directly or not."""
        found, pending, seen = EMPTY_FRONTIER, [state], {state.id}
        while pending:
            current = pending.pop()
            for each in current.stored_ids:
                found = min(found, uppers[each])
            for each in current.dependencies:
                if each not in seen:
                    seen.add(each)
                    pending.append(self._collections.states[each])
        return found

    def validate(self) -> None:
        """Raises FatalError unless replicas host what there is, with holds on what they read."""
        for instance in self._instances.values():
            instance.validate()
            for replica in instance.replicas.values():
                for global_id, hosted in replica.collections.items():
                    self._check_hosted(replica, global_id, hosted)

    def _check_hosted(
        self, replica: Replica, global_id: GlobalId, hosted: ReplicaCollection
    ) -> None:
        state = self._collections.states.get(global_id)
        if state is None or state.instance != replica.key.instance:
            raise FatalError(f"{replica.key} has {global_id}, which does not exist")
        if set(hosted.input_holds) != set(() if hosted.input.is_empty else state.stored_ids):
            raise FatalError(f"{replica.key} reads {global_id} and holds {hosted.input_holds}")
        for hold in hosted.input_holds.values():
            try:
                current = self._storage.holds.current(hold)
            except ReleasedHold as error:
                raise FatalError(f"{replica.key} does not hold an input: {error}") from None
            if current != hold:
                raise FatalError(f"{replica.key} holds {current}, and knows {hold}")


class _Uppers(dict[GlobalId, Frontier]):
    """The uppers of stored collections, each looked at once."""

    def __init__(self, storage: StorageCollections) -> None:
        super().__init__()
        self._storage = storage

    def __missing__(self, global_id: GlobalId) -> Frontier:
        found = self._storage.frontiers(global_id)
        upper = self[global_id] = EMPTY_FRONTIER if found is None else found.upper
        return upper


def _concurrency(parameters: Mapping[str, str]) -> int:
    text = parameters.get(CONCURRENCY_PARAMETER, str(DEFAULT_CONCURRENCY))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{CONCURRENCY_PARAMETER} is a number from 1 on, not {text!r}")
    return int(text)
