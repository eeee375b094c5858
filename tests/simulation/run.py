"""One run: a world, its troubles and its clients, from a seed."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import structlog
from tests.simulation.cursors import Cursors
from tests.simulation.faults import Hazards, Weather, disturbed
from tests.simulation.operations import Operations
from tests.simulation.replacements import Replacements
from tests.simulation.threads import Failed, Scheduler
from tests.simulation.view_replacements import ViewReplacements
from tests.simulation.wires import wired
from tests.simulation.workload import Clients
from tests.simulation.world import World

TROUBLE_S = 12.0
"""How long clients and troubles go on, of simulated time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run. `failure` is None when all was as it must be."""

    failure: str | None
    digest: str
    turns: int
    boundaries: int
    inserts: int
    servers: int
    simulated_s: float
    log: tuple[str, ...]


STUCK = Outcome("it has ended by itself, or not in time", "-", 0, 0, 0, 0, 0, ())


def simulate(scheduler: Scheduler, seed: int) -> Outcome:
    """Clients, troubles and restarts by seed."""
    weather = Weather.drawn(random.Random(seed))

    def story(world: World) -> None:
        scheduler.note(str(weather))
        clients = Clients(world)
        cursors, replacements = Cursors(clients), Replacements(clients)
        operations, views = Operations(clients), ViewReplacements(clients)
        operator = scheduler.spawn("operator", None, world.operate)
        scheduler.spawn("watch", None, world.watch)
        scheduler.spawn("drift", None, world.drift)
        clients.prepare()
        for role in (
            clients.write,
            clients.write,
            clients.write,
            clients.read,
            clients.read,
            clients.read_views,
            clients.subscribe,
            clients.count,
            clients.count,
            clients.define,
            cursors.query,
            cursors.follow,
            replacements.replace,
            replacements.read,
            views.replace,
            views.read,
            operations.replicas,
            operations.parameters,
        ):
            scheduler.spawn(role.__name__, None, role)
        scheduler.sleep(TROUBLE_S)
        world.hazards.enabled = False
        world.over = True
        scheduler.wait(lambda: operator.ended)
        if not scheduler.wait(lambda: not clients.busy, 120.0):
            fatal = [error for server in world.servers for error in server.fatal]
            scheduler.fail(f"clients wait for ever, after {fatal}\n{scheduler.stacks()}")
        world.leader()
        operations.end()
        cursors.close()
        finish(world, clients)

    return _run(scheduler, seed, weather, None, story)


def simulate_kill(scheduler: Scheduler, seed: int, kill_at: int | None) -> Outcome:
    """One client, no other trouble, and one end: at the boundary of this number."""

    def story(world: World) -> None:
        clients = Clients(world)
        replacements, views = Replacements(clients), ViewReplacements(clients)
        operations = Operations(clients)
        operator = scheduler.spawn("operator", None, lambda: world.operate(lifetime_s=1e9))
        clients.prepare()
        clients.insert("t1")
        clients.insert("t1", "t2")
        replacements.replace_once(attempts=1000)
        operations.replace_once()
        clients.insert("t1")
        views.replace_once(attempts=1000)
        clients.define_and_drop()
        clients.insert("t2")
        scheduler.sleep(2.5)
        world.over = True
        scheduler.wait(lambda: operator.ended)
        finish(world, clients)

    return _run(scheduler, seed, Weather(), kill_at, story)


def finish(world: World, clients: Clients) -> None:
    """Calm: the last leader, and the one after it, show what was promised."""
    world.hazards.enabled = False
    server = world.leader()
    clients.insert("t1")
    clients.read_all_views()
    world.audit(server)
    clients.end_sources()
    world.settle()
    world.audit(server)
    world.ledger.check_sink(world.folder / "out", "t1")
    world.close(server)
    world.audit(world.open())


def _run(
    scheduler: Scheduler,
    seed: int,
    weather: Weather,
    kill_at: int | None,
    story: Callable[[World], None],
) -> Outcome:
    shared_memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None))
    random.seed(seed)
    # It tells of each connection that was lost.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
    pa.set_cpu_count(1)
    scheduler.begin(seed, str(folder))
    hazards = Hazards(scheduler, weather, kill_at)
    failure = None
    inserts = servers = 0
    try:
        world = World(scheduler, hazards, folder)
        structlog.configure(
            processors=[lambda _, name, event: _logged(scheduler, name, event)],
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        with disturbed(hazards), wired(hazards):
            story(world)
        inserts, servers = len(world.ledger.inserts), len(world.servers)
    except Failed as error:
        failure = str(error)
    except Exception:
        failure = traceback.format_exc()
    finally:
        scheduler.end()
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome(
        failure,
        scheduler.digest(),
        scheduler.switches,
        hazards.passed,
        inserts,
        servers,
        scheduler.now_ns / 1e9,
        tuple(scheduler.log),
    )


def _logged(scheduler: Scheduler, level: str, event: dict) -> str:
    """The product's own log is part of the trace; what it did not expect is a failure."""
    error = event.pop("exc_info", None)
    text = f"log {level}: {event}"
    if error:
        text += "\n" + traceback.format_exc()
        if not any(name in text for name in ("SLACKWATER_METASTORE", "SLACKWATER_STORAGE")):
            scheduler.fail(text)
    if "SLACKWATER_INTERNAL" in text:
        scheduler.fail(text)
    scheduler.note(text)
    raise structlog.DropEvent
