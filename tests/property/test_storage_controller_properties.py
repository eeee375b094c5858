"""The controller against a model that computes everything at once, and crashes at every step."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.property.histories import histories, settings_of
from tests.support.storage.storage_model import INSTANCE, Died, Room

from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.controller.protocol import FrontierUppers
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import (
    DROPPED,
    STEP_BACK,
    LagWriteFrontier,
    NoPolicy,
    ValidFrom,
)
from slackwater.storage.controller.descriptions import IngestionExport
from slackwater.storage.controller.effects import FinalizeShard
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.exports import CreateExportToken

HOLDER = Holder(HoldKind.STATEMENT, "s")
OTHER = "other"
"""An instance without replicas."""

frontiers = st.integers(0, 30).map(Frontier)
steps = st.integers(0, 6)
policies = st.one_of(
    frontiers.map(NoPolicy),
    frontiers.map(ValidFrom),
    st.builds(LagWriteFrontier, st.integers(0, 8), st.integers(1, 9)),
)


def allowed(policy, upper):
    """What a policy asks for, by its definition."""
    match policy:
        case NoPolicy(since) | ValidFrom(since):
            return since
        case LagWriteFrontier(lag, granularity):
            lagged = max(0, upper.value - lag)
            return Frontier(
                lagged // min(lag, granularity) * min(lag, granularity) if lag else lagged
            )


@dataclass
class Expected:
    """A collection by the formulas, computed at once."""

    shared: bool
    upper: Frontier
    implied: Frontier
    policy: object
    inputs: tuple = ()
    writer: Frontier | None = None
    begin: Frontier = MINIMUM_FRONTIER
    runs_ahead: bool = False


class Model:
    """All frontiers, recomputed from nothing whenever one is asked for."""

    def __init__(self):
        self.tables_upper = MINIMUM_FRONTIER
        self.collections: dict = {}
        self.tokens: dict = {}
        self.reached: dict = {}

    def upper(self, each):
        return self.tables_upper if each.shared else each.upper

    def moved(self):
        for each in self.collections.values():
            upper = self.upper(each)
            reached = min(upper, self.tables_upper) if each.runs_ahead else upper
            each.implied = max(each.implied, allowed(each.policy, reached))
            if each.writer is not None:
                each.writer = max(each.writer, STEP_BACK.frontier(upper))

    def multiset(self, global_id):
        each = self.collections[global_id]
        found = Counter() if each.implied.is_empty else Counter([each.implied.value])
        for other_id, other in self.collections.items():
            if global_id in other.inputs:
                if (since := self.since(other_id)) != EMPTY_FRONTIER:
                    found[since.value] += 1
                if other.writer is not None:
                    found[other.writer.value] += 1
        for ids, since in self.tokens.values():
            found[since] += global_id in ids
        return +found

    def since(self, global_id):
        found = self.multiset(global_id)
        return Frontier(min(found)) if found else EMPTY_FRONTIER

    def forget_closed(self):
        while closed := [i for i in self.collections if not self.multiset(i)]:
            for global_id in closed:
                del self.collections[global_id]


def tried(machine, request):
    """Runs the machine as often as the test that asks for it is to be tried."""
    settings = settings_of(
        request.function.__name__, stateful_step_count=40, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=settings)


class Controller(RuleBasedStateMachine):
    """Everything that can happen to a controller while it lives."""

    ids = Bundle("ids")
    ingestions = Bundle("ingestions")
    holds = Bundle("holds")
    tokens = Bundle("tokens")
    sinks = Bundle("sinks")

    @initialize(target=ids, shared_sources=st.booleans(), policy=policies)
    def begin(self, shared_sources, policy):
        self.room = Room(shared_sources=shared_sources)
        self.core = self.room.core
        self.model = Model()
        self.write_frontiers = {}
        self.remaps = {}
        self.waiting = {}
        self.core.placement.create_instance(OTHER)
        # Most rules need a collection; a history that has none yet would be thrown away.
        return self.create_table(policy)

    def known(self, global_id):
        each = self.model.collections.get(global_id)
        return each is not None and not each.implied.is_empty

    def installed(self, global_id):
        description, policy = self.room.durable.catalog[global_id]
        shard = self.room.durable.shards[self.room.durable.metadata(global_id).shard_id]
        inputs = self.core.capabilities.state(global_id).dependencies
        implied = max([shard.since, *(self.model.collections[i].implied for i in inputs)])
        shared = self.room.shares_tables_upper(description.data_source)
        upper = self.model.tables_upper if shared else shard.upper
        writer = None
        if inputs:
            writer = max([STEP_BACK.frontier(upper), *(self.model.since(i) for i in inputs)])
        self.model.collections[global_id] = Expected(
            shared,
            upper,
            implied,
            NoPolicy(implied),
            inputs,
            writer,
            runs_ahead=description.runs_ahead,
        )
        for each in inputs:
            self.model.collections[global_id].begin = self.model.since(each)
        self.model.collections[global_id].policy = policy
        self.model.moved()
        return global_id

    # Collections

    @rule(target=ids, policy=policies)
    def create_table(self, policy):
        return self.installed(self.room.table(policy=policy))

    @rule(target=ids, policy=policies, runs_ahead=st.booleans())
    def create_view(self, policy, runs_ahead):
        return self.installed(self.room.view(policy=policy, runs_ahead=runs_ahead))

    @rule(target=ids, ingestions=ingestions)
    def create_export_of_ingestion(self, ingestions):
        if not self.known(ingestions):
            return multiple()
        upper = self.model.tables_upper
        since = self.model.since(self.remaps[ingestions])
        if self.room.shared_sources and MINIMUM_FRONTIER < upper <= since:
            # It is refused: its writer could not read the remap just before its upper.
            return multiple()
        return self.installed(self.room.export_of(ingestions))

    @rule(target=ingestions)
    def create_ingestion(self):
        # The model must see the progress collection before the ingestion that depends on it.
        seen = set(self.room.durable.catalog)
        ingestion = self.room.ingestion()
        (remap,) = set(self.room.durable.catalog) - seen - {ingestion}
        self.remaps[ingestion] = self.installed(remap)
        return self.installed(ingestion)

    @rule(target=ingestions)
    def create_ingestion_with_its_own_remap(self):
        ingestion = self.installed(self.room.own_remap())
        self.remaps[ingestion] = ingestion
        return ingestion

    @rule(source=ingestions, instance=st.sampled_from([INSTANCE, OTHER]))
    def move_ingestion(self, source, instance):
        if not self.known(source):
            return
        self.core.move_ingestion(source, instance)
        catalog = self.room.durable.catalog
        description, policy = catalog[source]
        moved = replace(description.data_source, instance=instance)
        catalog[source] = (replace(description, data_source=moved), policy)

    @rule(target=ids, source=ingestions, progress=st.booleans())
    def use_as_collection(self, source, progress):
        return self.remaps[source] if progress else source

    @rule(global_id=ids)
    def create_again(self, global_id):
        """I33: what exists is not made a second time, what was dropped does not come back."""
        if global_id not in self.model.collections:
            return
        self.room.run()
        again = [(global_id, self.core.capabilities.state(global_id).description)] * 2
        if self.known(global_id):
            self.core.create_collections(again, {global_id: self.room.durable.metadata(global_id)})
        else:
            with pytest.raises(StorageError, match=Variant.COLLECTION_ID_REUSED.value):
                self.core.create_collections(again, {})
        assert self.core.process() == ()

    @rule(global_id=ids, step=steps)
    def write(self, global_id, step):
        if not self.known(global_id):
            return
        each = self.model.collections[global_id]
        upper = Frontier(self.model.upper(each).value + step)
        if each.shared:
            self.model.tables_upper = upper
        else:
            each.upper = upper
        self.core.respond(FrontierUppers(((global_id, upper),)))
        self.room.run()
        self.model.moved()

    @rule(global_id=ids)
    def stale_report(self, global_id):
        self.core.update_write_frontiers([(global_id, MINIMUM_FRONTIER)])

    @rule(step=steps)
    def tick(self, step):
        self.model.tables_upper = Frontier(self.model.tables_upper.value + step)
        self.core.capabilities.advance_tables(self.model.tables_upper)
        self.model.moved()

    @rule(chosen=st.lists(st.tuples(ids, policies), max_size=4))
    def set_read_policy(self, chosen):
        chosen = [(i, policy) for i, policy in chosen if self.known(i)]
        for global_id, policy in chosen:
            self.model.collections[global_id].policy = policy
            self.model.moved()
        self.core.set_read_policy(chosen)

    @rule(global_id=ids, again=st.booleans())
    def drop(self, global_id, again):
        if not self.known(global_id):
            return
        sinks = [i for i, (ids, _) in self.model.tokens.items() if str(i).startswith("sink")]
        gone = self.room.drop(global_id)
        for each in gone:
            found = self.model.collections.get(each)
            if found is not None:
                found.policy, found.writer = DROPPED, None
        for each in sinks:
            if each.removeprefix("sink ") not in self.core.exports.states:
                del self.model.tokens[each]
        self.model.moved()
        self.model.forget_closed()
        if again:
            # I21: the second time has no effect.
            self.core.drop_sources(gone)
            assert self.core.process() == ()

    # Holds

    @rule(target=holds, chosen=st.lists(ids, min_size=1, max_size=3), later=steps)
    def acquire(self, chosen, later):
        chosen = [each for each in chosen if self.known(each)]
        if not chosen:
            return multiple()
        latest = max(self.model.since(each) for each in chosen)
        if latest.value:
            early = Timestamp(latest.value - 1)
            with pytest.raises(StorageError, match=Variant.READ_BEFORE_SINCE.value):
                self.core.capabilities.acquire(chosen, HOLDER, early)
        at = None if later == 0 else Timestamp(latest.value + later)
        hold = self.core.capabilities.acquire(chosen, HOLDER, at)
        assert hold.since == latest.value + later
        self.model.tokens[hold.hold_id] = (set(chosen), hold.since)
        return hold

    def held(self, hold: ReadHold):
        return hold.hold_id in self.model.tokens

    @rule(hold=holds, step=st.integers(-2, 6), close=st.booleans())
    def downgrade(self, hold, step, close):
        if not self.held(hold):
            return
        ids, since = self.model.tokens[hold.hold_id]
        if step < 0 and since > 0:
            with pytest.raises(ValueError, match="is at"):
                self.core.capabilities.holds.downgrade(hold, Frontier(max(0, since + step)))
            return
        step = max(0, step)
        to = EMPTY_FRONTIER if close and step == 0 else Frontier(since + step)
        self.core.capabilities.holds.downgrade(hold, to)
        if to.is_empty:
            del self.model.tokens[hold.hold_id]
        else:
            self.model.tokens[hold.hold_id] = (ids, to.value)
        self.model.forget_closed()

    @rule(hold=holds)
    def release(self, hold):
        held = self.model.tokens.pop(hold.hold_id, None) is not None
        assert self.core.capabilities.holds.release(hold) == held
        assert not self.core.capabilities.holds.release(hold)
        self.model.forget_closed()

    @rule(global_id=ids, later=st.integers(-2, 6))
    def snapshot(self, global_id, later):
        """I34: before the since it fails, and from then on it waits until it is complete."""
        if not self.known(global_id):
            return
        since = self.model.since(global_id)
        as_of = Timestamp(max(0, since.value + later))
        if as_of < since.value:
            with pytest.raises(StorageError, match=Variant.READ_BEFORE_SINCE.value):
                self.core.snapshot(global_id, as_of)
            return
        ticket = self.core.snapshot(global_id, as_of)
        self.waiting[ticket] = (global_id, as_of)
        self.model.tokens[f"snapshot {ticket}"] = ({global_id}, as_of)

    # Exports

    @rule(target=tokens, from_id=ids)
    def prepare_export(self, from_id):
        if not self.known(from_id):
            return multiple()
        durable = self.room.durable
        sink, durable.next_id = f"u{durable.next_id}", durable.next_id + 1
        token = self.core.exports.prepare(sink, from_id)
        assert token.acquired_since == self.model.since(from_id)
        self.model.tokens[f"token {token.token_id}"] = ({from_id}, token.acquired_since.value)
        return token

    @rule(token=tokens)
    def cancel_prepare_export(self, token: CreateExportToken):
        self.core.exports.cancel(token)
        self.core.exports.cancel(token)
        self.model.tokens.pop(f"token {token.token_id}", None)
        self.model.forget_closed()

    @rule(target=sinks, from_id=ids)
    def create_sink(self, from_id):
        if not self.known(from_id):
            return multiple()
        since = self.model.since(from_id)
        sink = self.room.sink(from_id)
        self.model.tokens[f"sink {sink}"] = ({from_id}, since.value)
        self.write_frontiers[sink] = MINIMUM_FRONTIER
        return sink

    @rule(sink=sinks, step=steps)
    def report_sink(self, sink, step):
        token = f"sink {sink}"
        self.core.update_write_frontiers(
            [(sink, reached := Frontier(self.write_frontiers[sink].value + step))]
        )
        self.write_frontiers[sink] = reached
        if token in self.model.tokens:
            ids, since = self.model.tokens[token]
            self.model.tokens[token] = (ids, max(since, reached.value - 1))
            self.model.forget_closed()

    @rule(sink=sinks, from_id=ids)
    def alter_sink(self, sink, from_id):
        token = f"sink {sink}"
        if token not in self.model.tokens or not self.known(from_id):
            return
        description = self.core.exports.get(sink).description
        altered = type(description)(
            from_id, description.instance, description.connection, description.as_of
        )
        reached, since = self.write_frontiers[sink], self.model.since(from_id)
        if since >= reached:
            with pytest.raises(StorageError, match=Variant.READ_BEFORE_SINCE.value):
                self.core.alter_export(sink, altered)
            return
        self.core.alter_export(sink, altered)
        self.room.durable.sinks[sink] = altered
        self.model.tokens[token] = ({from_id}, max(since.value, reached.value - 1))
        self.model.forget_closed()

    @rule(sink=sinks, instance=st.sampled_from([INSTANCE, OTHER]))
    def move_sink(self, sink, instance):
        if f"sink {sink}" not in self.model.tokens:
            return
        as_of = self.core.exports.get(sink).as_of
        self.core.move_export(sink, instance)
        assert self.core.exports.get(sink).as_of == as_of
        sinks = self.room.durable.sinks
        sinks[sink] = replace(sinks[sink], instance=instance)

    @rule(sink=sinks)
    def drop_sink(self, sink):
        if f"sink {sink}" in self.model.tokens:
            self.room.drop_sink(sink)
            del self.model.tokens[f"sink {sink}"]
            self.model.forget_closed()
        self.core.drop_sinks([sink])

    # The shell

    @rule(limit=st.integers(1, 5), again=st.booleans())
    def maintain(self, limit, again):
        effects = self.core.maintain(limit)
        self.room.run(effects)
        if again:
            # I28: a shard that is gone may be finalized again.
            tombstones = copy.deepcopy(self.room.durable)
            self.room.run([each for each in effects if isinstance(each, FinalizeShard)])
            assert self.room.durable == tombstones

    @rule()
    def reconcile(self):
        """I33: nothing is left to be cleaned up while the process lives."""
        self.room.run()
        self.core.reconcile_state()
        assert self.core.process() == ()

    # What must hold whenever somebody looks

    def look(self, global_id):
        expected = self.model.collections[global_id]
        state = self.core.capabilities.state(global_id)
        assert state.upper == self.model.upper(expected)
        assert state.implied == expected.implied
        found = Counter(dict(state.capabilities.items()))
        assert found == self.model.multiset(global_id)
        assert state.since == self.model.since(global_id)
        if not expected.implied.is_empty:
            assert found[expected.implied.value] >= 1
        for other_id, other in self.model.collections.items():
            if global_id in other.inputs:
                assert state.since <= self.model.since(other_id)
        # I24: also after a drop.
        for held, since in self.model.tokens.values():
            assert global_id not in held or state.since.value <= since
        # I52, where a source shares the upper of its remap (decision 0011). What lies before
        # the since that the remap had when the export came was never written, nor will be.
        if self.room.shared_sources and not expected.implied.is_empty:
            for each in expected.inputs:
                since = self.core.capabilities.state(each).since
                assert state.upper <= expected.begin or since < state.upper
        before = self.model.reached.get(global_id, (MINIMUM_FRONTIER, MINIMUM_FRONTIER))
        assert before[0] <= state.since
        assert before[1] <= state.upper
        self.model.reached[global_id] = (state.since, state.upper)

    @precondition(lambda self: self.model.collections)
    @rule(data=st.data())
    def look_at_one(self, data):
        self.look(data.draw(st.sampled_from(sorted(self.model.collections))))

    @rule()
    def look_at_all(self):
        self.room.run()
        self.snapshots_are_whole()
        for global_id, as_of in self.waiting.values():
            assert self.known(global_id)
            assert self.model.upper(self.model.collections[global_id]).value <= as_of
        for global_id in self.model.collections:
            self.look(global_id)
        assert set(self.core.capabilities.collections) == set(self.model.collections)

    @invariant()
    def snapshots_are_whole(self):
        """Those that were read were complete; those that failed never will be (I34)."""
        for ticket, (global_id, as_of) in list(self.waiting.items()):
            complete = self.model.upper(self.model.collections[global_id]).value > as_of
            if ticket in self.room.snapshots:
                assert complete
            elif ticket in self.room.answers:
                assert self.room.answers[ticket].variant is Variant.IDENTIFIER_MISSING
                assert not complete
                assert not self.known(global_id)
            else:
                continue
            del self.waiting[ticket], self.model.tokens[f"snapshot {ticket}"]
            self.model.forget_closed()

    @invariant()
    def parts_agree(self):
        self.core.validate()

    @invariant()
    def durable_sinces_are_never_ahead(self):
        # Looked at without bringing anything up to date, so that staleness stays possible.
        for state in self.core.capabilities.collections.values():
            shard = self.room.durable.shards[state.metadata.shard_id]
            assert shard.since <= state.capabilities.frontier

    def teardown(self):
        self.look_at_all()


def test_i01_i09_to_i17_i21_to_i25_i28_i33_i34_i52_frontiers_are_what_the_formulas_say(request):
    tried(Controller, request)


class Crashes(RuleBasedStateMachine):
    """Definitions, writes and maintenance; the process dies after any durable step."""

    ids = Bundle("ids")
    sinks = Bundle("sinks")

    @initialize(shared_sources=st.booleans())
    def begin(self, shared_sources):
        self.room = Room(shared_sources=shared_sources)

    def attempt(self, action, alive_for):
        """Does it, or dies on the way and starts again."""
        self.room.alive_for = alive_for
        try:
            found = action()
            self.room.alive_for = None
            return found
        except Died:
            self.restarted()
            return None

    def restarted(self):
        # The holds are gone with the process, but nothing goes before policies are set again.
        allowed = {state.id: state.since for state in self.room.core.capabilities.settled()}
        durable = {
            i: self.room.durable.shards[self.room.durable.metadata(i).shard_id].since
            for i in self.room.durable.catalog
        }
        self.room.restart()
        # I33: the second time, reconciliation finds nothing.
        self.room.core.reconcile_state()
        assert self.room.core.process() == ()
        recovered = self.room.recovered
        for global_id, since in recovered.items():
            inputs = self.room.core.capabilities.state(global_id).dependencies
            assert since >= durable[global_id]
            limit = allowed.get(global_id, EMPTY_FRONTIER)
            assert since <= max([limit, *(recovered[each] for each in inputs)])
        self.everything_is_somewhere()

    def everything_is_somewhere(self):
        durable = self.room.durable
        for number, shard in durable.shards.items():
            mapped, registered = number in durable.mappings, number in durable.unfinalized
            assert mapped or registered or shard.finalized, f"shard {number} leaked"
            assert not (mapped and (registered or shard.finalized)), f"shard {number} is in two"
            if mapped:
                assert durable.mappings[number] in durable.catalog

    deaths = st.none() | st.integers(0, 4)

    @rule(target=ids, shards=st.integers(1, 3), dies=deaths, kind=st.sampled_from(["t", "v"]))
    def create(self, shards, dies, kind):
        make = self.room.table if kind == "t" else self.room.view
        made = self.attempt(lambda: make(shards=shards), dies)
        return multiple() if made is None else made

    @rule(target=ids, dies=deaths)
    def create_ingestion(self, dies):
        made = self.attempt(self.room.ingestion, dies)
        return multiple() if made is None else made

    @rule(target=ids, global_id=ids, dies=deaths)
    def create_export_of_ingestion(self, global_id, dies):
        description, _ = self.room.durable.catalog.get(global_id, (None, None))
        if description is None or not hasattr(description.data_source, "remap"):
            return multiple()
        made = self.attempt(lambda: self.room.export_of(global_id), dies)
        return multiple() if made is None else made

    @rule(target=sinks, from_id=ids, dies=deaths)
    def create_sink(self, from_id, dies):
        if from_id not in self.room.durable.catalog:
            return multiple()
        made = self.attempt(lambda: self.room.sink(from_id), dies)
        return multiple() if made is None else made

    @rule(sink=sinks, dies=deaths)
    def drop_sink(self, sink, dies):
        if sink in self.room.durable.sinks:
            self.attempt(lambda: self.room.drop_sink(sink), dies)

    @rule(global_id=ids, dies=deaths)
    def drop(self, global_id, dies):
        if global_id in self.room.durable.catalog:
            self.attempt(lambda: self.room.drop(global_id), dies)

    @rule(global_id=ids)
    def hold(self, global_id):
        if global_id in self.room.durable.catalog:
            self.room.core.capabilities.acquire([global_id], HOLDER)

    @rule(global_id=ids, step=st.integers(1, 6), dies=deaths)
    def write(self, global_id, step, dies):
        if global_id in self.room.durable.catalog:
            upper = self.room.core.capabilities.state(global_id).upper
            self.attempt(lambda: self.room.write(global_id, Frontier(upper.value + step)), dies)

    @rule(limit=st.integers(1, 5), dies=deaths)
    def maintain(self, limit, dies):
        self.attempt(lambda: self.room.run(self.room.core.maintain(limit)), dies)

    @precondition(lambda self: self.room.durable.shards)
    @rule(data=st.data())
    def lose_a_mapping(self, data):
        """What an older release, or a fault, may leave: a shard that no object has."""
        number = self.room.durable.new_shard(False, MINIMUM_FRONTIER)
        if data.draw(st.booleans()):
            self.room.durable.unfinalized.add(number)
        self.attempt(self.room.restart, None)
        self.room.restart()
        self.everything_is_somewhere()

    @precondition(lambda self: self.room.durable.mappings)
    @rule(data=st.data(), dies=deaths)
    def register_a_mapped_shard(self, data, dies):
        """What a fault may leave: a shard that is to be finalized, and that an object has."""
        number = data.draw(st.sampled_from(sorted(self.room.durable.mappings)))
        self.room.durable.unfinalized.add(number)
        self.attempt(self.room.restart, dies)
        self.everything_is_somewhere()

    def teardown(self):
        self.restarted()
        for _ in range(100):
            if not (effects := self.room.core.maintain(1000)):
                break
            self.room.run(effects)
        else:
            raise AssertionError("maintenance does not end")
        durable = self.room.durable
        for number, shard in durable.shards.items():
            assert shard.finalized != (number in durable.mappings)


def test_i18_i26_i27_i33_a_crash_at_any_step_leaves_every_shard_in_one_state(request):
    tried(Crashes, request)


@histories()
@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["progress", "ingestion", "export", "table", "view", "sink"]),
            st.integers(0, 9).map(Frontier) | st.just(EMPTY_FRONTIER),
            st.booleans(),
        ),
        max_size=20,
    ),
)
def test_i47_frontiers_never_regress_and_nothing_follows_the_empty_one(shared_sources, reports):
    """Whoever reports, in whatever order, directly or as a response."""
    room = Room(shared_sources=shared_sources)
    ids = {"ingestion": room.ingestion(), "table": room.table(), "view": room.view()}
    (ids["progress"],) = room.core.capabilities.state(ids["ingestion"]).dependencies
    ids |= {"export": room.export_of(ids["ingestion"]), "sink": room.sink(ids["view"])}
    written_together = {"table", "progress", "ingestion", "export"} if shared_sources else {"table"}
    reached = dict.fromkeys(ids, MINIMUM_FRONTIER)
    for name, frontier, directly in reports:
        report = (ids[name], frontier)
        if directly:
            room.core.update_write_frontiers([report])
        else:
            room.core.respond(FrontierUppers((report,)))
            room.run()
        for each in written_together if name in written_together else {name}:
            reached[each] = max(reached[each], frontier)
        for each, global_id in ids.items():
            if each == "sink":
                assert room.core.exports.get(global_id).write_frontier == reached[each]
            else:
                assert room.core.capabilities.state(global_id).upper == reached[each]


def test_the_model_knows_exports_of_ingestions():
    room = Room()
    export = room.export_of(room.ingestion())
    assert isinstance(room.durable.catalog[export][0].data_source, IngestionExport)
    assert len(room.core.capabilities.state(export).dependencies) == 1
