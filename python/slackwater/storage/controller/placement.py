"""Placement: the instances, their replicas, and the ingestions and sinks on them.

Source: spec controllers 2.3 M1, M2, M4 to M6, 2.7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slackwater.controller.protocol import (
    AllowCompaction,
    InitializationComplete,
    UpdateConfiguration,
)
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER
from slackwater.repr.ids import GlobalId
from slackwater.storage.controller.capabilities import Capabilities, CollectionState
from slackwater.storage.controller.descriptions import IngestionDescription, IngestionExport
from slackwater.storage.controller.effects import Configure, Effect
from slackwater.storage.controller.exports import Exports
from slackwater.storage.controller.instance import Instance
from slackwater.storage.controller.protocol import RunIngestion, RunSink
from slackwater.storage.controller.statuses import Statuses

FINALIZATION_PARAMETER = "enable_storage_shard_finalization"
"""The parameter that says whether dropped shards are finalized: ``on``, or ``off``."""


@dataclass(slots=True)
class Placement:
    """The instances, and what was sent to them. Not thread-safe.

    Which collections and exports there are is only looked up here. It does not guarantee that a
    replica does what it is told, nor when. `effects` takes what is to be done, in order.
    """

    capabilities: Capabilities
    exports: Exports
    statuses: Statuses
    effects: list[Effect]
    _instances: dict[str, Instance] = field(default_factory=dict, init=False)
    _parameters: dict[str, str] = field(default_factory=dict, init=False)
    _initialized: bool = field(default=False, init=False)

    # Instances, replicas, configuration: M1, M2, M4 to M6

    def initialization_complete(self) -> None:
        """Tells every instance, and those to come, that everything there is was sent (M1)."""
        self._initialized = True
        for instance in self._instances.values():
            self.effects += instance.send(InitializationComplete())

    def update_configuration(self, parameters: Mapping[str, str]) -> None:
        """Merges the parameters into the configuration, for present and future instances (M2).

        The process of the controller goes on with them, too. `FINALIZATION_PARAMETER` = ``off``
        keeps dropped shards from being finalized.
        """
        self._parameters.update(parameters)
        changed = tuple(sorted(parameters.items()))
        self.effects.append(Configure(changed))
        command = UpdateConfiguration(changed)
        for instance in self._instances.values():
            self.effects += instance.send(command)

    @property
    def parameters(self) -> Mapping[str, str]:
        """The configuration as it is now."""
        return self._parameters

    def create_instance(self, instance_id: str) -> None:
        """Adds an instance without replicas (M4). A known id is a FatalError."""
        if instance_id in self._instances:
            raise FatalError(f"there is an instance {instance_id} already")
        instance = self._instances[instance_id] = Instance(instance_id)
        if self._parameters:
            command = UpdateConfiguration(tuple(sorted(self._parameters.items())))
            self.effects += instance.send(command)
        if self._initialized:
            self.effects += instance.send(InitializationComplete())

    def drop_instance(self, instance_id: str) -> None:
        """Forgets the instance; what is left for its replicas to be told is lost (M5).

        Deviates from spec M5: replicas that are still attached are detached first, so that none
        leaks.
        """
        for replica in sorted(self._instance(instance_id).replicas):
            self.drop_replica(instance_id, replica)
        del self._instances[instance_id]

    def connect_replica(self, instance_id: str, replica: str, location: str) -> None:
        """Attaches a replica and tells it what it must know (M6).

        Deviates from spec M6: an instance may have several replicas, by name. A repeated connect
        starts over with the same replica.
        """
        self.effects += self._instance(instance_id).connect(replica, location)

    def drop_replica(self, instance_id: str, replica: str) -> None:
        """Detaches a replica; what only it ran moves to another one, or is paused."""
        instance = self._instance(instance_id)
        self.effects += instance.disconnect(replica)
        if not instance.replicas:
            for global_id in self._objects_of(instance_id):
                self.statuses.report(global_id, "paused")

    def has_instance(self, instance_id: str) -> bool:
        """Whether there is an instance of this id."""
        return instance_id in self._instances

    # Ingestions and sinks

    def run(self, instance_id: str, command: RunIngestion | RunSink) -> None:
        """Runs an ingestion or a sink on the instance; it is paused while there is no replica."""
        instance = self._instance(instance_id)
        if instance.active is None:
            self.statuses.report(command.id, "paused")
        self.effects += instance.send(command)

    def run_ingestions(self, ids: Iterable[GlobalId]) -> None:
        """Runs the ingestions with the exports that they have now."""
        exports: dict[GlobalId, list[GlobalId]] = {each: [] for each in ids}
        if not exports:
            return
        for state in self.capabilities.collections.values():
            source = state.description.data_source
            if isinstance(source, IngestionExport) and not state.is_dropped:
                exports.get(source.ingestion, []).append(state.id)
        for global_id, outputs in exports.items():
            source = self.capabilities.collections[global_id].description.data_source
            if not isinstance(source, IngestionDescription):
                raise AssertionError(f"{global_id} is no ingestion")
            self.run(source.instance, RunIngestion(global_id, source, tuple(sorted(outputs))))

    def stop(self, global_id: GlobalId, instance_id: str) -> None:
        """Stops a dropped ingestion or sink. Of an instance that is gone nothing is to be done."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return
        self.effects += instance.send(AllowCompaction(global_id, EMPTY_FRONTIER))

    def allow_compaction(self, state: CollectionState) -> None:
        """Tells the replicas that write the collection, if any do, what its since is."""
        instance = self._writer(state)
        if instance is not None:
            self.effects += instance.send(AllowCompaction(state.id, state.since))

    def running_on(self) -> dict[GlobalId, str]:
        """The replica that runs each ingestion, by the id of what its connection names, and each
        export, by its own."""
        found: dict[GlobalId, str] = {}
        for state in self.capabilities.collections.values():
            source = state.description.data_source
            if isinstance(source, IngestionDescription) and not state.is_dropped:
                active = self._instance(source.instance).active
                if active is not None:
                    found[GlobalId(source.connection)] = active
        for export in self.exports.states.values():
            instance = self._instances.get(export.description.instance)
            if instance is not None and instance.active is not None:
                found[export.id] = instance.active
        return found

    def validate(self) -> None:
        """Raises FatalError unless each instance is consistent."""
        for instance in self._instances.values():
            instance.validate()

    def _instance(self, instance_id: str) -> Instance:
        instance = self._instances.get(instance_id)
        if instance is None:
            raise FatalError(f"there is no instance {instance_id}")
        return instance

    def _objects_of(self, instance_id: str) -> list[GlobalId]:
        ingestions = [
            state.id
            for state in self.capabilities.collections.values()
            if isinstance(state.description.data_source, IngestionDescription)
            and state.description.data_source.instance == instance_id
        ]
        sinks = [
            state.id
            for state in self.exports.states.values()
            if state.description.instance == instance_id
        ]
        return sorted([*ingestions, *sinks])

    def _writer(self, state: CollectionState) -> Instance | None:
        """The instance whose replicas write the collection."""
        match state.description.data_source:
            case IngestionDescription(instance):
                return self._instances.get(instance)
            case IngestionExport(ingestion):
                found = self.capabilities.collections.get(ingestion)
                return None if found is None else self._writer(found)
            case _:
                return None
