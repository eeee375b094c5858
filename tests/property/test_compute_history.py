"""The commands that a compute replica is told, in the long and in the short form."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.compute.installed_objects import InstalledObjects
from tests.support.compute.messages import commands

from slackwater.compute.controller.descriptions import MaterializedViewExport
from slackwater.compute.controller.history import reduce, replayed
from slackwater.compute.controller.protocol import CreateDataflow, CreateInstance, Peek, Schedule
from slackwater.compute.controller.reconciliation import reconcile
from slackwater.controller.history import CommandHistory
from slackwater.controller.protocol import AllowCompaction

command_lists = st.lists(commands(), max_size=30)
lists_of_one_instance = st.lists(commands(instances=st.just(CreateInstance())), max_size=30)


@histories()
@given(command_lists)
def test_i37_the_reduced_history_of_compute_leads_to_the_same_state(history):
    assert replayed(reduce(history)) == replayed(history)


@histories()
@given(command_lists, command_lists)
def test_i37_what_compute_hears_later_finds_the_same_state(history, later):
    assert replayed([*reduce(history), *later]) == replayed([*history, *later])


@histories()
@given(command_lists)
def test_i38_reducing_for_compute_is_idempotent_and_the_history_stays_short(history):
    reduced = reduce(history)
    assert reduce(reduced) == reduced
    kept = CommandHistory(reduce)
    for command in history:
        kept.push(command)
        kept.validate()
        assert len(kept.commands) <= 2 * kept.reduced_length + 1
    assert replayed(kept.commands) == replayed(history)


@histories()
@given(command_lists)
def test_a_reduced_history_has_an_order_that_can_be_carried_out(history):
    """Dataflows keep their order, peeks come before compaction, and nothing goes beyond its end."""
    reduced = list(reduce(history))
    created = [each for each in history if isinstance(each, CreateDataflow)]
    first = [each.dataflow.export_ids for each in reduced if isinstance(each, CreateDataflow)]
    before = list(dict.fromkeys(each.dataflow.export_ids for each in created))
    assert sorted(first, key=before.index) == first or len(set(before)) < len(created)
    created = [each.dataflow for each in reduced if isinstance(each, CreateDataflow)]
    exports = [i for each in created for i in each.export_ids]
    scheduled = [each.id for each in reduced if isinstance(each, Schedule)]
    assert scheduled == [each for each in exports if each in scheduled]
    places = [n for n, each in enumerate(reduced) if isinstance(each, Peek)]
    compacted = [n for n, each in enumerate(reduced) if isinstance(each, AllowCompaction)]
    assert not places or not compacted or max(places) < min(compacted)
    for each in reduced:
        if isinstance(each, CreateDataflow):
            sinces = replayed(history).sinces
            assert each.dataflow.as_of == min(sinces[i] for i in each.dataflow.export_ids)


@histories()
@given(lists_of_one_instance, lists_of_one_instance)
def test_i39_a_running_compute_replica_ends_like_a_fresh_one(running, history):
    old = replayed(running)
    if old.instance is not None:
        history = [CreateInstance(), *history]
    found = reconcile(old, history)
    fresh = replayed(history)
    assert found.state == fresh
    started = {i for each in found.start for i in each.export_ids}
    kept = {each.id for each in found.keep}
    assert started.isdisjoint(kept)
    assert started | kept == fresh.export_ids
    assert kept | set(found.stop) == old.export_ids
    objects = InstalledObjects.of(old)
    objects.carry_out(found)
    expected = InstalledObjects.of(fresh)
    assert objects.peeks == expected.peeks
    assert objects.exports.keys() == expected.exports.keys()
    for global_id, installed in objects.exports.items():
        wanted = expected.exports[global_id]
        assert installed.since == wanted.since
        assert installed.dataflow.computes_like(wanted.dataflow)
        # From the since on both have the same contents: what goes on began before.
        assert installed.dataflow.as_of <= wanted.dataflow.as_of
        if global_id in kept:
            sinks = installed.dataflow.sink_exports
            assert all(isinstance(each, MaterializedViewExport) for each in sinks)
            for each in wanted.dataflow.index_imports:
                assert each in kept or each == "si1"


@histories()
@given(lists_of_one_instance)
def test_i39_a_replica_that_is_told_the_same_again_stops_no_view_and_no_index(history):
    others = [each for each in history if not isinstance(each, CreateInstance)]
    old = replayed([CreateInstance(logs=("si1",)), *others])
    found = reconcile(old, old.commands())
    place = {i: n for n, each in enumerate(old.dataflows()) for i in each.export_ids}
    for dataflow in found.start:
        sinks = [e for e in dataflow.sink_exports if not isinstance(e, MaterializedViewExport)]
        # Its own, or one that comes later: such a dataflow cannot be created, but a history may
        # have it.
        others = {i for each in found.start for i in each.export_ids}
        later = [
            i for i in dataflow.index_imports if place.get(i, -1) > place[dataflow.export_ids[0]]
        ]
        sinces = {old.sinces[i] for i in dataflow.export_ids}
        missing = [i for i in dataflow.index_imports if i not in old.export_ids and i != "si1"]
        gone = others & set(dataflow.index_imports)
        assert sinks or missing or later or len(sinces) > 1 or gone
