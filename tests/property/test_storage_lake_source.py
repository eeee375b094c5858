"""A source that reads a table of a lake, against its definition, whatever the table, the network
and the process do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.fake_histories import COLUMNS, FORMS, FakeTable

from slackwater.repr.dataflow_error import decode
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import DIFF_COLUMN
from slackwater.storage.ingestion import IngestionProgress, Resnapshot
from slackwater.storage.lake.ingestion import LakeIngestion, LakeState, LakeTableConfig
from slackwater.storage.lake.source_columns import difference, source_columns, widened
from slackwater.storage.pieces import StagedRows

DESC = source_columns(COLUMNS, "s")
ROWS = st.tuples(st.sampled_from([None, 1, 2, 3]), st.sampled_from(["a", "b", None]))
CHANGES = st.dictionaries(ROWS, st.integers(-2, 2), max_size=6)
MUCH = 1 << 20
BOUNDS = [(MUCH, MUCH), (MUCH, 1), (MUCH, 150), (200, MUCH), (1, 1)]
"""The bytes of a step's files, and those of the rows in memory."""
ACTIONS = [
    *["write"] * 5,
    *["delete"] * 4,
    *["back and forth"] * 5,
    *["poll"] * 4,
    *["fail", "crash", "lose", "resnapshot", "refresh"] * 2,
    *["nothing", "alter", "vacuum", "anew", "roll back"],
]


@st.composite
def actions(draw):
    """What happens: each with what it needs, which only some look at."""
    return [
        (
            draw(st.sampled_from(ACTIONS)),
            draw(CHANGES),
            draw(st.sampled_from([*FORMS, "same", "more", "same", "more"])),
            draw(st.integers(0, 6)),
        )
        for _ in range(draw(st.integers(1, 25)))
    ]


def changed(found):
    """The rows of a step with their diffs."""
    pieces = found.parts(None) if isinstance(found, StagedRows) else (found,)
    for piece in pieces if found is not None else ():
        assert isinstance(piece, pa.Table)
        *columns, diffs = (column.to_pylist() for column in piece.columns)
        yield from zip(zip(*columns, strict=True), diffs, strict=True)


@dataclass
class World:
    """A table, the durable state of the source that reads it, and the process that runs it."""

    config: LakeTableConfig
    table: FakeTable = field(default_factory=FakeTable)
    contents: Counter = field(default_factory=Counter)
    held: Counter = field(default_factory=Counter)
    state: str | None = None
    offset: int = 0
    said: str | None = None
    wanted: Resnapshot | None = None
    has_lost: bool = False

    def __post_init__(self):
        self.ingestion = self.resumed()

    def resumed(self):
        """The ingestion as a new process makes it of what is durable."""
        self.wanted = None
        return LakeIngestion(self.config, self.table, self, self.state)

    def has_grown(self):
        """Whether the source has the column that the table may get."""
        return len(self.config.columns) > len(COLUMNS)

    def of(self, rows):
        """Rows of the table as the source has them."""
        return Counter({(*row, 7): n for row, n in rows.items()}) if self.has_grown() else rows

    def fits(self):
        """Whether the last version of the table has the columns of the source."""
        return difference(self.config.columns, FORMS[self.table.last.form]) is None

    def refresh(self):
        """Gives the source the columns of the table, as the definition does."""
        columns = widened(self.config.columns, FORMS[self.table.last.form], "s")
        if columns != self.config.columns:
            desc = source_columns(columns, "s")
            self.config = replace(self.config, columns=columns, desc=desc)
            self.contents = Counter({(*row, None): n for row, n in self.contents.items()})

    def rows(self):
        return self.config.desc.with_diffs(self.contents.items())

    def rows_where(self, column, values):
        desc = self.config.desc
        place = desc.stored_names.index(column)
        known = values.to_pylist()
        found = ((row, n) for row, n in self.contents.items() if row[place] in known)
        return desc.with_diffs(found)

    def lacking(self, changes):
        after = Counter(self.contents)
        for row, diff in changed(changes):
            after[row] += diff
        return -sum(min(0, count) for count in after.values())

    def errors(self):
        return [decode(text) for text in self.held.elements()]

    def stage(self, rows):
        assert set(rows.column(DIFF_COLUMN).to_pylist()) <= {1, -1}
        return StagedRows(lambda time: (rows,), rows.num_rows)

    def poll(self):
        """The next step, through as many polls as it takes; None: there is none."""
        self.said = None
        for _ in range(500):
            try:
                step = self.ingestion.poll(0)
            except SlackwaterError as error:
                self.said = error.condition
                assert self.said in _MAY_PASS or (self.has_lost and self.said in _LOST)
                return None
            if not isinstance(step, IngestionProgress):
                return step
        raise AssertionError("the step does not become whole")

    def acknowledge(self, step):
        self.ingestion.committed(step)
        if self.wanted is not None and self.wanted.done.is_set():
            self.wanted = None

    def commit(self, step):
        """Makes a step durable, and compares what there is with the table."""
        found = step.updates.get("s")
        for row, diff in changed(found):
            self.contents[row] += diff
        for text, diff in zip(*_columns(step.errors.get("s")), strict=True):
            self.held[text] += diff
        before = None if self.state is None else LakeState.from_json(self.state)
        after = LakeState.from_json(step.state)
        offset = step.frontier.offset(0)
        assert offset is not None
        assert offset >= self.offset
        assert min(self.contents.values(), default=0) >= 0
        assert +self.held == self.held
        self.contents, self.held = +self.contents, +self.held
        assert sum(self.held.values()) == (0 if after.broken is None else 1)
        self.state, self.offset = step.state, offset
        if after.at == self.table.last.at:
            self.has_lost = False
        if after.broken is None:
            assert self.contents == self.of(self.table.known[after.at.version].rows)
            assert step.status.status == "running"
        else:
            assert step.status.status == "stalled"
        if before is not None and replace(before, ignored=(), offset=0) == replace(
            after, ignored=(), offset=0
        ):
            assert found is None

    def is_broken(self):
        return self.state is not None and LakeState.from_json(self.state).broken is not None


_MAY_PASS = ("SLACKWATER_SOURCE_TABLE_UNREADABLE",)
_LOST = ("SLACKWATER_SOURCE_HISTORY_LOST", "SLACKWATER_SOURCE_REPLACED")


def _columns(errors):
    return ([], []) if errors is None else [column.to_pylist() for column in errors.columns]


def happen(world, action, changes, form, number):
    table = world.table
    if action in ("vacuum", "anew", "roll back"):
        world.has_lost = True
    match action:
        case "write":
            table.write(changes)
        case "delete":
            names = ("k", "v") if number % 2 else ("k",)
            come = {row: 1 for row, diff in changes.items() if diff > 0}
            table.delete(names, list(changes), come)
        case "back and forth":
            table.write(dict.fromkeys(changes, 2))
            table.write(dict.fromkeys(changes, -1))
            table.write(dict.fromkeys(changes, number % 3 - 1))
        case "nothing":
            table.write({})
        case "alter":
            table.alter(form)
        case "vacuum":
            table.vacuum()
        case "anew":
            table.make_anew([row for row, diff in changes.items() if diff > 0])
        case "roll back":
            table.roll_back()
        case "fail":
            table.fails_in = number
        case "refresh" if world.fits():
            world.refresh()
            world.ingestion.close()
            world.ingestion = world.resumed()
        case "resnapshot":
            world.wanted = world.ingestion.resnapshot()
        case "poll":
            step = world.poll()
            if step is not None:
                world.commit(step)
                world.acknowledge(step)
        case "crash":
            # Before or after the commit.
            step = world.poll()
            if step is not None and number % 2:
                world.commit(step)
            world.ingestion.close()
            world.ingestion = world.resumed()
        case "lose":
            # The commit has not happened: the same step comes again.
            step = world.poll()
            if step is not None:
                again = world.ingestion.poll(0)
                assert again is step
                world.commit(again)
                world.acknowledge(again)


@histories()
@given(actions(), st.sampled_from(BOUNDS))
def test_a_source_has_what_its_table_has_in_one_version(done, bounds):
    world = World(LakeTableConfig("s", "t", "s", DESC, COLUMNS, None, *bounds))
    happen(world, "poll", {}, "same", 0)
    for each in done:
        happen(world, *each)
    # All goes well from here on.
    table = world.table
    table.fails_in = None
    if not world.fits():
        table.alter("more" if world.has_grown() else "same")
    for _ in range(3 * len(table.versions) + 3):
        step = world.poll()
        if world.said is not None or (step is None and world.is_broken()):
            world.wanted = world.ingestion.resnapshot()
        elif step is None:
            break
        else:
            world.commit(step)
            world.acknowledge(step)
    assert world.wanted is None
    assert not world.is_broken()
    assert world.contents == world.of(table.last.rows)
    opened = table.opened
    assert world.ingestion.poll(0) is None
    assert table.opened == opened + 1
