"""More of what may be defined, or is refused: rules of the machine of the compute controller.

The machine has the model, the room and the replicas, and the rules of what they do.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, multiple, rule
from tests.support.compute.controller_model import Expected
from tests.support.compute.controller_room import CLUSTER, index, subscribe, view
from tests.support.compute.refusals import REFUSALS, Refused, fingerprint

from slackwater.compute.controller import effects as ef
from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.controller.holds import Holder, HoldKind
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import ValidFrom

HOLDER = Holder(HoldKind.STATEMENT, "s")


class Definitions:
    """Rules for a machine that has a bundle of ids."""

    ids = Bundle("ids")

    @rule(target=ids, source=st.integers(0, 1), later=st.integers(0, 4))
    def create_two(self, source, later):
        """Of dataflows that are created together, one may read what another one exports."""
        table = self.tables[source]
        as_of = self.stored.frontiers(table).since.value + later
        first, second = f"u{self.next_id + 1}", f"u{self.next_id}"
        self.next_id += 2
        made = {
            first: lambda at: index(first, [table], as_of=at),
            second: lambda at: index(second, (), [first], as_of=at),
        }
        policy = ValidFrom(Frontier(as_of))
        for name, sources, imports in ((first, (table,), ()), (second, (), (first,))):
            expected = Expected("index", Frontier(as_of), sources, imports, None, policy)
            self.model.collections[name] = expected
        self.made |= made
        self.core.create_dataflows(CLUSTER, [make(as_of) for make in made.values()])
        self.run()
        return multiple(first, second)

    @rule(name=ids)
    def create_again(self, name):
        """The id of what is dropped is used again, before replicas are done with it."""
        self.run()
        each = self.model.collections[name]
        readers = [i for i, other in self.model.collections.items() if name in other.imports]
        if (
            not self.live(name)
            or each.kind not in ("index", "view")
            or any(not self.model.since(i).is_empty for i in readers)
            or not all(self.live(i) for i in each.imports)
        ):
            return
        as_of = self.model.since(name)
        at = Timestamp(as_of.value)
        stored = [self.stored.acquire([i], HOLDER, at) for i in each.sources]
        imported = [self.core.acquire_read_hold(CLUSTER, i, HOLDER, at) for i in each.imports]
        self.core.drop_collections(CLUSTER, [name])
        for key, sim in self.hosting(name):
            self.former[key, name] += 1
            self.told.pop((sim.name, name), None)
        # Its peeks fail, which `answered` sees; its holds hold nothing any more.
        tokens = self.model.tokens.items()
        self.model.tokens = {i: t for i, t in tokens if t[0] != name or isinstance(i, str)}
        new = Expected(each.kind, as_of, each.sources, each.imports, each.target, each.policy)
        self.core.create_dataflow(CLUSTER, self.made[name](at))
        self.model.collections[name] = new
        if new.policy is not None:
            new.policy = ValidFrom(as_of)
        else:
            new.advance(self.stored.frontiers(new.target).upper)
            self.core.allow_writes(CLUSTER, name)
        self.model.reached.pop(name, None)
        self.run()
        for hold in stored:
            self.stored.holds.release(hold)
        for hold in imported:
            self.core.release_read_hold(hold)

    def hosting(self, name):
        """The connections over which the collection was asked for, and is not over."""
        for replica in self.core.replicas(CLUSTER).values():
            hosted = replica.collections.get(name)
            if hosted is not None and not hosted.is_done:
                yield (replica.key.replica, replica.nonce), self.sims[replica.key.replica]

    @rule(kind=st.sampled_from(sorted(REFUSALS)), number=st.integers(0, 60))
    def refuse(self, kind, number):
        """What cannot be is refused for its reason, and has changed nothing (4.13)."""
        known = self.model.collections
        refused = Refused(
            self.core,
            self.tables[0],
            [name for name in known if self.live(name) and known[name].policy is not None],
            [name for name in known if self.live(name) and known[name].policy is None],
            [name for name in known if not self.live(name)],
            list(self.core.replicas(CLUSTER)),
            [peek for peek_id, peek in self.asked.items() if not self.answers[peek_id]],
        )
        found = REFUSALS[kind](refused, number)
        if found is not None:
            operation, reason = found
            before = fingerprint(self.core, self.stored)
            with pytest.raises(ComputeError if isinstance(reason, Variant) else reason) as caught:
                operation()
            assert getattr(caught.value, "variant", reason) is reason
            assert fingerprint(self.core, self.stored) == before
        refused.give_back()

    @rule(source=st.integers(0, 1))
    def create_complete(self, source):
        """Of a view with an empty as-of nothing is sent, and it goes when it is dropped (4.4)."""
        name, target = f"u{self.next_id}", self.room.target(0)
        self.next_id += 1
        self.execute(self.core.process())
        self.run()
        held = list(self.stored.holds)
        complete = view(name, target, [self.tables[source]], as_of=EMPTY_FRONTIER)
        self.core.create_dataflow(CLUSTER, complete)
        self.core.allow_writes(CLUSTER, name)
        assert self.core.collection(CLUSTER, name).since.is_empty
        assert self.core.is_hydrated(CLUSTER, name)
        self.core.drop_collections(CLUSTER, [name])
        effects = self.core.process()
        assert name not in repr(effects)
        self.execute(effects)
        assert self.is_gone(name)
        assert [h for h in self.stored.holds if h.holder.name == name] == []
        assert len(held) >= len(list(self.stored.holds))

    @rule(name=ids)
    def allow_writes_again(self, name):
        """It is told once, and for ever (4.12)."""
        self.run()
        if self.live(name):
            self.core.allow_writes(CLUSTER, name)
            is_view = self.model.collections[name].kind == "view"
            assert not is_view or "AllowWrites" not in repr(self.core._effects)

    @rule(source=st.integers(0, 1), later=st.integers(0, 3))
    def another_instance(self, source, later):
        """It is dropped with all that is on it, and nothing else (4.2)."""
        self.execute(self.core.process())
        self.run()
        before = fingerprint(self.core, self.stored)
        table = self.tables[source]
        as_of = Timestamp(self.stored.frontiers(table).since.value + later)
        name, followed, log = f"u{self.next_id}", f"t{self.next_id}", f"si{self.next_id}"
        self.next_id += 1
        self.core.create_instance("d", logs=[log])
        flows = [index(name, [table], as_of=as_of), subscribe(followed, (), [name], as_of=as_of)]
        self.core.create_dataflows("d", flows)
        hold = self.core.acquire_read_hold("d", name, HOLDER)
        with pytest.raises(ComputeError):
            self.core.collection(CLUSTER, name)
        self.core.peek("d", pr.Peek(followed, name, as_of))
        self.core.drop_instance("d")
        effects = self.core.process()
        (answer,) = [each for each in effects if isinstance(each, ef.AnswerPeek)]
        assert isinstance(answer.answer, pr.PeekFailed)
        (last,) = [each for each in effects if isinstance(each, ef.DeliverSubscribe)]
        assert last.error is not None
        assert not self.core.release_read_hold(hold)
        self.core.drop_instance("d")
        self.execute([each for each in effects if each not in (answer, last)])
        self.run()
        assert fingerprint(self.core, self.stored) == before
