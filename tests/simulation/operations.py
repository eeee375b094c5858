"""What an operator does while clients work: replicas come and go, and parameters change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.simulation.workload import Clients
from tests.support.adapter.coordination import Place

from slackwater.adapter.controllers.collections import INSTANCE, REPLICA
from slackwater.repr.errors import FatalError
from slackwater.storage.controller.shell import Storage

OTHER = "other"
"""An instance without objects."""

RESET = "ALTER SYSTEM RESET ALL"
SET = (
    ("default_timestamp_interval", "300ms"),
    ("enable_storage_shard_finalization", "off"),
    ("keep_n_source_status_history_entries", "5"),
    ("persist_inline_writes_single_max_bytes", "200"),
    ("persist_blob_target_size", "1MB"),
)


@dataclass(slots=True)
class Operations:
    """The operator of an environment. At the end all is as it was in the beginning."""

    clients: Clients

    def replicas(self) -> None:
        """Lets the replica of sources and sinks go, or severs its connection; another one comes."""
        self.clients.now_and_then(2.0, self._replace)

    def parameters(self) -> None:
        """Sets parameters, and takes them back now and then."""
        self.clients.now_and_then(1.5, self._alter)

    def end(self) -> None:
        """Whoever leads has a replica, and goes by the defaults. Nobody else calls."""
        for name, action in (
            ("connect", _telling(_connect)),
            ("reset", lambda place: place.sql(RESET, "op/1")),
        ):
            while not self.clients.ask(name, action):
                self.clients.world.scheduler.sleep(0.5)

    def _replace(self) -> None:
        scheduler, ask = self.clients.world.scheduler, self.clients.ask
        if scheduler.rng.random() < 0.5:
            ask("let the replica go", _telling(_let_go))
            scheduler.sleep(scheduler.rng.uniform(0, 2))
        if scheduler.rng.random() < 0.5:
            ask("another instance", _telling(_come_and_go))
        ask("connect", _telling(_connect))

    def _alter(self) -> None:
        rng = self.clients.world.scheduler.rng
        name, value = rng.choice(SET)
        text = f"ALTER SYSTEM SET {name} = '{value}'" if rng.random() < 0.7 else RESET
        self.clients.ask("alter", lambda place: place.sql(text, "op/1"))


def _telling(action: Callable[[Storage], object]) -> Callable[[Place], None]:
    """The controller does it, and the replica what follows."""

    def tell(place: Place) -> None:
        parts = place.coordinator.parts
        with parts.relations.catalog.lock:
            action(parts.relations.storage)
            parts.implications._replica.apply_commands()

    return tell


def _connect(storage: Storage) -> None:
    storage.connect_replica(INSTANCE, REPLICA)


def _let_go(storage: Storage) -> None:
    """A leader that began meanwhile may have none yet."""
    with suppress(FatalError):
        storage.drop_replica(INSTANCE, REPLICA)


def _come_and_go(storage: Storage) -> None:
    storage.do(lambda core: core.placement.create_instance(OTHER))
    storage.connect_replica(OTHER, "r1")
    storage.do(lambda core: core.placement.drop_instance(OTHER))
