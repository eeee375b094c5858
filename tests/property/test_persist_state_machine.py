"""Shards against a pure model: any history of writers, readers, maintenance and leaders."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck
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
from tests.property.histories import settings_of
from tests.support.persist.persistence import (
    DESC,
    EAGER,
    Environment,
    copy_in_file,
    copy_in_memory,
    copy_in_server,
    new_shard,
    updates,
)

from slackwater.check.contents import part_problem
from slackwater.check.shards import shard_problems
from slackwater.controller.holds import Holder, HoldKind
from slackwater.persist import garbage
from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import (
    Append,
    TablesAppend,
    UnknownShard,
    UpperMismatch,
    WriteResult,
)
from slackwater.persist.compaction import Compactor, choose
from slackwater.persist.holds import SinceAdvanced
from slackwater.persist.inspection import shard_record
from slackwater.persist.leadership import Fenced
from slackwater.persist.parts import FileBody
from slackwater.persist.reading import read_in_groups
from slackwater.persist.uris import local_path
from slackwater.repr.frontier import TIMESTAMP_MAX, Frontier
from slackwater.repr.read_policy import ValidFrom
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    OtherWriter,
)
from slackwater.storage.controller.errors import StorageError
from slackwater.storage.controller.shell import Storage

# Whichever pool it is, one thread has one connection to a metastore in memory.
pytestmark = pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")
KEYS = st.integers(0, 2)
TRUTH = st.booleans()
READER = Holder(HoldKind.SUBSCRIPTION, "app/1")
COMMITS = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, st.just(0), TRUTH), max_size=3), TRUTH),
    min_size=3,
    max_size=8,
)


@dataclass
class Model:
    """One shard: what a reader may see. Times before `since` are not told apart any more."""

    shares_tables_upper: bool
    since: int = 0
    upper: int = 0
    updates: list[tuple[int, int, int]] = field(default_factory=list)
    dropped: bool = False
    tombstone: bool = False

    def at(self, time: int) -> Counter:
        found: Counter = Counter()
        for key, when, diff in self.updates:
            if when <= time:
                found[key] += diff
        return +found

    def between(self, lower: int, upper: int) -> Counter:
        found: Counter = Counter()
        for key, when, diff in self.updates:
            if lower <= when < upper:
                found[key, when] += diff
        return Counter({each: diff for each, diff in found.items() if diff})


@dataclass
class Listener:
    """A reader that holds a shard, and what it has put together so far."""

    shard: int
    as_of: int
    frontier: int
    contents: Counter
    hold: object
    parts: tuple


class Holds:
    """The storage controller, by shard."""

    def __init__(self, clock_ms):
        core = StorageController(DurableState(), Frontier(0))
        self.storage = Storage(core, self, clock_ms, lambda command: None)
        self.dropped = set()

    def set_since(self, sinces):
        raise AssertionError("only compaction moves durable sinces")

    def drop_shards(self, shards):
        raise AssertionError("only definitions drop shards")

    def add(self, shard, since):
        metadata = CollectionMetadata(shard, Frontier(since), Frontier(0))
        self.storage.create([(f"u{shard}", CollectionDescription(OtherWriter()), metadata)], ())

    def retire(self, shard):
        """Drops the shard's collection; whether nobody can read the shard any more."""
        self.dropped.add(shard)
        self.storage.drop([f"u{shard}"], [])
        return shard in self.storage.finalizable(10**6)

    def since(self, shard):
        try:
            return self.storage.since(f"u{shard}").value
        except StorageError:
            return 0

    def advance_since(self, shard, to):
        if shard in self.dropped:
            return self.since(shard) or to
        self.storage.do(lambda core: core.set_read_policy([(f"u{shard}", ValidFrom(Frontier(to)))]))
        return self.since(shard)

    def acquire(self, shard, as_of):
        return self.storage.acquire([f"u{shard}"], READER, as_of)

    def downgrade(self, hold, time):
        return self.storage.downgrade(hold, time)

    def release(self, hold):
        return self.storage.release(hold)

    def opened_ms(self):
        return self.storage.opened_ms()


class Shards(RuleBasedStateMachine):
    shards = Bundle("shards")
    spare = Bundle("spare")
    listeners = Bundle("listeners")

    def __init__(self, new: Callable[[Path], AbstractContextManager[Environment]]):
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="slackwater-"))
        self.env = self.stack.enter_context(new(Path(folder)))
        self.now_ms = 1_000
        self.epoch = 1
        self.client = self.env.lead(clock=lambda: self.now_ms)
        self.registry = Holds(lambda: self.now_ms)
        self.former = []
        self.model: dict[int, Model] = {}
        self.tables_upper = 0
        self.written: dict[str, WriteResult] = {}
        self.open: list[Listener] = []
        self.read: dict[tuple[int, int], tuple[tuple, Counter]] = {}

    def teardown(self):
        self.stack.close()

    # Definitions

    @initialize(target=shards)
    def begin(self):
        return multiple(self.created(False), self.created(True))

    @initialize(target=spare, shares_tables_upper=TRUTH, commits=COMMITS)
    def begin_with_one_more(self, shares_tables_upper, commits):
        return self.create(shares_tables_upper, commits)

    @rule(target=spare, shares_tables_upper=TRUTH, commits=COMMITS)
    def create(self, shares_tables_upper, commits):
        """A shard that is going to be dropped, mostly with parts."""
        shard = self.created(shares_tables_upper)
        self.burst(shard, commits, 0)
        return shard

    def created(self, shares_tables_upper):
        upper = None if shares_tables_upper else 0
        shard = new_shard(self.client, DESC, upper)
        assert shard not in self.model
        self.model[shard] = Model(
            shares_tables_upper, upper=self.tables_upper if shares_tables_upper else 0
        )
        self.registry.add(shard, 0)
        return shard

    @rule(shard=spare)
    def drop(self, shard):
        """I33: the second time has no effect."""
        for _ in range(1 if self.model[shard].tombstone else 2):
            self.client.transactions.transact(
                lambda conn: self.client.definitions.drop_shard(conn, shard)
            )
        self.model[shard].dropped = True

    @rule(shard=spare | shards)
    def finalize(self, shard):
        """I26, I28: what was dropped and is held by nobody, as often as one likes."""
        model = self.model[shard]
        if not model.dropped:
            with pytest.raises(ValueError, match="in use"):
                self.client.maintenance.finalize(shard)
            return
        # A later leader knows nothing of a tombstone; it may be finalized again all the same.
        if not model.tombstone:
            assert self.registry.retire(shard) == (not self.held(shard))
            if self.held(shard):
                return
        while not self.client.maintenance.finalize(shard, limit=2):
            pass
        model.tombstone = True
        model.updates, model.since, model.upper = [], TIMESTAMP_MAX, TIMESTAMP_MAX

    # Writers

    @rule(
        shard=shards | spare,
        width=st.integers(1, 3),
        rows=st.lists(st.tuples(KEYS, st.integers(0, 3), st.booleans()), max_size=4),
        off=st.sampled_from([0, 0, 0, 0, -1, 1]),
        as_file=st.booleans(),
        repeat=st.booleans(),
    )
    def append(self, shard, width, rows, off, as_file, repeat):
        """I4 to I8: an append happens at exactly the upper, whole, and once."""
        model = self.model[shard]
        if model.tombstone:
            with pytest.raises(UnknownShard):
                self.client.commits.commit([Append(shard, TIMESTAMP_MAX, TIMESTAMP_MAX, ())])
            return
        lower = max(0, self.upper(shard) + off)
        upper = lower + width
        new = self.changes(model, rows, lower)
        write_id = f"w{len(self.written)}"
        result = WriteResult(lower, len(new), 0)
        arguments = self.arguments(shard, lower, upper, new, as_file)
        if any(when >= upper for _, when, _ in new):
            with pytest.raises(ValueError, match="outside"):
                self.client.commits.commit(**arguments, write_ids={write_id: result})
            return
        if model.dropped:
            with pytest.raises(UnknownShard):
                self.client.commits.commit(**arguments, write_ids={write_id: result})
            return
        if lower != self.upper(shard):
            with pytest.raises(UpperMismatch) as caught:
                self.client.commits.commit(**arguments, write_ids={write_id: result})
            assert caught.value.actual == self.upper(shard)
            assert self.client.commits.written(write_id) is None
            return
        assert self.client.commits.commit(**arguments, write_ids={write_id: result})
        self.written[write_id] = result
        model.updates += new
        if model.shares_tables_upper:
            self.tables_upper = upper
            self.i30_all_others_went_along(shard, lower, upper)
        else:
            model.upper = upper
        if repeat:
            assert not self.client.commits.commit(**arguments, write_ids={write_id: result})

    def i30_all_others_went_along(self, written, lower, upper):
        """A commit moves every shard of a table; one without rows reads the same as before."""
        for shard, model in self.model.items():
            if model.shares_tables_upper and not model.tombstone:
                assert self.client.reads.state(shard).upper == upper
                if shard != written and model.since < lower:
                    assert self.contents(shard, upper - 1) == self.contents(shard, lower - 1)

    @rule(shard=shards, commits=COMMITS, back=st.integers(0, 3))
    def burst(self, shard, commits, back):
        """Many commits, and then what maintenance makes of them."""
        for rows, as_file in commits:
            self.append(shard, 1, rows, 0, as_file, False)
        self.maintain(shard, back, 2)

    @rule(shard=shards)
    def truncate(self, shard):
        """A part and its negation over the same file."""
        model = self.model[shard]
        if model.dropped:
            return
        time = self.upper(shard)
        self.commit(shard, time, time + 1, self.client.reads.negation(shard, time).at(time))
        model.updates += [(key, time, -n) for key, n in model.at(time - 1).items()]

    @rule(shard=shards, keys=st.lists(KEYS, min_size=1, max_size=3))
    def executors_write(self, shard, keys):
        """A uniform part, as Spark's executors write it."""
        model = self.model[shard]
        if model.dropped:
            return
        time = self.upper(shard)
        self.commit(shard, time, time + 1, (self.uniform(shard, keys, time),))
        model.updates += [(key, time, 1) for key in keys]

    @rule(shard=shards, keys=st.lists(KEYS, min_size=1, max_size=3), back=st.integers(0, 2))
    def replace(self, shard, keys, back):
        """What INSERT OVERWRITE does, and then maintenance."""
        self.executors_write(shard, keys)
        self.truncate(shard)
        self.executors_write(shard, keys)
        self.maintain(shard, back, 2)

    @rule(shard=shards, by=st.integers(-2, 5))
    def advance(self, shard, by):
        model = self.model[shard]
        if model.shares_tables_upper or model.dropped:
            return
        to = max(0, model.upper + by)
        self.client.commits.advance({shard: to})
        model.upper = max(model.upper, to)

    # Readers

    @rule(target=listeners, shard=shards | spare, back=st.integers(0, 6))
    def listen(self, shard, back):
        """I12, I24: a hold is given from the since on, and keeps its time readable."""
        if not self.upper(shard):
            return None
        as_of = max(0, min(self.upper(shard), 10**6) - 1 - back)
        if as_of < self.registry.since(shard) or shard in self.registry.dropped:
            with pytest.raises(StorageError):
                self.registry.acquire(shard, as_of)
            return None
        hold = self.registry.acquire(shard, as_of)
        found = Counter(self.contents(shard, as_of))
        parts = self.client.reads.parts_at(shard, as_of)
        listener = Listener(shard, as_of, as_of + 1, found, hold, parts)
        self.open.append(listener)
        return listener

    @rule(listener=listeners, most=st.integers(1, 4))
    def follow(self, listener, most):
        """I35, I36: snapshot and listen add up to every snapshot, each update once."""
        if listener is None or listener not in self.open:
            return
        upper = min(self.upper(listener.shard), listener.frontier + most)
        if upper <= listener.frontier:
            return
        found = self.client.reads.read(
            self.client.reads.parts_between(listener.shard, listener.frontier, upper),
            DESC,
            lower=listener.frontier,
            upper=upper,
        )
        for row in found.to_pylist():
            assert listener.frontier <= row["__time"] < upper
            listener.contents[row["k"]] += row["__diff"]
        assert min(listener.contents.values(), default=0) >= 0
        listener.frontier = upper
        # One step behind, so that the last time and the next one stay apart (trap 13).
        listener.hold = self.registry.downgrade(listener.hold, upper - 1)
        listener.parts = self.client.reads.parts_at(listener.shard, upper - 1)
        assert +listener.contents == self.model[listener.shard].at(upper - 1)

    @rule(listener=consumes(listeners))
    def leave(self, listener):
        if listener is not None and listener in self.open:
            self.open.remove(listener)
            assert self.registry.release(listener.hold)
            assert not self.registry.release(listener.hold)

    # Maintenance

    @rule(shard=shards | spare, back=st.integers(0, 5), most=st.integers(1, 3))
    def maintain(self, shard, back, most):
        """I3, I17, I31, I32: as often as one likes and at any moment, with the same contents.

        The since goes no further than the holds.
        """
        model = self.model[shard]
        for _ in range(most):
            wanted = max(0, min(self.upper(shard) - 1 - back, 10**6))
            since = self.registry.advance_since(shard, max(wanted, model.since))
            merge = choose(self.client.reads.parts(shard), since, EAGER)
            if merge is None:
                return
            done = Compactor(self.client, EAGER).compact(shard, merge, since)
            assert done == (not model.dropped)
            if done:
                model.since = max(model.since, since)
        if shard not in self.registry.dropped:
            assert self.client.reads.state(shard).since <= self.registry.since(shard)

    @rule(shard=shards, since=st.integers(0, 12))
    def set_since(self, shard, since):
        """I1, I20: a since that is not forward changes nothing."""
        model = self.model[shard]
        if model.dropped:
            return
        since = self.registry.advance_since(shard, min(since, max(0, self.upper(shard) - 1)))
        self.client.maintenance.set_since({shard: since})
        model.since = max(model.since, since)

    @rule(minutes=st.sampled_from([1, 10, 20, 40]))
    def collect(self, minutes):
        self.now_ms += minutes * 60_000
        for shard, _ in self.client.transactions.query(garbage.waiting):
            until = garbage.deletable_until(
                self.now_ms, self.registry.opened_ms().get(shard), False
            )
            self.client.transactions.transact(
                lambda conn, s=shard, u=until: garbage.mark_for_deletion(conn, s, u, 3)
            )
        for uri in self.client.transactions.query(
            lambda conn: garbage.marked_for_deletion(conn, 2)
        ):
            self.client.blobs.delete(uri)
            self.client.transactions.transact(lambda conn, u=uri: garbage.forget(conn, [u]))

    # Leaders

    @rule()
    def take_over(self):
        """The leader dies; what it kept in memory is gone, its readers with it."""
        self.former = [self.client]
        self.client = self.env.lead(expected_epoch=self.epoch, clock=lambda: self.now_ms)
        self.epoch += 1
        self.read = {}
        self.registry = Holds(lambda: self.now_ms)
        for shard, model in self.model.items():
            if model.tombstone:
                self.registry.dropped.add(shard)
            else:
                self.registry.add(shard, model.since)
        self.open = []

    @rule(shard=shards)
    def a_former_leader_tries(self, shard):
        """I19: an older epoch changes nothing, whatever it does."""
        for old in self.former:
            if shard not in old.reads.shard_ids():
                continue
            upper = old.reads.upper(shard)
            for attempt in (
                lambda o=old: o.maintenance.set_since({shard: 10**9}),
                lambda o=old: o.transactions.transact(
                    lambda conn: o.definitions.drop_shard(conn, shard)
                ),
                lambda o=old, u=upper: o.commits.commit(
                    **self.arguments(shard, u, u + 1, [], False)
                ),
            ):
                with pytest.raises(Fenced):
                    attempt()

    @rule()
    def verify(self):
        """`slackwater check` has nothing to tell of an environment that nobody has damaged."""
        for shard in self.model:
            found = self.client.transactions.query(partial(shard_record, shard_id=shard))
            assert shard_problems(found) == ()
            for part in found.parts:
                tables = read_in_groups(part, DESC, blobs=self.client.blobs)
                assert part_problem(part, tables) is None

    # What always holds

    @invariant()
    def the_cache_is_consistent(self):
        self.client.transactions.validate()

    @invariant()
    def frontiers_are_those_of_the_model(self):
        assert self.client.reads.tables_upper() == self.tables_upper
        for shard, model in self.model.items():
            state = self.client.reads.state(shard)
            assert (state.since, state.upper) == (model.since, self.upper(shard))
            assert (shard in self.client.reads.shard_ids()) == (not model.dropped)
            assert (shard in self.client.reads.unfinalized()) == (
                model.dropped and not model.tombstone
            )

    @invariant()
    def i2_and_i34_reads_are_those_of_the_model(self):
        for shard, model in self.model.items():
            if model.tombstone:
                assert self.client.reads.parts(shard) == ()
                continue
            upper = min(self.upper(shard), 10**6)
            for time in {model.since, upper - 1, (model.since + upper) // 2}:
                if model.since <= time < upper:
                    assert self.contents(shard, time) == model.at(time)
            if model.since:
                with pytest.raises(SinceAdvanced):
                    self.client.reads.snapshot(shard, model.since - 1)

    @invariant()
    def what_is_named_or_held_is_there(self):
        named = [part for shard in self.model for part in self.client.reads.parts(shard)]
        for part in (*named, *(part for each in self.open for part in each.parts)):
            if isinstance(part.body, FileBody):
                assert local_path(part.body.uri).exists()

    # How

    def contents(self, shard, time):
        """What is read at the time; read anew when that is done from other parts."""
        parts = self.client.reads.parts_at(shard, time)
        known = self.read.get((shard, time))
        if known is None or known[0] != parts:
            found = Counter(self.client.reads.snapshot(shard, time)["k"].to_pylist())
            known = self.read[shard, time] = (parts, found)
        return known[1]

    def upper(self, shard):
        model = self.model[shard]
        return (
            self.tables_upper if model.shares_tables_upper and not model.tombstone else model.upper
        )

    def held(self, shard):
        return any(listener.shard == shard for listener in self.open)

    def changes(self, model, rows, lower):
        """Updates that never take back what is not there."""
        new, present = [], model.at(lower)
        for key, delay, back in rows:
            if back and present[key] > 0:
                present[key] -= 1
                new.append((key, lower, -1))
            elif not back:
                new.append((key, lower + delay, 1))
        return new

    def uniform(self, shard, keys, time):
        from slackwater.persist.blobs import uniform_file
        from slackwater.persist.parts import NewPart, Uniform

        rows = updates(*((key, None, 0, 1) for key in keys)).select(["k", "v"])
        uniform = Uniform(time, 1)
        body = uniform_file(
            self.client.blobs, rows, self.client.files.shard_directory(shard), uniform
        )
        return NewPart(body, len(keys), time, time, False)

    def arguments(self, shard, lower, upper, new, as_file):
        parts = ()
        if new:
            table = updates(*((key, None, when, diff) for key, when, diff in new))
            if as_file:
                parts = (
                    file_part(self.client.blobs, table, self.client.files.shard_directory(shard)),
                )
            else:
                parts = (inline_part(table),)
        return self.placed(shard, lower, upper, parts)

    def placed(self, shard, lower, upper, parts):
        if self.model[shard].shares_tables_upper:
            return {"appends": [], "tables": TablesAppend(lower, upper, {shard: parts})}
        return {"appends": [Append(shard, lower, upper, parts)]}

    def commit(self, shard, lower, upper, parts):
        self.client.commits.commit(**self.placed(shard, lower, upper, parts))
        if self.model[shard].shares_tables_upper:
            self.tables_upper = upper
        else:
            self.model[shard].upper = upper


def tried(new, request):
    """Runs the machine as often as the test that asks for it is to be tried."""
    settings = settings_of(
        request.function.__name__,
        stateful_step_count=25,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )

    def machine():
        return Shards(new)

    run_state_machine_as_test(machine, settings=settings)


def test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_a_metastore_in_memory(
    sqlite_template, request
):
    tried(partial(copy_in_memory, sqlite_template), request)


def test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_a_metastore_in_a_file(
    sqlite_template, request
):
    tried(partial(copy_in_file, sqlite_template), request)


@pytest.mark.postgres
def test_i01_to_i08_i17_to_i20_i24_to_i36_shards_with_postgresql(
    postgres, postgres_template, request
):
    tried(partial(copy_in_server, postgres, postgres_template), request)
