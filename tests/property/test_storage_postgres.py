"""A source that reads tables of PostgreSQL, against its definition, whatever the server, the
network and the process do: each transaction once and whole at every readable timestamp."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.fake_postgres import (
    COLUMNS,
    LARGE,
    MORE,
    NUMBER,
    TEXT,
    FakeServer,
    FakeUpstream,
    deleted,
    inserted,
    source_table,
    truncated,
    updated,
)

from slackwater.repr.dataflow_error import DecodeError, decode, encode
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.ingestion import IngestionProgress
from slackwater.storage.postgres.copying import FollowedTable
from slackwater.storage.postgres.ingestion import (
    CHECK_MS,
    PostgresConfig,
    PostgresIngestion,
    states_of,
)
from slackwater.storage.postgres.replication import ServerIdentity, SlotState
from slackwater.storage.postgres.tables import PostgresColumn, widened
from slackwater.storage.postgres.types import source_columns

NUMBERS = ["1", "2.50", "-0.1", "NaN", None]
LARGES = ["", "NULL", 'a, "b"\n\\.', "ü" * 5, "L" * 9, None]
MAY_PASS = ("SLACKWATER_SOURCE_UNREACHABLE", "SLACKWATER_SOURCE_HISTORY_LOST")

changes = st.one_of(
    st.builds(
        inserted,
        st.sampled_from(sorted(COLUMNS)),
        st.sampled_from(NUMBERS),
        st.sampled_from(LARGES),
        st.sampled_from(["0", "1", "2", "-3"]),
    ),
    st.builds(
        updated,
        st.sampled_from(sorted(COLUMNS)),
        st.integers(0, 3),
        st.sampled_from(NUMBERS),
        st.sampled_from(LARGES),
        st.sampled_from([None, "0", "1", "7"]),
    ),
    st.builds(deleted, st.sampled_from(sorted(COLUMNS)), st.integers(0, 3)),
    st.sampled_from([truncated("keyed"), truncated("whole", "keyed")]),
)
refreshes = st.tuples(st.sampled_from(sorted(COLUMNS)), st.integers(0, 6), st.booleans())
"""Of which table, how long its copy waits for others, and whether the process ends before."""
EVENTS = [
    *["transact"] * 8,
    *["poll"] * 8,
    "refused",
    "lose",
    "crash",
    "fail",
    "wait",
    "foreign",
    "anew",
    "add",
    "drop",
    *["create"] * 2,
    *["meanwhile"] * 2,
    "forget",
    "again",
    "fail copies",
    *["add", "refresh"] * 3,
]
RARE = ["no slot", "advance", "retype", "retype back", "leave"]


@st.composite
def events(draw):
    """What happens, each with what it needs."""
    kinds = st.one_of(st.sampled_from(EVENTS), st.sampled_from(EVENTS), st.sampled_from(RARE))
    found = []
    for what in draw(st.lists(kinds, min_size=10, max_size=60)):
        if what in ("transact", "meanwhile"):
            found.append((what, draw(st.lists(changes, max_size=5))))
        elif what in ("add", "drop", "retype", "retype back", "leave", "create"):
            found.append((what, draw(st.sampled_from(sorted(COLUMNS)))))
        elif what == "refresh":
            found.append((what, draw(refreshes)))
        else:
            found.append((what, draw(st.integers(0, 3))))
    return found


@dataclass
class World:
    """A server, the durable state of the source that reads it, and the process that runs it."""

    size: int
    server: FakeServer
    exports: dict = field(default_factory=lambda: {name: name for name in COLUMNS})
    rows: dict = field(default_factory=lambda: defaultdict(Counter))
    errors: dict = field(default_factory=lambda: defaultdict(Counter))
    copied_at: dict = field(default_factory=dict)
    columns: dict = field(default_factory=dict)
    begun: list = field(default_factory=list)
    made: int = 0
    frontier: object = None
    state: str | None = None
    now_ms: int = 0
    pause_ms: int = 1
    harmed: set = field(default_factory=set)
    wanted: list = field(default_factory=list)
    said: str | None = None

    def __post_init__(self):
        self.ingestion = self.resumed()

    def resumed(self):
        """The ingestion as a new process makes it of what is durable."""
        self.wanted = []
        config = PostgresConfig("s", "p", "slot", ServerIdentity("system", 1))
        upstream = FakeUpstream(self.server, self.size)
        return PostgresIngestion(config, upstream, Tables(self), self.frontier, self.state)

    def poll(self):
        """The next step, through as many polls as it takes; None: there is none."""
        self.said = None
        for _ in range(300):
            self.now_ms += self.pause_ms
            try:
                step = self.ingestion.poll(self.now_ms)
            except SlackwaterError as error:
                if error.condition not in MAY_PASS:
                    raise
                self.said = error.condition
                return None
            if not isinstance(step, IngestionProgress):
                return step
        raise AssertionError("the step does not become whole")

    def commit(self, step):
        is_anew = self.state is not None and json.loads(self.state)["is_anew"]
        if (self.frontier is None or is_anew) and not json.loads(step.state)["is_anew"]:
            self.copied_at = dict.fromkeys(states_of(step.state), step.frontier.offset(0))
        for name in self.ingestion._joined:
            self.copied_at[name] = self.server.copied_at
        for export, table in step.updates.items():
            if export in self.exports:
                for *cells, diff in zip(*table.to_pydict().values(), strict=True):
                    self.rows[export][self.shortest(export, cells)] += diff
        for export, table in step.errors.items():
            if export in self.exports:
                for text, diff in zip(*table.to_pydict().values(), strict=True):
                    self.errors[export][text] += diff
        for counts in (*self.rows.values(), *self.errors.values()):
            assert min(counts.values(), default=0) >= 0
        if self.frontier is not None:
            assert self.frontier.not_after(step.frontier)
        self.frontier, self.state = step.frontier, step.state
        self.begun += step.statistics.begun

    def shortest(self, export, cells):
        """A row without the NULLs at its end in columns that were added to its table later."""
        count = len(COLUMNS[self.exports[export]])
        more = list(cells[count:])
        while more and more[-1] is None:
            more.pop()
        return (*cells[:count], *more)

    def table(self, export):
        """What the catalog says of a table."""
        name = self.exports[export]
        made = source_table(name, export)
        return replace(made, columns=self.columns.get(export, COLUMNS[name]))

    def refresh(self, name):
        """The catalog gets the columns that a table has upstream, for all who read it."""
        for export in [each for each in self.exports if self.exports[each] == name]:
            wide = widened(self.table(export), self.server.tables[name].now(), ())
            self.columns[export] = wide.columns

    def check(self):
        assert len(self.begun) == len(set(self.begun)), "a table begins once"
        states = states_of(self.state)
        for export in self.exports:
            if export not in states:
                assert not any(self.rows[export].values())
                assert not any(self.errors[export].values())
            elif export not in COLUMNS:
                assert export in self.begun
        if self.frontier is None:
            return
        assert self.server.told <= self.frontier.offset(0)
        upstream, announced = self.server.state_before(self.frontier.offset(0))
        for export, state in states.items():
            if export not in self.exports:
                continue
            name, begins_at = self.exports[export], self.copied_at[export]
            errors = Counter({text: n for text, n in self.errors[export].items() if n})
            if state.broken is not None:
                assert name in self.harmed, state.broken
                assert errors[encode(DecodeError(f"table public.{name}", state.broken))] == 1
                continue
            columns = self.server.told_columns(announced, name, begins_at)
            read = self.table(export).with_added(state.added).columns
            assert set(state.added) <= set(self.table(export).added)
            good = Counter()
            bad = 0
            for each in upstream[name]:
                if NUMBER in columns and not each.is_read_from(begins_at):
                    bad += 1
                else:
                    good[projected(read, each, columns)] += 1
            stored = {row: n for row, n in self.rows[export].items() if n}
            assert stored == {self.shortest(export, row): n for row, n in good.items()}
            assert sum(errors.values()) == bad, errors


@dataclass(frozen=True)
class Tables:
    """The tables of the source, as its catalog has them."""

    world: World

    def names(self):
        return list(self.world.exports)

    def added(self):
        widened = (each for each in self.world.exports if each in self.world.columns)
        return {export: self.world.table(export).added for export in widened}

    def found(self, export):
        if export not in self.world.exports:
            return None
        stored = Stored(self.world, export)
        return FollowedTable(self.world.table(export), stored, stage, export not in COLUMNS)

    def upstream(self):
        return FakeUpstream(self.world.server, self.world.size, is_copy=True)


class Stored:
    def __init__(self, world, export):
        self._world, self._export = world, export

    def rows(self):
        return self._made(self._world.rows[self._export])

    def errors(self):
        return [decode(text) for text in self._world.errors[self._export].elements()]

    def left(self, updates):
        found = Counter()
        for each in updates:
            for *cells, diff in zip(*each.to_pydict().values(), strict=True):
                found[tuple(cells)] += diff
        assert min(found.values(), default=0) >= 0
        return self._made(found)

    def _made(self, counts):
        """The rows as the catalog has their columns by now."""
        desc = source_columns(self._world.table(self._export))
        count = len(desc.columns)
        whole = ((*row, *[None] * (count - len(row))) for row in counts.elements())
        found = desc.with_diffs((row, 1) for row in whole)
        return found.drop_columns([DIFF_COLUMN])


def stage(rows):
    raise AssertionError("so few rows stay in memory")


def projected(columns, found, announced):
    made = []
    for column in columns:
        text = found.cell(column.name) if column.name in announced else None
        if text is not None and column.base == "numeric":
            text = Decimal(text).quantize(Decimal("1e-18"))
        made.append(int(text) if text is not None and column.base == "int4" else text)
    return tuple(made)


def alter(world, what, name):
    table = world.server.tables[name]
    names = [column.name for column in table.columns]
    match what:
        case "add" if MORE not in names:
            if LARGE not in names:
                world.harmed.add(name)
            table.columns.append(PostgresColumn(MORE, 9, TEXT, "text", not_null=True))
        case "drop" if LARGE in names:
            if MORE in names:
                world.harmed.add(name)
            table.columns = [column for column in table.columns if column.name != LARGE]
        case "retype" | "retype back":
            if what == "retype":
                world.harmed.add(name)
            for place, column in enumerate(table.columns):
                if column.name == NUMBER:
                    own = COLUMNS[name][[c.name for c in COLUMNS[name]].index(NUMBER)]
                    other = PostgresColumn(NUMBER, own.number, TEXT, "text")
                    table.columns[place] = other if what == "retype" else own
        case "leave":
            world.harmed.add(name)
            table.member += 1


def run(world, history):
    for what, more in history:
        match what:
            case "transact":
                world.server.transact(more)
            case "meanwhile":
                world.server.meanwhile.append(more)
            case "foreign":
                world.server.foreign()
            case "fail":
                world.server.fails = more
            case "wait":
                world.server.waits = more
            case "advance" if more == 0 and world.server.slot is not None:
                # Somebody else reads the slot, while the source does not.
                world.ingestion = world.resumed()
                world.server.slot = SlotState(world.server.lsn + 1)
                world.server.lsn += 10
            case "no slot" if more == 0 and world.server.slot is not None:
                world.server.slot, world.ingestion = None, world.resumed()
            case "advance" | "no slot":
                continue
            case "anew":
                world.wanted.append(world.ingestion.resnapshot())
            case "create":
                world.made += 1
                world.exports[f"later{world.made}"] = more
            case "forget":
                later = [each for each in world.exports if each not in COLUMNS]
                if later:
                    del world.exports[later[more % len(later)]]
            case "refresh":
                name, world.server.waits, is_restarted = more
                world.refresh(name)
                if is_restarted:
                    world.ingestion = world.resumed()
                world.wanted.append(world.ingestion.resnapshot(()))
            case "again":
                names = sorted(world.exports)[more:][:2]
                world.wanted.append(world.ingestion.resnapshot(names))
            case "fail copies":
                world.server.copies_fail = more
            case "add" | "drop" | "retype" | "retype back" | "leave":
                alter(world, what, more)
            case _:
                world.pause_ms = CHECK_MS if more == 0 else 1
                step = world.poll()
                if what in ("poll", "lose") and step is not None:
                    world.commit(step)
                if what == "poll" and step is not None:
                    world.ingestion.committed(step)
                if what in ("lose", "crash"):
                    world.ingestion = world.resumed()
        world.check()


def settle(world):
    """Lets everything come that can."""
    world.server.fails = world.server.waits = world.server.copies_fail = 0
    world.pause_ms = CHECK_MS
    for _ in range(20):
        step = world.poll()
        if step is not None:
            world.commit(step)
            world.ingestion.committed(step)
            world.check()
        elif world.said == "SLACKWATER_SOURCE_HISTORY_LOST":
            world.wanted.append(world.ingestion.resnapshot())
    last = max((t.end_lsn for t in world.server.log), default=0)
    assert world.frontier.offset(0) >= last
    assert all(each.done.is_set() for each in world.wanted)
    assert set(states_of(world.state)) >= set(world.exports)
    for export, state in states_of(world.state).items():
        if export in world.exports and state.broken is None:
            assert set(state.added) == set(world.table(export).added)
    # What every table has in the end is read by a last snapshot, whatever has happened to it.
    for name, table in world.server.tables.items():
        alter(world, "retype back", name)
        assert table.rows is not None
    wanted = world.ingestion.resnapshot()
    while not wanted.done.is_set():
        step = world.poll()
        assert step is not None
        world.commit(step)
        world.ingestion.committed(step)
    assert all(state.broken is None for state in states_of(world.state).values())
    world.check()
    # So is a table that has an error by a copy of it alone, while the others go on.
    world.harmed.add("keyed")
    world.server.tables["keyed"].member += 1
    for _ in range(4):
        world.server.foreign()
        step = world.poll()
        if step is not None:
            world.commit(step)
            world.ingestion.committed(step)
    assert states_of(world.state)["keyed"].broken is not None
    wanted = world.ingestion.resnapshot(["keyed"])
    for number in range(20):
        if number < 3:
            world.server.transact([inserted("keyed", "1", "x", str(world.server.lsn))])
        step = world.poll()
        if step is not None:
            world.commit(step)
            world.ingestion.committed(step)
            world.check()
    assert wanted.done.is_set()
    assert states_of(world.state)["keyed"].broken is None


@histories()
@given(events(), st.integers(1, 6), st.booleans())
def test_tables_are_what_transactions_before_the_frontier_made_of_them(history, size, is_slow):
    world = World(size, FakeServer(is_slow=is_slow))
    run(world, history)
    settle(world)
