"""Steps of ingestions on a metastore that loses answers."""

import threading
from dataclasses import replace

import pytest
from tests.support.persist.metastore_faults import Outage
from tests.support.persist.persistence import new_shard
from tests.support.storage.tables import storage_of, tables_of
from tests.support.waiting import PATIENCE

from slackwater.adapter.sources.source_states import SourceStates, create_state
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.writing.group_commit import CommitSettings, GroupCommitter
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.generators import GeneratorConfig, GeneratorIngestion
from slackwater.storage.ingestion import (
    IngestionRunner,
    IngestionStep,
    Reached,
    Resumed,
    SourceStatistics,
    SourceStatus,
    StepSuperseded,
)
from slackwater.storage.progress import ONE_PARTITION, binding_rows, remap_at
from slackwater.storage.source_time import SourceFrontier

SOURCE = "u7"
COUNTER = RelationDesc.of(counter="long")


class Ticks:
    """A clock that goes on by a second at each look."""

    def __init__(self):
        self.now = 1_000_000

    def __call__(self):
        self.now += 1000
        return self.now


class World:
    """An environment with one COUNTER source, below which the metastore can go away."""

    def __init__(self, env):
        self.outage = Outage(env.engine)
        self.client = env.lead(retry_policy=self.outage.retry_policy())
        self.shard = new_shard(self.client, COUNTER, None)
        self.remap = new_shard(self.client, ONE_PARTITION, None)
        clock = Ticks()
        oracle = TimestampOracle.recover(self.client.reads.tables_upper(), clock)
        self.committer = GroupCommitter(
            tables_of(self.client, storage_of(self.client), self.shard, self.remap),
            oracle,
            location="./env",
            clock_ms=clock,
            settings=CommitSettings(tick_ms=600_000, max_ahead_ms=0),
            on_committed=lambda _: self.look(),
        )
        self.committer.start()
        self.states = SourceStates(self.client.transactions, self.committer)
        self.client.transactions.transact(lambda conn: create_state(conn, SOURCE))
        self.changed = threading.Condition()
        self.outcomes = []
        self.looks = []
        self.runner = IngestionRunner(self.commit, self.states.record, clock)

    def look(self):
        """Notes what may be read of the source; a commit that is durable calls it."""
        self.looks.append((self.states.has_snapshot(SOURCE), self.states.has_begun(SOURCE, "new")))

    def commit(self, source_id, reached, step):
        outcome = "failed"
        try:
            appends = {self.shard: step.updates["counter"]} if step.updates else {}
            desc, before = ONE_PARTITION, reached.frontier
            appends[self.remap] = binding_rows(desc, before, step.frontier)
            self.states.commit(source_id, reached, step, appends)
            outcome = "committed"
        except StepSuperseded:
            outcome = "superseded"
            raise
        finally:
            with self.changed:
                self.outcomes.append(outcome)
                self.changed.notify_all()

    def resume(self):
        self.committer.flush()
        upper = self.client.reads.tables_upper()
        rows = self.client.reads.snapshot(self.remap, Timestamp(upper - 1))
        remap = remap_at(rows, upper, SourceFrontier.minimum())
        frontier = remap.source_upper_at_frontier(Frontier(upper)) if remap.bindings else None
        reached = replace(self.states.reached(SOURCE), frontier=frontier)
        config = GeneratorConfig("COUNTER")
        return Resumed(GeneratorIngestion(config, frontier, reached.state), reached)

    def wait(self, count):
        """Returns once `count` more steps have been committed."""
        with self.changed:
            wanted = self.outcomes.count("committed") + count
            met = self.changed.wait_for(
                lambda: self.outcomes.count("committed") >= wanted, PATIENCE
            )
            assert met, self.outcomes

    def values(self):
        upper = self.client.reads.tables_upper()
        rows = self.client.reads.snapshot(self.shard, Timestamp(upper - 1))
        return sorted(rows["counter"].to_pylist())

    def close(self):
        self.runner.close()
        self.committer.stop()


@pytest.fixture
def world(env):
    world = World(env)
    yield world
    world.close()


@pytest.mark.parametrize("landed", [True, False])
def test_i51_a_step_whose_outcome_is_unknown_is_neither_lost_nor_doubled(world, landed):
    world.runner.add(SOURCE, world.resume, 1)
    world.wait(3)
    world.outage.strike(landed=landed)
    world.wait(3)
    world.runner.remove(SOURCE)
    assert world.outage.lost == 1
    assert world.outcomes.count("failed") == 1
    assert world.outcomes.count("superseded") == int(landed)
    values = world.values()
    assert values == list(range(1, len(values) + 1))


def step(state, frontier):
    return IngestionStep({}, state, SourceFrontier.at(frontier), SourceStatus("running"))


def test_only_one_of_two_steps_from_one_state_is_committed(world):
    begun = world.states.reached(SOURCE)
    assert begun == Reached()
    world.states.commit(SOURCE, begun, step("first", 1), {})
    with pytest.raises(StepSuperseded) as refused:
        world.states.commit(SOURCE, begun, step("other", 2), {})
    assert (refused.value.steps, refused.value.stored) == (0, 1)
    with pytest.raises(StepSuperseded):
        world.states.commit(SOURCE, Reached(2, "ahead"), step("ahead", 3), {})
    found = world.states.reached(SOURCE)
    assert (found.steps, found.state) == (1, "first")
    world.client.transactions.transact(lambda conn: world.states.forget(conn, SOURCE))
    with pytest.raises(SlackwaterError) as refused:
        world.states.commit(SOURCE, found, step("late", 4), {})
    assert refused.value.condition == "SLACKWATER_DEPENDENCY_DROPPED"


def test_nobody_is_told_of_first_contents_before_reads_find_them(world):
    """A read that begins then would choose the time before that of the step, with no rows."""

    def step(number, *begun, whole=True):
        counted = SourceStatistics(snapshot_committed=whole, begun=begun)
        status, frontier = SourceStatus("running"), SourceFrontier.at(number)
        return IngestionStep({}, "{}", frontier, status, counted)

    first, second, third = step(1, whole=False), step(2), step(3, "new")
    reached = Reached()
    for made in (first, second, third):
        world.states.commit(SOURCE, reached, made, {})
        world.look()
        world.states.arrived(SOURCE)
        world.look()
        reached = reached.after(made)
    assert world.looks == [
        *[(False, False)] * 3,
        *[(False, False)] * 2, (True, False),
        *[(True, False)] * 2, (True, True),
    ]  # fmt: skip
