"""The compute controller without a shell: commands, and maintenance with many dataflows."""

from __future__ import annotations

import statistics
import time

from tests.bench.figure import Figure
from tests.support.compute.controller_room import index

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.core import ComputeController
from slackwater.controller.holds import Holder, HoldKind
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import user_id
from slackwater.repr.read_policy import LagWriteFrontier
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    Table,
)

DATAFLOWS = 10_000
TABLES = 100
WARM_UP = 5
ROUNDS = 30
HOLDER = Holder(HoldKind.STATEMENT, "bench/1")
REPLICA = ReplicaKey("c", "r1")


def stored():
    """Tables that are complete up to 5 s, with 1 s of history."""
    ids = [user_id(number) for number in range(TABLES)]
    storage = StorageController(DurableState(dict(enumerate(ids))), Frontier(5_000))
    storage.create_collections(
        [(each, CollectionDescription(Table())) for each in ids],
        {
            each: CollectionMetadata(shard, Frontier(1), Frontier(0), shares_tables_upper=True)
            for shard, each in enumerate(ids)
        },
    )
    storage.set_read_policy([(each, LagWriteFrontier(1_000)) for each in ids])
    return storage.capabilities, ids


def compute_core(folder):
    """One command of each kind for each of many dataflows; then maintenance with nothing to do."""
    capabilities, tables = stored()
    core = ComputeController(capabilities)
    core.create_instance("c")
    core.add_replica_to_instance("c", "r1", "here")
    names = [user_id(TABLES + number) for number in range(DATAFLOWS)]
    began = time.perf_counter()
    for number, name in enumerate(names):
        core.create_dataflow("c", index(name, [tables[number % TABLES]], as_of=4_500))
        core.process()
    created_us = (time.perf_counter() - began) * 1e6 / DATAFLOWS
    reached = Frontier(5_000)
    count, began = 0, time.perf_counter()
    for name in names:
        core.set_read_policy("c", [(name, LagWriteFrontier(1_000))])
        report = pr.FrontierReport(name, reached, reached, reached)
        core.respond(pr.FromReplica(REPLICA, 1, report))
        core.process()
        hold = core.acquire_read_hold("c", name, HOLDER)
        core.peek("c", pr.Peek(name, name, Timestamp(4_999)), hold=hold)
        core.respond(pr.FromReplica(REPLICA, 1, pr.PeekAnswered(name, pr.PeekRows(b""))))
        core.process()
        count += 7
    each_us = (time.perf_counter() - began) * 1e6 / count
    yield Figure("compute_core", "compute controller core, one command", "us", 50, each_us)
    yield Figure("compute_create", "compute controller core, one dataflow", "us", 500, created_us)
    idle = []
    for _ in range(WARM_UP + ROUNDS):
        began = time.perf_counter()
        assert core.maintain() == () or len(idle) < WARM_UP
        idle.append((time.perf_counter() - began) * 1000)
    name = f"maintenance of {DATAFLOWS} idle dataflows"
    yield Figure("compute_idle", name, "ms", 100, statistics.median(idle[WARM_UP:]))
    moving = []
    for number in range(WARM_UP + ROUNDS):
        capabilities.advance_tables(Frontier(6_000 + 1_000 * number))
        began = time.perf_counter()
        core.maintain()
        moving.append((time.perf_counter() - began) * 1000)
    name = f"maintenance of {DATAFLOWS} dataflows whose inputs moved"
    yield Figure("compute_moved", name, "ms", 200, statistics.median(moving[WARM_UP:]))
