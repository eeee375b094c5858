"""The compute controller against a model that computes everything at once, and lossy replicas."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck
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
from tests.property.histories import settings_of
from tests.support.compute.controller_definitions import HOLDER, Definitions
from tests.support.compute.controller_model import Expected, Model, behind
from tests.support.compute.controller_room import (
    CLUSTER,
    ComputeRoom,
    copy_to,
    index,
    subscribe,
    view,
)
from tests.support.compute.replica_sim import SimReplica, changes, times_of

from slackwater.compute.controller import effects as ef
from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.hydration import Phase
from slackwater.controller.holds import HoldKind
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import LagWriteFrontier, ValidFrom

LIMIT = 2
NAMES = ("r1", "r2", "r3")
OF_DATAFLOWS = {HoldKind.INDEX, HoldKind.VIEW, HoldKind.SUBSCRIPTION, HoldKind.COPY}

names = st.sampled_from(NAMES)
steps = st.integers(1, 6)
policies = st.one_of(
    st.integers(0, 30).map(Frontier).map(ValidFrom),
    st.builds(LagWriteFrontier, st.integers(0, 8), st.integers(1, 9)),
)


class Controller(Definitions, RuleBasedStateMachine):
    """Everything that can happen between a controller, its replicas and what is stored."""

    ids = Bundle("ids")
    holds = Bundle("holds")
    peeks = Bundle("peeks")

    @initialize(target=ids, replicas=st.sets(names), later=st.integers(0, 2))
    def begin(self, replicas, later):
        self.room = ComputeRoom(commits=False)
        self.core, self.stored = self.room.core, self.room.stored
        self.tables = [self.room.table(10), self.room.table(10)]
        self.model = Model(self.stored)
        self.sims: dict[str, SimReplica] = {}
        self.locations = set()
        self.late, self.commits = [], []
        self.answers, self.deliveries = defaultdict(list), defaultdict(list)
        self.copies, self.committed = defaultdict(list), defaultdict(list)
        self.asked, self.cancelled, self.targets = {}, set(), {}
        self.told: dict = {}
        """The last frontiers that a replica has told of a collection, over its connection."""
        self.made: dict = {}
        self.former: Counter = Counter()
        """How many dropped collections a replica has to end before one of the same id."""
        self.until: dict = {}
        self.read_only = False
        self.taken, self.lost_holds = [], set()
        self.next_id = 100
        self.core.update_configuration({"compute_hydration_concurrency": str(LIMIT)})
        self.core.initialization_complete()
        self.run()
        for name in sorted(replicas):
            self.add_replica(name)
        # Most rules need something that runs; a history without would say little.
        first = self.create("index", [0], [], later, None, False)
        others = [self.create(kind, [1], [first], 0, None, True) for kind in ("view", "subscribe")]
        return multiple(first, *others)

    # The shell

    def run(self):
        while self.core.ready():
            self.execute(self.core.process())
        self.core.validate()

    def execute(self, effects):
        for effect in effects:
            match effect:
                case ef.ConnectReplica(key, _, nonce):
                    self.sims[key.replica].connect(nonce)
                    self.told = {k: v for k, v in self.told.items() if k[0] != key.replica}
                case ef.DisconnectReplica(key, nonce):
                    self.goes_late(key.replica, nonce)
                case ef.SendToReplica(key, nonce, command):
                    assert not (self.read_only and isinstance(command, pr.AllowWrites))
                    if self.sims[key.replica].nonce == nonce:
                        self.sims[key.replica].inbox.append(command)
                case ef.CommitOutput():
                    assert not self.read_only
                    self.commits.append(effect)
                case ef.AnswerPeek(peek_id, answer):
                    self.answered(peek_id, answer)
                case ef.DiscardStash():
                    raise AssertionError(effect)
                case ef.DeliverSubscribe(global_id):
                    self.deliveries[global_id].append(effect)
                case ef.AnswerCopyTo(global_id, answer):
                    self.copies[global_id].append(answer)
                case ef.ReportUpper(global_id, upper):
                    assert self.model.collections[global_id].write == upper
                case ef.ReportViolation():
                    raise AssertionError(effect)

    def goes_late(self, name, nonce):
        sim = self.sims[name]
        if sim.nonce == nonce:
            self.late += [(name, nonce, each) for each in sim.disconnect()]

    def answered(self, peek_id, answer):
        """I46: one answer, with the rows at its time; the hold is still there."""
        self.answers[peek_id].append(answer)
        asked = self.asked[peek_id]
        assert len(self.answers[peek_id]) == 1
        if isinstance(answer, pr.PeekRows):
            assert answer.rows == repr(times_of(asked.id, 0, asked.time + 1)).encode()
        self.model.tokens.pop(f"peek {peek_id}")

    # What is stored

    @rule(step=steps)
    def tick(self, step):
        self.room.tick(self.stored.tables_upper.value + step)

    @rule(global_id=ids, step=steps)
    def others_write(self, global_id, step):
        """A leader of before, whose commit arrives late."""
        each = self.model.collections[global_id]
        if each.target is None:
            return
        lower = self.stored.frontiers(each.target).upper.value
        if lower > each.as_of.value:
            times = times_of(global_id, lower, lower + step)
            self.store(each.target, lower, lower + step, times)

    def store(self, target, lower, upper, times):
        done = self.committed[target]
        assert not done or done[-1][1] == lower, "a gap, or an interval twice"
        done.append((lower, upper, times))
        self.room.storage.write(target, Frontier(upper))

    # Dataflows

    def live(self, name):
        each = self.model.collections.get(name)
        return each is not None and not each.dropped

    def indexes(self, chosen):
        found = [i for i in dict.fromkeys(chosen) if self.live(i)]
        return tuple(i for i in found if self.model.collections[i].kind == "index")

    @rule(
        target=ids,
        kind=st.sampled_from(["index", "index", "view", "view", "subscribe", "copy"]),
        sources=st.lists(st.integers(0, 1), max_size=2, unique=True),
        imports=st.lists(ids, max_size=2),
        later=st.integers(0, 4),
        for_one=st.none() | st.none() | names,
        writes=st.booleans(),
        ends=st.none() | st.integers(1, 9),
    )
    def create(self, kind, sources, imports, later, for_one, writes, ends=None):
        sources = tuple(self.tables[i] for i in sources)
        imports = self.indexes(imports) if kind != "copy" else ()
        name = f"{'u' if kind in ('index', 'view') else 't'}{self.next_id}"
        self.next_id += 1
        sinces = [self.stored.frontiers(i).since for i in sources]
        earliest = max([*sinces, *(self.model.since(i) for i in imports), MINIMUM_FRONTIER])
        as_of = earliest.value + later
        until = None if ends is None else as_of + ends
        target = None
        if kind == "view":
            # Either nothing was stored yet, or the as-of is before what is stored (I44).
            upper = as_of + 1 + later if writes and later else 0
            target = self.room.target(upper)
            if not upper:
                # The output cannot be read before the as-of either.
                begins = ValidFrom(Frontier(as_of))
                self.room.storage.core.set_read_policy([(target, begins)])
            if upper:
                self.committed[target].append((0, upper, times_of(name, 0, upper)))

        def made(at):
            match kind:
                case "index":
                    return index(name, sources, imports, as_of=at)
                case "view":
                    return view(name, target, sources, imports, as_of=at)
                case "subscribe":
                    ends = {} if until is None else {"until": Frontier(until)}
                    return subscribe(name, sources, imports, as_of=at, **ends)
            return copy_to(name, sources, as_of=at)

        if earliest.value:
            # I40: not before what its inputs can be read at.
            with pytest.raises(ComputeError) as caught:
                self.core.create_dataflow(CLUSTER, made(earliest.value - 1))
            assert caught.value.variant is Variant.SINCE_VIOLATION
        one = for_one if kind in ("subscribe", "copy") and for_one in self.sims else None
        policy = ValidFrom(Frontier(as_of)) if kind == "index" else None
        each = Expected(kind, Frontier(as_of), sources, imports, target, policy)
        self.model.collections[name] = each
        if target is not None:
            each.advance(self.stored.frontiers(target).upper)
        self.core.create_dataflow(CLUSTER, made(as_of), one)
        self.made[name] = made
        self.until[name] = EMPTY_FRONTIER if until is None else Frontier(until)
        if one is not None:
            self.targets[name] = one
        if kind == "view":
            self.core.allow_writes(CLUSTER, name)
        self.run()
        return name

    @rule(chosen=st.lists(st.tuples(ids, policies), min_size=1, max_size=3))
    def set_read_policy(self, chosen):
        chosen = [(i, policy) for i, policy in chosen if self.live(i)]
        written = [i for i, _ in chosen if self.model.collections[i].policy is None]
        if written:
            with pytest.raises(ComputeError) as caught:
                self.core.set_read_policy(CLUSTER, chosen)
            assert caught.value.variant is Variant.WRITE_ONLY_COLLECTION
            return
        for name, policy in chosen:
            self.model.collections[name].policy = policy
            self.model.collections[name].follow(self.model.collections[name].write)
        self.core.set_read_policy(CLUSTER, chosen)

    @rule(name=ids)
    def drop(self, name):
        if not self.live(name):
            with pytest.raises(ComputeError) as caught:
                self.core.drop_collections(CLUSTER, [name])
            assert caught.value.variant is Variant.COLLECTION_MISSING
            return
        self.model.collections[name].dropped = True
        self.core.drop_collections(CLUSTER, [name])

    @rule(target=holds, name=ids, later=st.integers(0, 5))
    def acquire(self, name, later):
        if not self.live(name) or self.model.since(name).is_empty:
            return multiple()
        since = self.model.since(name).value
        hold = self.core.acquire_read_hold(CLUSTER, name, HOLDER, Timestamp(since + later))
        self.model.tokens[hold.hold_id] = (name, since + later)
        self.taken.append(hold)
        return hold

    @rule(hold=holds, step=st.integers(0, 5), release=st.booleans())
    def move(self, hold, step, release):
        if id(hold) in self.lost_holds:
            # Its controller is no more, and another one counts from 1 on.
            return
        if release:
            held = self.model.tokens.pop(hold.hold_id, None) is not None
            assert self.core.release_read_hold(hold) == held
        elif hold.hold_id in self.model.tokens:
            name, time = self.model.tokens[hold.hold_id]
            self.core.downgrade_read_hold(hold, Frontier(time + step))
            self.model.tokens[hold.hold_id] = (name, time + step)

    # Replicas

    @rule(name=names)
    def add_replica(self, name):
        if name in self.sims:
            with pytest.raises(ComputeError) as caught:
                self.core.add_replica_to_instance(CLUSTER, name, "here")
            assert caught.value.variant is Variant.REPLICA_EXISTS
            return
        self.sims[name] = SimReplica(name, self.stored, LIMIT, self.live)
        self.core.add_replica_to_instance(CLUSTER, name, "here")
        self.run()

    @precondition(lambda self: self.sims)
    @rule(data=st.data())
    def drop_replica(self, data):
        name = data.draw(st.sampled_from(sorted(self.sims)))
        self.core.drop_replica(CLUSTER, name)
        self.run()
        del self.sims[name]
        self.was_for(name)

    def was_for(self, name):
        """What only that one was asked has ended."""
        for peek_id, (asked_of) in list(self.targets.items()):
            if asked_of != name:
                continue
            if peek_id in self.asked:
                assert len(self.answers[peek_id]) == 1
                del self.targets[peek_id]
            elif self.live(peek_id) and self.deliveries[peek_id]:
                last = self.deliveries[peek_id][-1]
                assert last.error is not None
                assert last.lower == last.upper

    @precondition(lambda self: self.sims)
    @rule(data=st.data(), dies=st.booleans(), maintained=st.booleans(), busy=st.booleans())
    def lose(self, data, dies, maintained, busy):
        """A connection ends; the replica goes on alone, or dies."""
        name = data.draw(st.sampled_from(sorted(self.sims)))
        sim = self.sims[name]
        if sim.nonce is None:
            return
        if busy:
            self.whole_turn(sim, 3, hears=False)
        nonce = sim.nonce
        self.goes_late(name, nonce)
        if dies:
            sim.die()
        self.core.respond(pr.ReplicaFailed(ReplicaKey(CLUSTER, name), nonce))
        self.run()
        if maintained:
            self.maintain()

    @rule(happens=st.booleans(), read_only=st.sampled_from([False, False, True]))
    def restart(self, happens, read_only):
        """Another controller starts from the catalog; replicas go on meanwhile.

        One that is read-only writes nothing (4.12), until another one follows. Durable sinces stay
        where the old one had them, until the new one holds what it reads.
        """
        self.run()
        before = list(self.stored.holds)
        for commit in self.commits if happens else ():
            if self.stored.frontiers(commit.target).upper == commit.lower:
                rows = eval(commit.rows)
                self.store(commit.target, commit.lower.value, commit.upper.value, rows)
        for sim in self.sims.values():
            sim.disconnect()
        self.late, self.commits, self.told = [], [], {}
        self.former.clear()
        self.read_only = read_only
        self.room.core = self.core = ComputeController(self.stored, read_only=read_only)
        self.core.create_instance(CLUSTER)
        self.core.update_configuration({"compute_hydration_concurrency": str(LIMIT)})
        catalog = [name for name in self.model.collections if self.is_in_catalog(name)]
        self.restore(sorted(catalog, reverse=True))
        for hold in before:
            self.stored.holds.release(hold)
        for name in sorted(self.sims):
            self.core.add_replica_to_instance(CLUSTER, name, "here")
        self.core.initialization_complete()
        self.run()

    def is_in_catalog(self, name):
        kinds = {self.model.collections[i].kind for i in self.model.above(name)}
        return kinds <= {"index", "view"} and all(self.live(i) for i in self.model.above(name))

    def restore(self, catalog):
        known = self.model.collections
        policies = {i: known[i].policy for i in catalog if known[i].policy is not None}
        now = Timestamp(max(0, self.stored.tables_upper.value - 1))
        flows = [(CLUSTER, self.made[i](None)) for i in catalog]
        found = self.core.restore(flows, policies, now)
        assert (found.refused, found.failed) == ({}, ())
        self.model.tokens, self.model.reached = {}, {}
        self.lost_holds = {id(hold) for hold in self.taken}
        for each in known.values():
            each.dropped = True
        for name, as_of in found.as_ofs.items():
            each = known[name]
            assert not as_of.is_empty
            if each.target is not None:
                # I44
                stored = self.stored.frontiers(each.target)
                assert as_of < stored.upper or as_of <= stored.since
            policy = None if each.policy is None else ValidFrom(as_of)
            new = Expected(each.kind, as_of, each.sources, each.imports, each.target, policy)
            known[name] = new
            if new.target is not None:
                new.advance(self.stored.frontiers(new.target).upper)
                self.core.allow_writes(CLUSTER, name)
        for name, policy in policies.items():
            known[name].policy = policy
            known[name].follow(known[name].write)
        self.asked = {i: each for i, each in self.asked.items() if self.answers[i]}
        self.targets = {i: one for i, one in self.targets.items() if i in self.deliveries}

    @rule()
    def maintain(self):
        lost = [name for name, sim in self.sims.items() if sim.nonce is None]
        self.model.maintain(bool(self.sims))
        self.execute(self.core.maintain())
        self.run()
        for name in lost:
            self.was_for(name)

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def late_message(self, data):
        """What comes over an older connection changes nothing."""
        name, nonce, response = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        # What waits for its inputs is looked at whenever something is processed.
        self.execute(self.core.process())
        self.run()
        self.core.respond(pr.FromReplica(ReplicaKey(CLUSTER, name), nonce, response))
        assert self.core.process() == ()

    @precondition(lambda self: any(sim.inbox for sim in self.sims.values()))
    @rule(data=st.data(), count=st.integers(1, 20))
    def deliver(self, data, count):
        sim = data.draw(st.sampled_from([s for s in self.sims.values() if s.inbox]))
        for _ in range(min(count, len(sim.inbox))):
            sim.receive()

    @precondition(lambda self: any(sim.outbox for sim in self.sims.values()))
    @rule(data=st.data(), count=st.integers(1, 20))
    def receive(self, data, count):
        sim = data.draw(st.sampled_from([s for s in self.sims.values() if s.outbox]))
        for _ in range(min(count, len(sim.outbox))):
            self.hear(sim)

    def hear(self, sim):
        response = sim.outbox.pop(0)
        former = (sim.name, sim.nonce), getattr(response, "id", None)
        if self.former[former]:
            # The first that is empty is the last of what was dropped.
            over = isinstance(response, pr.FrontierReport) and response.write == EMPTY_FRONTIER
            self.former[former] -= over
            self.core.respond(pr.FromReplica(ReplicaKey(CLUSTER, sim.name), sim.nonce, response))
            self.run()
            return
        self.note_frontiers(sim.name, response)
        match response:
            case pr.FrontierReport(name, write) if write is not None:
                each = self.model.collections[name]
                if each.kind in ("index", "copy") and not self.is_gone(name):
                    each.advance(write)
            case pr.CopyToAnswered(name, pr.CopyToRows()) if not self.is_gone(name):
                self.model.collections[name].advance(EMPTY_FRONTIER)
            case pr.SubscribeBatch(name, _, upper):
                self.model.collections[name].advance(upper)
        self.core.respond(pr.FromReplica(ReplicaKey(CLUSTER, sim.name), sim.nonce, response))
        self.run()

    def note_frontiers(self, name, response):
        match response:
            case pr.FrontierReport(global_id, write, read, output):
                told = {"write": write, "input": read, "output": output}
            case pr.SubscribeBatch(global_id, _, upper):
                told = {"write": upper, "output": upper}
            case pr.SubscribeDropped(global_id) | pr.CopyToAnswered(global_id):
                told = dict.fromkeys(("write", "output"), EMPTY_FRONTIER)
            case _:
                return
        known = self.told.setdefault((name, global_id), {})
        for part, frontier in told.items():
            if frontier is not None:
                known[part] = max(frontier, known.get(part, frontier))

    def is_gone(self, name):
        return name not in self.core._collections.states

    @precondition(lambda self: any(sim.progress for sim in self.sims.values()))
    @rule(
        data=st.data(),
        step=steps,
        parts=st.sets(st.sampled_from(["write", "input", "output"])),
        offers=st.booleans(),
    )
    def work(self, data, step, parts, offers):
        sim = data.draw(st.sampled_from([s for s in self.sims.values() if s.progress]))
        name = data.draw(st.sampled_from(sorted(sim.progress)))
        sim.work(name, step)
        if sim.is_ready and sim.nonce is not None:
            sim.report(name, parts)
            if offers:
                sim.offer(name)

    @precondition(lambda self: any(sim.state.peeks for sim in self.sims.values()))
    @rule(data=st.data())
    def answer(self, data):
        sim = data.draw(st.sampled_from([s for s in self.sims.values() if s.state.peeks]))
        if sim.is_ready and sim.nonce is not None:
            sim.answer(data.draw(st.sampled_from(sorted(sim.state.peeks))))

    @precondition(lambda self: self.sims)
    @rule(data=st.data(), step=steps, hears=st.booleans())
    def turn(self, data, step, hears):
        """A replica does all that it can, and the controller hears all of it, or nothing yet."""
        self.whole_turn(data.draw(st.sampled_from(list(self.sims.values()))), step, hears)

    def whole_turn(self, sim, step, hears=True):
        while sim.inbox:
            sim.receive()
        if sim.nonce is None or not sim.is_ready:
            return
        for name in list(sim.progress):
            sim.work(name, step)
            sim.report(name, {"write", "input", "output"})
            sim.offer(name)
        for peek_id in list(sim.state.peeks):
            sim.answer(peek_id)
        while hears and sim.outbox:
            self.hear(sim)

    @precondition(lambda self: self.sims)
    @rule(step=steps, hears=st.booleans(), commits=st.integers(0, 3))
    def everybody(self, step, hears, commits):
        """Time goes on, and all replicas do what they can."""
        self.tick(step)
        self.turns(step, hears, commits)

    @precondition(lambda self: self.sims)
    @rule(step=steps, maintained=st.booleans())
    def everybody_hears(self, step, maintained):
        """All replicas do what they can, and the controller hears it."""
        if maintained:
            self.maintain()
        self.turns(step, True, 5)

    def turns(self, step, hears, commits):
        for sim in self.sims.values():
            self.whole_turn(sim, step, hears)
        for commit in self.commits[:commits]:
            self.commits.remove(commit)
            self.carry_out(commit, "told")

    # Peeks

    @precondition(lambda self: self.indexes(self.model.collections))
    @rule(
        target=peeks,
        data=st.data(),
        later=st.integers(-2, 6),
        for_one=st.none() | names,
        held=st.booleans(),
    )
    def peek(self, data, later, for_one, held):
        name = data.draw(st.sampled_from(self.indexes(self.model.collections)))
        since = self.model.since(name).value
        asked = pr.Peek(f"p{self.next_id}", name, Timestamp(max(0, since + later)))
        self.next_id += 1
        if asked.time < since:
            with pytest.raises(ComputeError) as caught:
                self.core.peek(CLUSTER, asked)
            assert caught.value.variant is Variant.SINCE_VIOLATION
            return multiple()
        hold = self.core.acquire_read_hold(CLUSTER, name, HOLDER) if held else None
        one = for_one if for_one in self.sims else None
        self.asked[asked.peek_id] = asked
        self.model.tokens[f"peek {asked.peek_id}"] = (name, asked.time)
        if one is not None:
            self.targets[asked.peek_id] = one
        self.core.peek(CLUSTER, asked, one, hold)
        return asked.peek_id

    @rule(peek_id=peeks)
    def cancel_peek(self, peek_id):
        if peek_id not in self.asked:
            # It went with a controller that is no more.
            return
        had = list(self.answers[peek_id])
        self.core.cancel_peek(peek_id)
        self.run()
        assert self.answers[peek_id] == (had or [pr.PeekCanceled()])

    # Commits

    @precondition(lambda self: self.commits)
    @rule(data=st.data(), outcome=st.sampled_from(["told", "told", "lost", "lost before"]))
    def commit(self, data, outcome):
        """Appends are carried out in any order, and some outcomes are never known."""
        position = data.draw(st.integers(0, len(self.commits) - 1))
        self.carry_out(self.commits.pop(position), outcome)

    def carry_out(self, commit, outcome):
        upper = self.stored.frontiers(commit.target).upper
        happens = upper == commit.lower and outcome != "lost before"
        if happens:
            rows = eval(commit.rows)
            self.store(commit.target, commit.lower.value, commit.upper.value, rows)
        each = self.model.collections[commit.id]
        if not self.is_gone(commit.id):
            each.advance(self.stored.frontiers(commit.target).upper)
        if outcome != "told":
            self.core.respond(pr.OutputFailed(commit.ticket))
        elif happens:
            self.core.respond(pr.OutputCommitted(commit.ticket))
        else:
            self.core.respond(pr.OutputRefused(commit.ticket, upper))
        self.run()

    # What must hold whenever somebody looks

    @rule()
    def look(self):
        self.run()
        for name, each in self.model.collections.items():
            if self.is_gone(name):
                assert each.dropped
                assert self.model.since(name).is_empty
                continue
            state = self.core._collections.states[name]
            since = self.model.since(name)
            assert state.is_dropped == each.dropped
            assert (state.since, state.write_frontier) == (since, each.write)
            assert Counter(dict(state.capabilities.items())) == self.model.multiset(name)
            if not each.dropped:
                assert (state.implied, state.warmup) == (each.implied, each.warmup)
                if each.policy is None:
                    # I42
                    assert state.implied == max(each.as_of, behind(each.write))
            # I1, I41: it never goes back, and is never before the as-of.
            before = self.model.reached.get(name, (each.as_of, each.as_of))
            assert before <= (since, each.write) or before[0] <= since
            assert before[1] <= each.write
            self.model.reached[name] = (since, each.write)
            for source in each.imports if not since.is_empty else ():
                assert self.model.since(source) <= since
        self.stored_inputs_are_held()
        self.replicas_are_where_they_told()

    def stored_inputs_are_held(self):
        """I15, I16, I41: one hold for each edge, where the since of the dependent is."""
        for table in self.tables:
            expected = Counter()
            for name, each in self.model.collections.items():
                since = self.model.since(name)
                if table in each.sources and not since.is_empty:
                    expected[name, since.value] += 1
                    assert self.stored.frontiers(table).since <= since
            found = Counter(
                (hold.holder.name, hold.since)
                for hold in self.stored.holds
                if table in hold.ids and hold.holder.kind in OF_DATAFLOWS
            )
            assert found == expected

    def replicas_are_where_they_told(self):
        """I47, 4.7, 4.11: frontiers begin at the as-of, and are the last that were told."""
        for name, replica in self.core.replicas(CLUSTER).items():
            for global_id, each in replica.collections.items():
                state = self.core._collections.states[global_id]
                assert state.as_of <= each.as_of <= max(state.since, each.as_of)
                told = self.told.get((name, global_id), {})
                for part in ("write", "input", "output"):
                    assert getattr(each, part) == max(each.as_of, told.get(part, each.as_of))
        waited_for = []
        for name, each in self.model.collections.items():
            if not self.live(name):
                continue
            hosted = self.core.replica_frontiers(CLUSTER, name)
            done = {i: h.as_of.is_empty or h.as_of < h.output for i, h in hosted.items()}
            assert self.core.is_hydrated(CLUSTER, name) == (not done or any(done.values()))
            phases = self.core.hydration(CLUSTER, name)
            assert {i: phase is Phase.HYDRATED for i, phase in phases.items()} == done
            if each.kind in ("index", "view") and done and not any(done.values()):
                waited_for.append(name)
        assert self.core.are_hydrated(CLUSTER) == (not waited_for)
        assert self.core.are_hydrated(CLUSTER, exclude=frozenset(waited_for))

    @invariant()
    def parts_agree(self):
        self.core.validate()

    @invariant()
    def subscriptions_are_those_of_one_replica(self):
        """I45: intervals without gaps from 0 on, and each update once."""
        for global_id, delivered in self.deliveries.items():
            reached, found = 0, []
            for each in delivered:
                assert each.lower.value == reached
                if each.error is not None:
                    assert each is delivered[-1]
                    continue
                assert each.upper > each.lower
                assert all(each.lower.value <= u.time < each.upper.value for u in each.updates)
                reached = each.upper.value
                found += [(u.time, int(u.rows)) for u in each.updates]
            as_of, until = self.model.collections[global_id].as_of.value, self.until[global_id]
            given = changes(global_id, as_of, 0, min(reached, until.value))
            assert sorted(found) == sorted(given)

    @invariant()
    def outputs_have_each_interval_once(self):
        """I44: each time is written once, whoever computed it, and none is left out."""
        for name, each in self.model.collections.items():
            if each.target is None:
                continue
            done = self.committed[each.target]
            written = [t for _, _, times in done for t in times]
            upper = done[-1][1] if done else 0
            assert sorted(written) == times_of(name, 0, upper)

    @invariant()
    def copies_are_answered_once(self):
        for global_id, answers in self.copies.items():
            (answer,) = answers
            if isinstance(answer, pr.CopyToRows):
                as_of = self.model.collections[global_id].as_of.value
                assert answer.count == len(times_of(global_id, 0, as_of + 1))

    def teardown(self):
        """In the end, when nothing is lost any more, everything is there."""
        if self.read_only:
            self.restart(happens=False, read_only=False)
        self.look()
        self.tick(40)
        for peek_id in [i for i in self.asked if i in self.targets and not self.answers[i]]:
            self.core.cancel_peek(peek_id)
        if not self.sims:
            self.add_replica("r1")
        reached = self.stored.tables_upper.value
        for _ in range(60):
            self.maintain()
            for sim in self.sims.values():
                self.whole_turn(sim, reached)
            while self.commits:
                self.carry_out(self.commits.pop(0), "told")
            if self.is_still(reached):
                break
        self.look()
        assert self.is_still(reached), "something does not go on"
        for hold in list(self.core._collections.holds):
            self.core.release_read_hold(hold)
        self.core.drop_collections(CLUSTER, [s.id for s in self.core.collections(CLUSTER)])
        self.run()
        for _ in range(3):
            for sim in self.sims.values():
                self.whole_turn(sim, 1)
        self.run()
        assert self.core._collections.states == {}
        assert list(self.stored.holds) == []

    def is_still(self, reached):
        """Each peek is answered, each view stored and each subscription delivered so far."""
        peeked = all(self.answers[i] for i in self.asked)
        views = [
            self.stored.frontiers(each.target).upper.value
            for each in self.model.collections.values()
            if each.target is not None and not each.dropped
        ]
        delivered = [
            delivered[-1].upper.value if (delivered := self.deliveries[name]) else 0
            for name, each in self.model.collections.items()
            if each.kind == "subscribe" and not each.dropped and name not in self.targets
        ]
        copied = [
            bool(self.copies[name])
            for name, each in self.model.collections.items()
            if each.kind == "copy" and not each.dropped and name not in self.targets
        ]
        is_there = all(upper >= reached for upper in (*views, *delivered))
        return peeked and is_there and all(copied) and self.core.are_hydrated(CLUSTER)


def test_i01_i09_to_i16_i37_i40_to_i42_i44_to_i48_replicas_come_and_go(request):
    settings = settings_of(
        request.function.__name__, stateful_step_count=50, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(Controller, settings=settings)
