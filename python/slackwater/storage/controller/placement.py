"""What runs where: the instances, their replicas, and the ingestions and sinks on them.

Source: spec controllers 2.3 M1, M2, M4 to M6, 2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slackwater.controller.protocol import (
    AllowCompaction,
    InitializationComplete,
    ReplicaKey,
    UpdateConfiguration,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.capabilities import Capabilities, CollectionState
from slackwater.storage.controller.descriptions import IngestionDescription, IngestionExport
from slackwater.storage.controller.effects import Effect
from slackwater.storage.controller.exports import Exports
from slackwater.storage.controller.instance import Instance
from slackwater.storage.controller.protocol import RunIngestion, RunSink
from slackwater.storage.controller.statuses import Statuses


class Placement:
    """The instances, and what was sent to them. Not thread-safe.

    Which collections and exports there are is only looked up here. What is to be done for a call
    is returned, in order.
    """

    def __init__(self, capabilities: Capabilities, exports: Exports, statuses: Statuses) -> None:
        self._capabilities = capabilities
        self._exports = exports
        self._statuses = statuses
        self._instances: dict[str, Instance] = {}
        self._parameters: dict[str, str] = {}
        self._initialized = False
        self._working: dict[GlobalId, set[ReplicaKey]] = {}

    # Instances, replicas, configuration

    def initialization_complete(self) -> list[Effect]:
        """See `StorageController.initialization_complete`."""
        self._initialized = True
        return [
            effect
            for instance in self._instances.values()
            for effect in instance.send(InitializationComplete())
        ]

    def update_configuration(self, parameters: Mapping[str, str]) -> list[Effect]:
        """See `StorageController.update_configuration`."""
        self._parameters.update(parameters)
        command = UpdateConfiguration(tuple(sorted(parameters.items())))
        return [
            effect for instance in self._instances.values() for effect in instance.send(command)
        ]

    @property
    def parameters(self) -> Mapping[str, str]:
        """The configuration as it is now."""
        return self._parameters

    def create_instance(self, instance_id: str) -> list[Effect]:
        """See `StorageController.create_instance`."""
        if instance_id in self._instances:
            raise FatalError(f"there is an instance {instance_id} already")
        instance = self._instances[instance_id] = Instance(instance_id)
        effects: list[Effect] = []
        if self._parameters:
            effects += instance.send(UpdateConfiguration(tuple(sorted(self._parameters.items()))))
        if self._initialized:
            effects += instance.send(InitializationComplete())
        return effects

    def drop_instance(self, instance_id: str) -> list[Effect]:
        """See `StorageController.drop_instance`."""
        effects: list[Effect] = []
        for replica in sorted(self._instance(instance_id).replicas):
            effects += self.drop_replica(instance_id, replica)
        del self._instances[instance_id]
        return effects

    def connect_replica(self, instance_id: str, replica: str, location: str) -> list[Effect]:
        """See `StorageController.connect_replica`."""
        return self._instance(instance_id).connect(replica, location)

    def drop_replica(self, instance_id: str, replica: str) -> list[Effect]:
        """See `StorageController.drop_replica`."""
        instance = self._instance(instance_id)
        effects = instance.disconnect(replica)
        self.gave_up(ReplicaKey(instance_id, replica), list(self._working))
        if not instance.replicas:
            for global_id in self._objects_of(instance_id):
                effects += self._statuses.report(global_id, "paused")
        return effects

    def has_instance(self, instance_id: str) -> bool:
        return instance_id in self._instances

    # Ingestions and sinks

    def run(self, instance_id: str, command: RunIngestion | RunSink) -> list[Effect]:
        """Runs an ingestion or a sink on the instance; it is paused while there is no replica."""
        instance = self._instance(instance_id)
        effects: list[Effect] = []
        if instance.active is None:
            effects += self._statuses.report(command.id, "paused")
        return [*effects, *instance.send(command)]

    def run_ingestions(self, ids: Iterable[GlobalId]) -> list[Effect]:
        """Runs the ingestions with the exports that they have now."""
        effects: list[Effect] = []
        exports: dict[GlobalId, list[GlobalId]] = {each: [] for each in ids}
        if not exports:
            return effects
        for state in self._capabilities.collections.values():
            source = state.description.data_source
            if isinstance(source, IngestionExport) and not state.is_dropped:
                exports.get(source.ingestion, []).append(state.id)
        for global_id, outputs in exports.items():
            source = self._capabilities.collections[global_id].description.data_source
            if not isinstance(source, IngestionDescription):
                raise AssertionError(f"{global_id} is no ingestion")
            command = RunIngestion(global_id, source, tuple(sorted(outputs)))
            effects += self.run(source.instance, command)
        return effects

    def stop(self, global_id: GlobalId, instance_id: str) -> list[Effect]:
        """Stops a dropped ingestion or sink. Of an instance that is gone nothing is to be done."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return []
        if instance.active is not None:
            self._working[global_id] = {ReplicaKey(instance_id, instance.active)}
        return instance.send(AllowCompaction(global_id, EMPTY_FRONTIER))

    def allow_compaction(self, state: CollectionState) -> list[Effect]:
        """Tells the replicas that write the collection, if any do, what its since is."""
        instance = self._writer(state)
        return [] if instance is None else instance.send(AllowCompaction(state.id, state.since))

    def gave_up(self, replica: ReplicaKey, ids: Iterable[GlobalId]) -> None:
        """The replica works on these dropped objects no more."""
        for global_id in ids:
            working = self._working.get(global_id)
            if working is not None:
                working.discard(replica)
                if not working:
                    del self._working[global_id]

    def working_on_dropped(self) -> Mapping[GlobalId, frozenset[ReplicaKey]]:
        """See `StorageController.working_on_dropped`."""
        return {key: frozenset(replicas) for key, replicas in self._working.items()}

    def _instance(self, instance_id: str) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None:
            raise FatalError(f"there is no instance {instance_id}")
        return instance

    def _objects_of(self, instance_id: str) -> list[GlobalId]:
        ingestions = [
            state.id
            for state in self._capabilities.collections.values()
            if isinstance(state.description.data_source, IngestionDescription)
            and state.description.data_source.instance == instance_id
        ]
        sinks = [
            state.id
            for state in self._exports.states.values()
            if state.description.instance == instance_id
        ]
        return sorted([*ingestions, *sinks])

    def _writer(self, state: CollectionState) -> Instance | None:
        """The instance whose replicas write the collection."""
        match state.description.data_source:
            case IngestionDescription(instance):
                return self._instances.get(instance)
            case IngestionExport(ingestion):
                found = self._capabilities.collections.get(ingestion)
                return None if found is None else self._writer(found)
            case _:
                return None
