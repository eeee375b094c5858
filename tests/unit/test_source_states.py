"""Steps of ingestions on a metastore that loses answers."""

import threading

import pytest
from tests.metastore_faults import Outage
from tests.persistence import new_shard

from slackwater.adapter.group_commit import CommitSettings, GroupCommitter
from slackwater.adapter.oracle import TimestampOracle
from slackwater.adapter.persist_log import PersistTableLog
from slackwater.adapter.source_states import SourceStates
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.generators import GeneratorConfig, GeneratorIngestion
from slackwater.storage.ingestion import IngestionRunner, Resumed, StepSuperseded

WAIT_S = 20
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
        self.client = env.lead(patience=self.outage.patience())
        self.shard = new_shard(self.client, COUNTER, None, grouped=True)
        clock = Ticks()
        oracle = TimestampOracle.recover(self.client.tables_upper(), clock)
        self.committer = GroupCommitter(
            PersistTableLog(self.client),
            oracle,
            location="./env",
            clock_ms=clock,
            settings=CommitSettings(tick_ms=600_000, max_ahead_ms=0),
        )
        self.committer.start()
        self.states = SourceStates(self.client, self.committer)
        self.changed = threading.Condition()
        self.outcomes = []
        self.runner = IngestionRunner(self.commit, clock)

    def commit(self, source_id, steps, step):
        outcome = "failed"
        try:
            appends = {self.shard: step.updates["counter"]} if step.updates else {}
            self.states.commit(source_id, steps, appends, step.state)
            outcome = "committed"
        except StepSuperseded:
            outcome = "superseded"
            raise
        finally:
            with self.changed:
                self.outcomes.append(outcome)
                self.changed.notify_all()

    def resume(self):
        stored = self.states.stored(SOURCE)
        config = GeneratorConfig("COUNTER")
        if stored is None:
            return Resumed(GeneratorIngestion(config, None))
        return Resumed(GeneratorIngestion(config, stored.state), stored.steps, stored.state)

    def wait(self, count):
        """Returns once `count` more steps have been committed."""
        with self.changed:
            wanted = self.outcomes.count("committed") + count
            met = self.changed.wait_for(lambda: self.outcomes.count("committed") >= wanted, WAIT_S)
            assert met, self.outcomes

    def values(self):
        upper = self.client.tables_upper()
        rows = self.client.snapshot(self.shard, Timestamp(upper - 1))
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


def test_only_one_of_two_steps_from_one_state_is_committed(world):
    world.states.commit(SOURCE, 0, {}, "first")
    with pytest.raises(StepSuperseded) as refused:
        world.states.commit(SOURCE, 0, {}, "other")
    assert (refused.value.steps, refused.value.stored) == (0, 1)
    with pytest.raises(StepSuperseded):
        world.states.commit(SOURCE, 2, {}, "ahead")
    stored = world.states.stored(SOURCE)
    assert (stored.steps, stored.state) == (1, "first")
    world.client.transact(lambda conn: world.states.forget(conn, SOURCE))
    assert world.states.stored(SOURCE) is None
