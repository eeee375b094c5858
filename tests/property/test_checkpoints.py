"""Bounds of checkpoint groups against their definition, over random rows and random histories."""

from __future__ import annotations

import itertools
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, insert
from tests.property.histories import histories
from tests.support.checkpoints.checkpoint_model import FIRST, Model, Row, hardened, original
from tests.support.checkpoints.checkpoint_peer import InTurns, Peer
from tests.support.checkpoints.checkpoints import t, window
from tests.support.persist.persistence import in_memory

from slackwater.checkpoints import (
    DatabaseStore,
    EngineTransactions,
    GoingBackwards,
    MemoryStore,
    open_store,
)
from slackwater.checkpoints.bounds import Checkpoint, bounds, progress
from slackwater.checkpoints.statements import state
from slackwater.checkpoints.tables import create_tables, key
from slackwater.persist.metastore import connect
from slackwater.persist.tables import checkpoints
from slackwater.repr.hlc import ZERO, Range

PARTITIONS = 4
_numbers = itertools.count()


@dataclass(frozen=True)
class Place:
    """A database for groups, each of them with a name of its own."""

    engine: object
    store: DatabaseStore

    @classmethod
    def at(cls, url):
        engine = connect(url)
        create_tables(engine)
        return cls(engine, DatabaseStore(EngineTransactions(engine)))

    def write(self, group, partitions):
        """Rows of any kind, also those that no history leads to."""
        rows = [
            {
                "group_name": group,
                "partition_name": name,
                "source_hlc": key(row.time),
                "first_seen_ms": 1,
                "applied_ms": 2 if row.applied else None,
            }
            for name, of in partitions.items()
            for row in of
        ]
        if rows:
            with self.engine.begin() as conn:
                conn.execute(insert(checkpoints), rows)


@pytest.fixture(scope="module")
def embedded():
    place = Place.at(in_memory())
    yield place
    place.engine.dispose()


@pytest.fixture(scope="module")
def server(postgres):
    place = Place.at(postgres.new_database())
    yield place
    place.engine.dispose()


times = st.builds(t, st.integers(0, 12), st.integers(0, 1))
rows = st.dictionaries(times, st.booleans(), max_size=9).map(
    lambda marks: [Row(time, marks[time]) for time in sorted(marks)]
)
groups = st.dictionaries(st.sampled_from(["a", "b", "topic@10", "topic@9"]), rows, max_size=4)
lookaheads = st.none() | st.integers(1, 5)


def the_definition_holds(place, partitions, known, lookahead):
    group = f"g{next(_numbers)}"
    place.write(group, partitions)
    expected = hardened(partitions, known, lookahead)
    assert window(place.store, group, known, lookahead) == expected
    in_memory_too = [
        progress(name, [Checkpoint(row.time, row.applied) for row in of], lookahead)
        for name, of in partitions.items()
    ]
    assert bounds([each for each in in_memory_too if each is not None], known) == expected
    place.store.prune(group)
    assert window(place.store, group, known, lookahead) == expected


@histories()
@given(groups, times, lookaheads)
def test_bounds_in_sqlite_are_what_the_rows_say(embedded, partitions, known, lookahead):
    the_definition_holds(embedded, partitions, known, lookahead)


@pytest.mark.postgres
@histories()
@given(groups, times, lookaheads)
def test_bounds_in_postgresql_are_what_the_rows_say(server, partitions, known, lookahead):
    the_definition_holds(server, partitions, known, lookahead)


@dataclass(frozen=True)
class Step:
    """What happens: `what` of `partition`, with a number whose meaning depends on that."""

    what: str
    partition: int
    number: int


def steps(*what):
    built = st.builds(
        Step, st.sampled_from(what), st.integers(0, PARTITIONS - 1), st.integers(0, 5)
    )
    return st.lists(built, min_size=10, max_size=30)


_OFTEN = ("advance", "advance", "commit", "look", "prune")


@dataclass
class Run:
    """A group, what it should be, and two readers of it."""

    store: object
    lookahead: int | None
    is_aligned: bool
    group: str = field(default_factory=lambda: f"h{next(_numbers)}")
    model: Model = field(default_factory=Model)
    newest: list[int] = field(default_factory=lambda: [1] * PARTITIONS)
    floor: object = ZERO
    """All up to it was said to be done, to anybody."""

    def ensure(self, partition):
        name = f"p{partition}"
        self.store.ensure(self.group, [name])
        self.model.ensure(name)

    def advance(self, partition, number):
        """Aligned partitions go through the same times; others through any."""
        name = f"p{partition}"
        time = self.newest[partition] + (5 if self.is_aligned else number)
        if self.model.may_advance(name, t(time)):
            self.store.advance(self.group, name, t(time))
            self.model.advance(name, t(time))
            self.newest[partition] = time
        else:
            with pytest.raises(GoingBackwards):
                self.store.advance(self.group, name, t(time))

    def commit(self, number):
        """What was proposed, or the beginning of it."""
        seen = self.look(self.lookahead)
        last = t(max(seen.min.nanos, seen.max_inclusive.nanos - number), 1)
        done = Range.including(ZERO, min(last, seen.max_inclusive))
        self.commit_any(done)

    def commit_any(self, done):
        self.store.commit(self.group, done)
        self.model.commit(done)
        assert self.store.state(self.group, None).committed == self.model.committed
        self.floor = max(self.floor, self.model.committed)

    def look(self, lookahead):
        """What a reader publishes now, which `Group` computes in the same way."""
        known = self.store.state(self.group, lookahead)
        assert known.committed == self.model.committed
        published = bounds(known.partitions, known.committed)
        assert published == hardened(self.model.partitions, self.model.committed, lookahead)
        assert published.min >= self.floor
        assert published.max > self.floor
        self.store.raise_committed(self.group, published.min)
        self.model.keep(published.min)
        self.floor = max(self.floor, published.min)
        return published

    def take(self, step):
        if step.what == "advance":
            self.advance(step.partition, step.number)
        elif step.what == "commit":
            self.commit(step.number)
        elif step.what == "commit any":
            first = t(step.number * 3)
            self.commit_any(Range.including(first, t(step.number * 3 + step.partition)))
        elif step.what == "ensure":
            self.ensure(step.partition)
        elif step.what == "prune":
            self.store.prune(self.group)
        elif step.what == "look":
            self.look(step.number or None)
        assert window(self.store, self.group, ZERO, self.lookahead) == hardened(
            self.model.partitions, ZERO, self.lookahead
        )


def nothing_waits_before(run, published):
    """What is said to be done is, and what is said to be delivered is."""
    for of in run.model.partitions.values():
        assert all(row.applied for row in of if row.time <= published.min)
    delivered = min(of[-1].time for of in run.model.partitions.values())
    assert published.max_inclusive <= max(delivered, run.floor)


def declared_history(store, taken, lookahead, is_aligned):
    """Partitions that are all declared at the beginning, and commits of what was proposed."""
    run = Run(store, lookahead, is_aligned)
    known = ZERO
    for partition in range(PARTITIONS):
        run.ensure(partition)
    for step in taken:
        run.take(step)
        published = run.look(lookahead)
        nothing_waits_before(run, published)
        if is_aligned and lookahead is None:
            # A reader of the original, which remembers no more than its own last bounds.
            assert published == original(run.model.partitions, known)
            known = published.min


@histories()
@given(steps(*_OFTEN), lookaheads)
def test_aligned_groups_have_the_bounds_of_the_original(taken, lookahead):
    declared_history(MemoryStore(), taken, lookahead, is_aligned=True)


@histories()
@given(steps(*_OFTEN), lookaheads)
def test_bounds_of_unaligned_groups_never_go_back(taken, lookahead):
    declared_history(MemoryStore(), taken, lookahead, is_aligned=False)


_ANY = steps(*_OFTEN, "ensure", "commit any")


def any_history(store, taken, lookahead):
    """Partitions come at any time, and what is committed is anything."""
    run = Run(store, lookahead, is_aligned=False)
    for step in taken:
        run.take(step)
        run.look(lookahead)


@histories()
@given(_ANY, lookaheads)
def test_what_is_committed_stays_in_memory(taken, lookahead):
    any_history(MemoryStore(), taken, lookahead)


@histories()
@given(_ANY, lookaheads)
def test_what_is_committed_stays_in_sqlite(embedded, taken, lookahead):
    any_history(embedded.store, taken, lookahead)


@pytest.mark.postgres
@histories()
@given(_ANY, lookaheads)
def test_what_is_committed_stays_in_postgresql(server, taken, lookahead):
    any_history(server.store, taken, lookahead)


def paired(url):
    """The database's two users: this process and another one."""
    with open_store(url) as here, closing(Peer(url)) as there:
        yield here, there


@pytest.fixture(scope="module")
def pair_on_sqlite(tmp_path_factory):
    yield from paired(f"sqlite:///{tmp_path_factory.mktemp('pair')}/checkpoints.sqlite")


@pytest.fixture(scope="module")
def pair_on_postgresql(postgres):
    yield from paired(postgres.new_database())


_randoms = st.randoms(use_true_random=False)


def shared(stores, chance):
    return InTurns(stores, lambda: chance.randrange(2))


@histories()
@given(_ANY, lookaheads, _randoms)
def test_two_processes_agree_in_sqlite(pair_on_sqlite, taken, lookahead, chance):
    any_history(shared(pair_on_sqlite, chance), taken, lookahead)


@pytest.mark.postgres
@histories()
@given(_ANY, lookaheads, _randoms)
def test_two_processes_agree_in_postgresql(pair_on_postgresql, taken, lookahead, chance):
    any_history(shared(pair_on_postgresql, chance), taken, lookahead)


@pytest.mark.parametrize("lookahead", [None, 1, 3])
def test_a_refresh_only_seeks(embedded, lookahead):
    """Else it would take longer with each checkpoint that is or was there."""
    statements = []
    with embedded.engine.connect() as conn:

        def explain(_conn, cursor, statement, parameters, *_):
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            statements.append([row[3] for row in cursor.fetchall()])

        event.listen(conn, "before_cursor_execute", explain)
        state(conn, "seeking", lookahead)
    reads = [line for plan in statements for line in plan if line.startswith(("SCAN", "SEARCH"))]
    assert sum("checkpoints" in line for line in reads) > 5
    assert {line for line in reads if line.startswith("SCAN")} == {"SCAN names"}


def test_the_original_loses_what_was_committed_where_partitions_differ():
    """Two partitions, each with a time of its own: the history of which the promise is worth."""
    model = Model(partitions={"a": [Row(t(10), True), Row(t(20), False)], "b": [Row(t(15), True)]})
    before = original(model.partitions, ZERO)
    assert before == Range.including(t(15), t(15)) == hardened(model.partitions, ZERO)
    model.advance("b", t(30))
    assert original(model.partitions, before.min).min == ZERO
    assert hardened(model.partitions, before.min).min == t(15)
    model = Model(partitions={"a": [Row(t(110), True)]})
    before = original(model.partitions, ZERO)
    model.ensure("b")
    model.advance("a", t(115))
    model.advance("b", t(112))
    assert model.partitions["b"][0] == Row(FIRST, True)
    assert original(model.partitions, before.min).min == ZERO
    assert hardened(model.partitions, before.min).min == t(110)
