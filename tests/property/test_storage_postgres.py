"""A source that reads tables of PostgreSQL, against its definition, whatever the server, the
network and the process do: each transaction once and whole at every readable timestamp."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.fake_postgres import (
    COLUMNS,
    LARGE,
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
from slackwater.storage.postgres.changes import TableChanges, TableState
from slackwater.storage.postgres.ingestion import (
    CHECK_MS,
    PostgresConfig,
    PostgresIngestion,
    states_of,
)
from slackwater.storage.postgres.replication import ServerIdentity, SlotState
from slackwater.storage.postgres.tables import PostgresColumn

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
]
RARE = ["no slot", "advance", "retype", "retype back", "leave"]


@st.composite
def events(draw):
    """What happens, each with what it needs."""
    kinds = st.one_of(st.sampled_from(EVENTS), st.sampled_from(EVENTS), st.sampled_from(RARE))
    found = []
    for what in draw(st.lists(kinds, min_size=10, max_size=60)):
        if what == "transact":
            found.append((what, draw(st.lists(changes, max_size=5))))
        elif what in ("add", "drop", "retype", "retype back", "leave"):
            found.append((what, draw(st.sampled_from(sorted(COLUMNS)))))
        else:
            found.append((what, draw(st.integers(0, 3))))
    return found


@dataclass
class World:
    """A server, the durable state of the source that reads it, and the process that runs it."""

    size: int
    server: FakeServer
    rows: dict = field(default_factory=lambda: {name: Counter() for name in COLUMNS})
    errors: dict = field(default_factory=lambda: {name: Counter() for name in COLUMNS})
    frontier: object = None
    state: str | None = None
    now_ms: int = 0
    pause_ms: int = 1
    harmed: set = field(default_factory=set)
    wanted: object = None
    said: str | None = None

    def __post_init__(self):
        self.ingestion = self.resumed()

    def resumed(self):
        """The ingestion as a new process makes it of what is durable."""
        self.wanted = None
        states = states_of(self.state)
        tables = {
            name: TableChanges(
                source_table(name), Stored(self, name), stage, states.get(name, TableState())
            )
            for name in COLUMNS
        }
        config = PostgresConfig("s", "p", "slot", ServerIdentity("system", 1))
        return PostgresIngestion(
            config, FakeUpstream(self.server, self.size), tables, self.frontier, self.state
        )

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
        for name, table in step.updates.items():
            for *cells, diff in zip(*table.to_pydict().values(), strict=True):
                self.rows[name][tuple(cells)] += diff
        for name, table in step.errors.items():
            for text, diff in zip(*table.to_pydict().values(), strict=True):
                self.errors[name][text] += diff
        for counts in (*self.rows.values(), *self.errors.values()):
            assert min(counts.values(), default=0) >= 0
        if self.frontier is not None:
            assert self.frontier.not_after(step.frontier)
        self.frontier, self.state = step.frontier, step.state

    def check(self):
        if self.frontier is None:
            assert not any(self.rows.values())
            return
        assert self.server.told <= self.frontier.offset(0)
        upstream, announced = self.server.state_before(self.frontier.offset(0))
        for name, state in states_of(self.state).items():
            errors = Counter({text: n for text, n in self.errors[name].items() if n})
            if state.broken is not None:
                assert name in self.harmed, state.broken
                assert errors[encode(DecodeError(f"table public.{name}", state.broken))] == 1
                continue
            good = Counter()
            bad = 0
            for each in upstream[name]:
                if each.unread and NUMBER in announced[name]:
                    bad += 1
                else:
                    good[projected(name, each, announced[name])] += 1
            assert Counter({row: n for row, n in self.rows[name].items() if n}) == good
            assert sum(errors.values()) == bad, errors


class Stored:
    def __init__(self, world, name):
        self._world, self._name = world, name
        self._desc = TableChanges(source_table(name), None, stage, TableState())._reader.rows.desc

    def rows(self):
        found = self._desc.with_diffs((row, 1) for row in self._world.rows[self._name].elements())
        return found.drop_columns([DIFF_COLUMN])

    def errors(self):
        return [decode(text) for text in self._world.errors[self._name].elements()]


def stage(rows):
    raise AssertionError("so few rows stay in memory")


def projected(name, found, announced):
    made = []
    for column in COLUMNS[name]:
        text = found.cell(column.name) if column.name in announced else None
        if text is not None and column.base == "numeric":
            text = Decimal(text).quantize(Decimal("1e-18"))
        made.append(int(text) if text is not None and column.base == "int4" else text)
    return tuple(made)


def alter(world, what, name):
    table = world.server.tables[name]
    names = [column.name for column in table.columns]
    match what:
        case "add" if "more" not in names:
            if LARGE not in names:
                world.harmed.add(name)
            table.columns.append(PostgresColumn("more", 9, TEXT, "text"))
        case "drop" if LARGE in names:
            if "more" in names:
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
                world.wanted = world.ingestion.resnapshot()
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
    world.server.fails = world.server.waits = 0
    world.pause_ms = CHECK_MS
    for _ in range(12):
        step = world.poll()
        if step is not None:
            world.commit(step)
            world.ingestion.committed(step)
            world.check()
        elif world.said == "SLACKWATER_SOURCE_HISTORY_LOST":
            world.wanted = world.ingestion.resnapshot()
    last = max((t.end_lsn for t in world.server.log), default=0)
    assert world.frontier.offset(0) >= last
    assert world.wanted is None or world.wanted.done.is_set()
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


@histories()
@given(events(), st.integers(1, 6), st.booleans())
def test_tables_are_what_transactions_before_the_frontier_made_of_them(history, size, is_slow):
    world = World(size, FakeServer(is_slow=is_slow))
    run(world, history)
    settle(world)
