"""The shell of the storage controller over real shards: who wins an append, and where shards go.

`test_storage_controller_properties.py` shows the same of the core alone.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from tests.property.histories import histories, settings_of
from tests.support.persist.persistence import (
    contents,
    copy_in_memory,
    own_shard,
)
from tests.support.storage.storage_leaders import Died, Leader, Mortality, Stored, everything

from slackwater.adapter.catalog.model import ItemKind, shards_of
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist.client import UpperMismatch
from slackwater.persist.leadership import Fenced
from slackwater.storage.controller.errors import StorageError, Variant
from slackwater.storage.controller.protocol import AppendDone

# Whichever pool it is, one thread has one connection to a metastore in memory.
pytestmark = pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")
READER = Holder(HoldKind.STATEMENT, "app/1")


# Appends that overtake each other


@dataclass(frozen=True)
class Attempt:
    """An append, and what others do while it hangs: before its commit, and before its answer.

    `leader`: how many leaders ago the one who tries began. `has_errors`: a view's tick, which does
    not go through the shell, and which was computed when the outermost append began.
    """

    names: frozenset[str]
    step: int
    leader: int
    has_errors: bool
    takes_over: bool
    before: tuple[Attempt, ...] = ()
    after: tuple[Attempt, ...] = ()


def attempts(inside=None):
    nothing = st.just(())
    within = nothing if inside is None else st.lists(inside, max_size=2).map(tuple)
    return st.builds(
        Attempt,
        names=st.frozensets(st.sampled_from(["t1", "t2", "v"]), min_size=1),
        step=st.integers(1, 3),
        leader=st.sampled_from([0, 0, 0, 1]),
        has_errors=st.booleans(),
        takes_over=st.sampled_from([False, False, False, True]),
        before=within,
        after=within,
    )


class Contest:
    """The model: what has been committed, and who was told what."""

    def __init__(self, env):
        self.env = env
        self.leaders = [Leader(env, self.hanging)]
        leader = self.leaders[0]
        tables = [leader.create(name, ItemKind.TABLE) for name in ("t1", "t2")]
        view = leader.create("v", ItemKind.MATERIALIZED_VIEW, tuple(tables))
        self.ids = {"t1": tables[0], "t2": tables[1], "v": view}
        self.uppers = {None: 0, view: 0}
        self.rows = {name: [] for name in self.ids}
        self.keys = 0
        self.won = Counter()
        self.hangs = []
        self.seen = 0

    def hanging(self, store):
        return Hanging(store, self)

    def attempt(self, attempt):
        if attempt.takes_over:
            self.leaders.append(Leader(self.env, self.hanging))
        leader = self.leaders[max(0, len(self.leaders) - 1 - attempt.leader)]
        self.keys += 1
        if attempt.has_errors:
            self.tick(leader, self.keys, attempt.step)
        else:
            self.append(leader, attempt, self.keys)

    def append(self, leader, attempt, key):
        names = sorted(attempt.names)
        self.hangs.append((attempt, leader))
        try:
            leader.append([self.ids[name] for name in names], key, attempt.step)
        except Fenced:
            assert leader is not self.leaders[-1]
        except ValueError as error:
            # At a time that another append of this shell, which hangs, has taken.
            if "is outside" not in str(error):
                raise
        except StorageError as error:
            if error.variant is not Variant.INVALID_UPPERS:
                raise
        else:
            for name in names:
                self.rows[name].append(key)
        finally:
            if self.hangs and self.hangs[-1][0] is attempt:
                # It was refused before it came to the shards.
                self.hangs.pop()

    def tick(self, leader, key, step):
        view = self.ids["v"]
        lower, actual = self.seen, self.uppers[view]
        if leader is not self.leaders[-1]:
            with pytest.raises((Fenced, UpperMismatch)):
                leader.tick(view, key, lower, lower + step)
        elif lower != actual:
            with pytest.raises(UpperMismatch) as caught:
                leader.tick(view, key, lower, lower + step)
            assert caught.value.actual == actual
        else:
            leader.tick(view, key, lower, lower + step)
            self.uppers[view] = lower + step
            self.won[view, lower] += 1
            self.rows["v"].append(key)

    def expectations(self, effect):
        """What the append moves: by collection, None for what all tables share."""
        moves = {
            e.id: (e.lower.value, e.upper.value)
            for e in effect.appends
            if not e.shares_tables_upper
        }
        if effect.tables is not None:
            moves[None] = tuple(each.value for each in effect.tables)
        return moves


@dataclass
class Hanging:
    """The shards of a leader; on the way there and back others have time."""

    store: object
    contest: Contest

    def append(self, effect):
        contest = self.contest
        attempt, leader = contest.hangs.pop()
        for each in attempt.before:
            contest.attempt(each)
        moves = contest.expectations(effect)
        met = all(contest.uppers[key] == lower for key, (lower, _) in moves.items())
        leads = leader is contest.leaders[-1]
        answer = self.store.append(effect)
        # I7: whoever comes first with the upper that is there, and nobody else.
        assert isinstance(answer, AppendDone) == met
        assert leads or not met
        if met:
            for key, (lower, upper) in moves.items():
                contest.uppers[key] = upper
                contest.won[key, lower] += upper > lower
        for each in attempt.after:
            contest.attempt(each)
        return answer

    def set_since(self, sinces):
        self.store.set_since(sinces)

    def drop_shards(self, shards):
        self.store.drop_shards(shards)

    def snapshot(self, shard, as_of):
        return self.store.snapshot(shard, as_of)


@histories(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=st.lists(attempts(attempts(attempts())), min_size=1, max_size=4))
def test_i07_of_appends_that_overtake_each_other_one_meets_its_expectation(
    sqlite_template, history
):
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-") as folder,
        copy_in_memory(sqlite_template, Path(folder)) as env,
    ):
        contest = Contest(env)
        for each in history:
            contest.seen = contest.uppers[contest.ids["v"]]
            contest.attempt(each)
        assert set(contest.won.values()) <= {0, 1}
        last = Leader(env)
        for name, global_id in contest.ids.items():
            upper = contest.uppers.get(global_id, contest.uppers[None])
            assert last.storage.upper(global_id).value == upper
            if upper:
                shard = last.catalog.state.item(global_id).shard_id
                found = [key for key, _ in contents(last.client, shard, upper - 1)]
                assert sorted(found) == sorted(contest.rows[name])


# Shards, from their definition to their end


@dataclass
class Held:
    """A hold of a reader, and the shards that it keeps, with what they had when it began."""

    hold: object
    shards: dict[int, list[tuple]]


class Definitions(RuleBasedStateMachine):
    """Objects come and go; the leader dies at any commit, also while it opens and reconciles."""

    ids = Bundle("ids")
    holds = Bundle("holds")
    deaths = st.none() | st.tuples(st.integers(0, 3), st.booleans())

    def __init__(self, template):
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-"))
        self.env = self.stack.enter_context(copy_in_memory(template, Path(folder)))
        self.mortality = Mortality()
        self.mortality.attach(self.env)
        self.former, self.held, self.leaked = [], [], set()
        self.written = {}
        self.keys = 0
        self.leader = Leader(self.env)

    def teardown(self):
        try:
            self.open_again(None)
            self.finalize(10**6, 10**6, None)
            stored = Stored.of(self.env)
            assert not stored.registered
            assert self.leader.storage.finalizable(10**6) == ()
            self.nothing_is_lost()
        finally:
            self.stack.close()

    def attempt(self, action, death):
        """Does it, or dies on the way; then another leader opens."""
        if death is None:
            return action()
        try:
            with self.mortality.within(*death):
                return action()
        except Died:
            self.everything_is_somewhere()
            self.open_again(None)
            return None

    def open_again(self, death):
        self.held = []
        try:
            with self.mortality.within(*(death or (None, False))):
                leader = Leader(self.env)
        except Died:
            self.everything_is_somewhere()
            leader = Leader(self.env)
        self.former = [*self.former, self.leader][-2:]
        self.leader = leader
        stored = Stored.of(self.env)
        # I27: after reconciliation nothing is left that belongs to nobody.
        assert self.leaked <= stored.registered | stored.finalized
        self.leaked = set()
        assert set(self.leader.client.reads.unfinalized()) == stored.registered

    # Definitions

    @initialize(target=ids)
    def begin(self):
        table = self.create("t", False, [], None)
        self.write(table, 1, None)
        self.write(table, 1, None)
        return table

    @rule(
        target=ids,
        kind=st.sampled_from(["t", "v"]),
        has_errors=st.booleans(),
        inputs=st.lists(ids, max_size=2, unique=True),
        death=deaths,
    )
    def create(self, kind, has_errors, inputs, death):
        state = self.leader.catalog.state
        inputs = tuple(each for each in inputs if each in state.items)
        name = f"{kind}{len(self.written)}"
        self.written[name] = []
        # Tables have no errors.
        made = self.attempt(
            lambda: (
                self.leader.create(name, ItemKind.TABLE)
                if kind == "t"
                else self.leader.create(name, ItemKind.MATERIALIZED_VIEW, inputs, has_errors)
            ),
            death,
        )
        return multiple() if made is None else made

    @rule(global_id=ids, death=deaths)
    def drop(self, global_id, death):
        if global_id in self.leader.catalog.state.items:
            self.attempt(lambda: self.leader.drop(global_id), death)

    @rule(global_id=ids, step=st.integers(1, 3), death=deaths)
    def write(self, global_id, step, death):
        item = self.leader.catalog.state.items.get(global_id)
        if item is None:
            return
        self.keys += 1
        leader, key, write_id = self.leader, self.keys, f"w{self.keys}"
        self.attempt(lambda: leader.append([global_id], key, step, write_id), death)
        if self.leader.client.commits.written(write_id) is not None:
            self.written[item.name].append((key, "v"))

    @rule()
    def leak(self):
        """What a fault may leave: a shard that no object has."""
        self.leaked.add(own_shard(self.leader.client))

    @rule(death=deaths)
    def take_over(self, death):
        self.open_again(death)

    # Readers

    @rule(target=holds, global_id=ids)
    def hold(self, global_id):
        item = self.leader.catalog.state.items.get(global_id)
        if item is None or self.leader.storage.upper(global_id).value == 0:
            return multiple()
        hold = self.leader.storage.acquire([global_id], READER)
        found = {
            shard: contents(self.leader.client, shard, hold.since)
            for shard in (item.shard_id, *([item.errors_shard] if item.errors_shard else []))
        }
        held = Held(hold, {shard: [] for shard in shards_of(item)} | found)
        self.held.append(held)
        return held

    @rule(target=holds, global_id=ids, parts=st.integers(1, 2), death=deaths)
    def drop_what_is_held(self, global_id, parts, death):
        """I24, I26: who reads on keeps the shards, until he is done."""
        held = self.hold(global_id)
        self.drop(global_id, None)
        self.finalize(10**6, parts, death)
        return held

    @rule(held=consumes(holds))
    def release(self, held):
        if held in self.held:
            self.held.remove(held)
            assert self.leader.storage.release(held.hold)

    # Finalization

    @rule(shards=st.integers(1, 3) | st.just(10**6), parts=st.integers(1, 2), death=deaths)
    def finalize(self, shards, parts, death):
        """I26: what nothing maps and nobody holds, all of it, and nothing else."""
        before = Stored.of(self.env)
        kept = {shard for held in self.held for shard in held.shards}
        found = self.leader.storage.finalizable(shards)
        assert set(found) <= before.registered - kept
        assert len(found) == min(shards, len(before.registered - kept))
        leader = self.leader
        self.attempt(lambda: self.all_finalized(found, parts), death)
        done = set(found) if self.leader is leader else set()
        assert Stored.of(self.env).finalized >= before.finalized | done

    def all_finalized(self, found, parts):
        for shard in found:
            while not self.leader.client.maintenance.finalize(shard, limit=parts):
                pass
            self.leader.storage.finalized(shard)

    @rule(which=st.integers(0, 1), global_id=ids, action=st.sampled_from("cdf"))
    def a_former_leader_tries(self, which, global_id, action):
        """Whatever it believes, nothing that is stored changes."""
        if which >= len(self.former):
            return
        leader, before = self.former[which], everything(self.env)
        with suppress(Fenced):
            if action == "c":
                leader.create(f"x{len(before)}", ItemKind.TABLE)
            elif action == "d" and global_id in leader.catalog.state.items:
                leader.drop(global_id)
            elif action == "f":
                for shard in leader.storage.finalizable(10):
                    leader.client.maintenance.finalize(shard)
        assert everything(self.env) == before

    # What must hold at any moment

    @invariant()
    def everything_is_somewhere(self):
        """I27: mapped, or registered for finalization, or finalized, and only one of them."""
        stored = Stored.of(self.env)
        assert not stored.mapped.keys() & (stored.registered | stored.finalized)
        assert stored.mapped.keys() <= stored.live
        assert stored.live - stored.mapped.keys() <= self.leaked

    @invariant()
    def nothing_is_lost(self):
        """I26: objects, and what is held although it was dropped, have what they had."""
        for item in self.leader.catalog.state.items.values():
            if item.shard_id is None or item.name not in self.written:
                continue
            upper = self.leader.storage.upper(item.id).value
            if upper > self.leader.storage.since(item.id).value:
                found = contents(self.leader.client, item.shard_id, upper - 1)
                assert sorted(found) == sorted(self.written[item.name])
        for held in self.held:
            for shard, rows in held.shards.items():
                assert not self.leader.client.reads.is_finalized(shard)
                if rows:
                    assert contents(self.leader.client, shard, held.hold.since) == rows


def test_i26_i27_a_shard_belongs_somewhere_and_goes_when_nobody_needs_it(sqlite_template, request):
    settings = settings_of(
        request.function.__name__, stateful_step_count=25, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(lambda: Definitions(sqlite_template), settings=settings)
