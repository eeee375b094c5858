"""A table of a lake below the seam of sources: its versions, and whatever may go wrong with them.

Rows are pairs of a number and a text. Any call, and any piece that is read, may fail; versions and
their files may be gone; the table may be made anew or rolled back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace

import pyarrow as pa

from slackwater.storage.lake.history import TableColumn, TableVersion, VersionChanges
from slackwater.storage.lake.ingestion import history_lost, replaced, unreadable

K = TableColumn("k", '"long"', True, "1")
V = TableColumn("v", '"string"', True, "2", '{"comment": "text"}')
MORE = TableColumn("more", '"long"', False, "3")
COLUMNS = (K, V)
FORMS = {
    "same": COLUMNS,
    "more": (MORE, V, K),
    "gone": (V,),
    "renamed": (K, replace(V, name="w")),
    "retyped": (replace(K, type_json='"integer"'), V),
}
BROKEN = ("gone", "renamed", "retyped")

Row = tuple[int | None, str | None]


@dataclass
class Version:
    """What one commit has done. `deleted` are values of `k`, or whole rows."""

    at: TableVersion
    rows: Counter[Row]
    changed: list[tuple[Row, int]]
    deleted: tuple[tuple[str, ...], list[Row]] | None
    form: str
    is_there: bool = True


@dataclass
class FakeTable:
    """A table. The next call but `fails_in` fails, and all before it do not; None: none does."""

    versions: list[Version] = field(default_factory=list)
    fails_in: int | None = None
    piece_rows: int = 2
    known: dict[str, Version] = field(default_factory=dict)
    opened: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _tables: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self):
        self.make_anew()

    @property
    def last(self) -> Version:
        return self.versions[-1]

    def make_anew(self, rows=()):
        """Another table takes the place of this one."""
        self.versions = []
        self._table = f"table {next(self._tables)}"
        self._add(Counter(rows), [(row, 1) for row in rows], None, "same")

    def write(self, changed):
        """Rows come and go, of those that go as many as there are."""
        before = self.last.rows
        found = Counter({row: max(diff, -before[row]) for row, diff in changed.items()})
        after = Counter(before)
        after.update(found)
        self._add(+after, list(found.items()), None, self.last.form)

    def delete(self, names, values, come):
        """Rows go by values, and others come, which may have these values."""
        at = ["kv".index(name) for name in names]
        gone = {tuple(row[i] for i in at) for row in values}
        kept = Counter(
            {r: n for r, n in self.last.rows.items() if tuple(r[i] for i in at) not in gone}
        )
        kept.update(come)
        # A file with one of the rows that go is taken away as well.
        twice = next((row for row in self.last.rows if tuple(row[i] for i in at) in gone), None)
        changed = list(come.items())
        if twice is not None:
            changed.append((twice, -1))
        self._add(kept, changed, (tuple(names), sorted(gone, key=str)), self.last.form)

    def alter(self, form):
        self._add(self.last.rows, [], None, form)

    def roll_back(self):
        """The last version was never there, for whoever comes later."""
        if len(self.versions) > 1:
            self.versions.pop()

    def vacuum(self):
        """All is gone that only versions before the last one need."""
        for each in self.versions[:-1]:
            each.is_there = False

    def _add(self, rows, changed, deleted, form):
        number = len(self.versions)
        at = TableVersion(number, self._table, f"v{next(self._numbers)}", number)
        self.versions.append(Version(at, Counter(rows), changed, deleted, form))
        self.known[at.version] = self.last

    def history(self) -> FakeHistory:
        self.opened += 1
        return FakeHistory(self)

    def forget(self):
        """See `LakeUpstream`."""

    def call(self):
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                raise unreadable("s", "the table", "it is away")


@dataclass
class FakeHistory:
    """See `TableHistory`."""

    table: FakeTable

    def newest(self):
        self.table.call()
        return self.table.last.at

    def last_number(self):
        return self.newest().number

    def at(self, number):
        self.table.call()
        if number >= len(self.table.versions):
            raise history_lost("s", f"version {number} is gone")
        return self.table.versions[number].at

    def columns(self, version):
        self.table.call()
        return FORMS[self.table.known[version.version].form]

    def known_rows(self, version):
        return self.table.known[version.version].rows.total()

    def contents(self, version):
        found = self.table.known[version.version]
        yield from self._pieces(found, [(row, 1) for row in found.rows.elements()], has_diff=False)

    def after(self, version):
        self.table.call()
        versions = self.table.versions
        if version.number >= len(versions) or versions[version.number].at != version:
            raise replaced("s", "the table", version.version, self.table.last.at.version)
        for each in versions[version.number + 1 :]:
            self.table.call()
            rows = sorted(each.changed, key=lambda item: item[1])
            yield VersionChanges(
                each.at,
                FORMS[each.form],
                self._pieces(each, rows, has_diff=True),
                self._deleted(each),
                40 * len(each.changed),
            )

    def _deleted(self, version):
        self.table.call()
        if version.deleted is None:
            return
        names, values = version.deleted
        columns = list(zip(*values, strict=True)) or [()] * len(names)
        types = {"k": pa.int64(), "v": pa.string(), "more": pa.int64()}
        yield pa.table(
            {
                name: pa.array(column, types[name])
                for name, column in zip(names, columns, strict=True)
            }
        )

    def _pieces(self, version, rows, has_diff):
        if version.form in BROKEN:
            raise AssertionError("a table is read whose columns do not fit")
        for start in range(0, len(rows), self.table.piece_rows):
            self.table.call()
            if not version.is_there and version is not self.table.last:
                raise history_lost("s", "a file is gone")
            piece = rows[start : start + self.table.piece_rows]
            made = {
                "v": pa.array([row[1] for row, _ in piece], pa.large_string()),
                "k": pa.array([row[0] for row, _ in piece], pa.int64()),
                "more": pa.array([7] * len(piece), pa.int64()),
            }
            if has_diff:
                made["__diff"] = pa.array([diff for _, diff in piece], pa.int64())
            yield pa.table(made)

    def close(self):
        """Nothing is open."""
