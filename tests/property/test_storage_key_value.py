"""KEY VALUE against its definition, and resumable at any step."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.storage.key_value import EXPORT, KeyValueConfig, KeyValueIngestion
from slackwater.storage.source_time import Position, SourceFrontier

NOW = 1_700_000_000_000
PAUSES = st.lists(st.integers(0, 4000), min_size=1, max_size=12)


@st.composite
def configs(draw):
    partitions, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return KeyValueConfig(
        keys=partitions * batch * draw(st.integers(1, 3)),
        partitions=partitions,
        snapshot_rounds=draw(st.integers(1, 3)),
        value_size=draw(st.integers(1, 20)),
        batch_size=batch,
        seed=draw(st.integers(0, 3)),
        transactional_snapshot=draw(st.booleans()),
        tick_interval_ms=draw(st.sampled_from([None, 500, 1000])),
        envelope=draw(st.sampled_from(["UPSERT", "NONE"])),
    )


def run(config, pauses, cuts=frozenset()):
    """The steps; the process ends after those whose number is in `cuts`."""
    ingestion, now, reached, steps = KeyValueIngestion(config), NOW, (), []
    for number, pause in enumerate(pauses):
        now += pause
        if number in cuts:
            ingestion.poll(now)  # a step that is lost before its commit
            ingestion = KeyValueIngestion(config, *reached)
        step = ingestion.poll(now)
        if step is not None:
            ingestion.committed(step)
            reached = (step.frontier, step.state)
            steps.append(step)
    return steps


def rows(step):
    return step.updates[EXPORT].to_pylist()


@histories()
@given(configs(), PAUSES, st.sets(st.integers(0, 12)))
def test_key_value_cut_and_resumed_equals_uninterrupted(config, pauses, cuts):
    cut, whole = run(config, pauses, cuts), run(config, pauses)
    assert [rows(step) for step in cut] == [rows(step) for step in whole]
    assert [step.frontier for step in cut] == [step.frontier for step in whole]


@histories()
@given(configs(), PAUSES)
def test_i54_contents_are_those_of_the_messages_before_the_frontier(config, pauses):
    held, before = Counter(), SourceFrontier.minimum(config.partitions)
    for step in run(config, pauses):
        for row in rows(step):
            diff = row.pop("__diff")
            held[tuple(row.values())] += diff
        held = Counter({row: count for row, count in held.items() if count})
        assert before.before(step.frontier)
        before = step.frontier
        messages = [
            config.row(position.partition, number)
            for position in step.frontier.positions
            for number in range(position.offset)
        ]
        if config.envelope == "UPSERT":
            messages = list({message[0]: message for message in messages}.values())
            assert len(held) == config.keys
        assert held == Counter(messages)
        assert step.statistics.offset_committed == sum(p.offset for p in step.frontier.positions)


@histories()
@given(configs())
def test_the_snapshot_comes_at_one_time_if_it_is_transactional(config):
    steps = run(config, [0] * (config.snapshot_rounds + 2))
    assert len(steps) == (1 if config.transactional_snapshot else config.snapshot_rounds)
    assert [step.status.status for step in steps] == ["starting"] * (len(steps) - 1) + ["running"]
    end = config.keys // config.partitions * config.snapshot_rounds
    expected = SourceFrontier.of(Position(p, end) for p in range(config.partitions))
    assert steps[-1].frontier == expected


def test_a_tick_brings_a_batch_of_each_partition():
    config = KeyValueConfig(12, 2, 1, 8, 3, seed=7, tick_interval_ms=1000)
    snapshot, first, second = run(config, [0, 1000, 1000])
    assert len(rows(snapshot)) == 12
    for number, step in enumerate((first, second), start=2):
        inserted = [row for row in rows(step) if row["__diff"] == 1]
        assert Counter(row["partition"] for row in inserted) == {0: 3, 1: 3}
        assert {row["batch"] for row in inserted} == {number}
        assert {len(row["value"]) for row in inserted} == {8}
        assert all(row["key"] % 2 == row["partition"] for row in inserted)
