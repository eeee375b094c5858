"""What an operator does while clients work: replicas come and go, and parameters change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.workload import PAIR, SIZE, Clients
from tests.support.adapter.coordination import Place

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
        """Lets the replicas go, has two that race, or severs connections; another cluster comes."""
        self.clients.now_and_then(2.0, self._replace)

    def replace_once(self) -> None:
        """A replica is dropped, and one of the same name is there again. Another view moves."""
        for name, action in (
            ("no r1", _dropped("r1")),
            ("r1 again", _made("r1")),
            ("away", _moved("quickstart")),
            ("back", _moved(PAIR)),
        ):
            while not self.clients.ask(name, action):
                self.clients.world.scheduler.sleep(0.5)

    def parameters(self) -> None:
        """Sets parameters, and takes them back now and then."""
        self.clients.now_and_then(1.5, self._alter)

    def end(self) -> None:
        """Whoever leads has a replica, and goes by the defaults. Nobody else calls."""
        for name, action in (
            ("one replica", _with_replicas(1)),
            ("the same replica", _made("r1")),
            ("at home", _moved(PAIR)),
            ("reset", lambda place: place.sql(RESET, "op/1")),
        ):
            while not self.clients.ask(name, action):
                self.clients.world.scheduler.sleep(0.5)

    def _replace(self) -> None:
        scheduler, ask = self.clients.world.scheduler, self.clients.ask
        count = scheduler.rng.choice((0, 1, 2, 2))
        if ask(f"{count} replicas", _with_replicas(count)):
            scheduler.sleep(scheduler.rng.uniform(0, 2))
        if scheduler.rng.random() < 0.5:
            ask("another cluster", _come_and_go)
        for name in scheduler.rng.sample(("r1", "r2"), scheduler.rng.randrange(3)):
            ask(f"no {name}", _dropped(name))
            scheduler.sleep(scheduler.rng.uniform(0, 1))
            ask(f"{name} again", _made(name))
        if scheduler.rng.random() < 0.3:
            ask("move", _moved(scheduler.rng.choice((PAIR, "quickstart"))))
        ask("connect", _connect)
        ask("one replica", _with_replicas(1))

    def _alter(self) -> None:
        rng = self.clients.world.scheduler.rng
        name, value = rng.choice(SET)
        text = f"ALTER SYSTEM SET {name} = '{value}'" if rng.random() < 0.7 else RESET
        self.clients.ask("alter", lambda place: place.sql(text, "op/1"))


def _connect(place: Place) -> None:
    """The connection to each replica begins anew, and what it runs goes on."""
    parts = place.coordinator.parts
    with parts.relations.catalog.lock:
        for cluster in parts.relations.state.clusters.values():
            for replica in cluster.replicas:
                parts.relations.storage.connect_replica(cluster.id, replica.id)
        parts.implications.replicas.apply_commands()


def _with_replicas(count: int) -> Callable[[Place], object]:
    text = f"ALTER CLUSTER quickstart SET (REPLICATION FACTOR = {count})"
    return lambda place: place.sql(text, "op/1")


def _dropped(name: str) -> Callable[[Place], object]:
    return lambda place: place.sql(f"DROP CLUSTER REPLICA IF EXISTS {PAIR}.{name}", "op/1")


def _made(name: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        place.env.catalog.resolve()
        clusters = place.env.state.clusters.values()
        if not any(r.name == name for c in clusters if c.name == PAIR for r in c.replicas):
            place.sql(f"CREATE CLUSTER REPLICA {PAIR}.{name} SIZE = '{SIZE}'", "op/1")

    return make


def _moved(cluster: str) -> Callable[[Place], object]:
    text = f"ALTER MATERIALIZED VIEW both SET CLUSTER {cluster}"
    return lambda place: place.sql(text, "op/1")


def _come_and_go(place: Place) -> None:
    place.sql("CREATE CLUSTER IF NOT EXISTS other (SIZE = '25cc')", "op/1")
    place.sql("DROP CLUSTER other", "op/1")
