"""What a replica is told, in the long and in the short form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.controller.history import CommandHistory
from slackwater.controller.protocol import (
    AllowCompaction,
    Hello,
    InitializationComplete,
    UpdateConfiguration,
)
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.storage.controller.descriptions import (
    ExportDescription,
    IngestionDescription,
    SinkAsOf,
)
from slackwater.storage.controller.history import reconcile, reduce, replayed
from slackwater.storage.controller.protocol import RunIngestion, RunSink

ingestions = st.sampled_from(["u1", "u2"])
exports = st.sampled_from(["u3", "u4"])
sinks = st.sampled_from(["u5", "u6"])
frontiers = st.sampled_from([Frontier(3), Frontier(7), EMPTY_FRONTIER])
texts = st.sampled_from(["x", "y"])
commands = st.one_of(
    st.builds(Hello, st.integers(0, 3)),
    st.builds(
        UpdateConfiguration, st.dictionaries(texts, texts).map(lambda d: tuple(sorted(d.items())))
    ),
    st.just(InitializationComplete()),
    st.builds(
        RunIngestion,
        ingestions,
        st.builds(IngestionDescription, st.just("i"), texts),
        st.sets(exports).map(lambda found: tuple(sorted(found))),
    ),
    st.builds(
        RunSink,
        sinks,
        st.builds(ExportDescription, st.just("u9"), st.just("i"), texts, st.just(Frontier(0))),
        st.builds(SinkAsOf, frontiers, st.booleans()),
    ),
    st.builds(AllowCompaction, ingestions | exports | sinks, frontiers),
)
command_lists = st.lists(commands, max_size=30)


@histories()
@given(command_lists)
def test_i37_the_reduced_history_leads_to_the_same_state(history):
    assert replayed(reduce(history)) == replayed(history)


@histories()
@given(command_lists, command_lists)
def test_i37_what_comes_later_finds_the_same_state(history, later):
    assert replayed([*reduce(history), *later]) == replayed([*history, *later])


@histories()
@given(command_lists)
def test_i38_reducing_is_idempotent_and_the_history_stays_short(history):
    reduced = reduce(history)
    assert reduce(reduced) == reduced
    kept = CommandHistory(reduce)
    for command in history:
        kept.push(command)
        assert len(kept.commands) <= 2 * kept.reduced_length + 1
    assert replayed(kept.commands) == replayed(history)


@histories()
@given(command_lists, command_lists)
def test_i39_a_running_replica_ends_like_a_fresh_one(running, history):
    old = replayed(running)
    found = reconcile(old, history)
    fresh = replayed(history)
    assert found.state == fresh
    started = {each.id for each in found.start}
    wanted = fresh.ingestions.keys() | fresh.sinks.keys()
    assert started.isdisjoint(found.keep)
    assert started | set(found.keep) == wanted
    assert set(found.keep) | set(found.stop) == old.ingestions.keys() | old.sinks.keys()
    for global_id in found.keep:
        if global_id in old.sinks:
            assert old.sinks[global_id].description == fresh.sinks[global_id].description
        else:
            assert old.ingestions[global_id] == fresh.ingestions[global_id]
