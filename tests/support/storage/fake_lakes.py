"""A table of a lake below the seam of sinks: commits, conflicts, and whatever may go wrong.

Each call may crash before or after it has done something, or lose its answer; others may commit
before one does. A commit may be on its way for a while: it arrives before the table is loaded the
next time, or, when it is late, after that and before the next commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slackwater.repr.errors import user_error
from slackwater.storage.lake.table import (
    LakeChanges,
    LakeProgress,
    LakeTable,
    LakeTarget,
    TableChanged,
    Written,
    unheard,
)


class Crash(Exception):
    """The process of the sink ends here."""


@dataclass
class Lake:
    """What a table holds. `fate` decides what befalls each call."""

    fate: Callable[[str], str] = lambda call: "done"
    rows: Counter[tuple] = field(default_factory=Counter)
    progress: LakeProgress | None = None
    commits: list[LakeProgress] = field(default_factory=list)
    version: int = 0
    on_its_way: tuple[int, LakeChanges, LakeProgress] | None = None
    is_late: bool = False

    def table(self) -> Table:
        return Table(self)

    def compact(self):
        """Another writer commits, and changes no row."""
        self.version += 1

    def apply(self, loaded, changes, progress):
        if loaded != self.version:
            raise TableChanged
        if changes.deleted is not None and len(changes.deleted):
            names = changes.deleted.column_names
            at = [changes.inserted.column_names.index(name) for name in names]
            gone = [tuple(row.values()) for row in changes.deleted.to_pylist()]
            assert len(set(gone)) == len(gone), "a key occurs twice"
            for row in list(self.rows):
                if tuple(row[i] for i in at) in gone:
                    del self.rows[row]
        self.rows.update(tuple(row.values()) for row in changes.inserted.to_pylist())
        self.progress = progress
        self.commits.append(progress)
        self.version += 1

    def arrive(self):
        """Does what is on its way, unless the table has changed since."""
        if self.on_its_way is not None:
            late, self.on_its_way = self.on_its_way, None
            if late[0] == self.version:
                self.apply(*late)


@dataclass
class Table:
    """See `LakeTable`."""

    lake: Lake
    loaded: int | None = None
    is_broken: bool = False

    def load(self) -> LakeProgress | None:
        found = []

        def act():
            if not self.lake.is_late:
                self.lake.arrive()
            self.loaded = self.lake.version
            found.append(self.lake.progress)

        self._do("load", act)
        return found[0]

    def commit(
        self, changes: LakeChanges, progress: LakeProgress, written: Written = unheard
    ) -> None:
        assert self.loaded is not None, "it is not loaded"
        lake = self.lake
        lake.arrive()
        fate = lake.fate("others")
        if fate == "compact":
            lake.compact()
        if fate in ("delay", "late"):
            self.is_broken, lake.is_late = True, fate == "late"
            lake.on_its_way = (self.loaded, changes, progress)
            raise unreachable()
        self._do("commit", lambda: lake.apply(self.loaded, changes, progress))
        written(changes.inserted.num_rows)
        self.loaded = lake.version

    def tidy(self) -> None:
        self._do("tidy", lambda: None)

    def close(self) -> None:
        self.is_broken = True

    def _do(self, call, act):
        assert not self.is_broken, "it is of no use any more"
        fate = self.lake.fate(call)
        if fate in ("crash before", "fail"):
            self.is_broken = True
            raise Crash if fate == "crash before" else unreachable()
        act()
        if fate in ("crash after", "lose"):
            self.is_broken = True
            raise Crash if fate == "crash after" else unreachable()


def unreachable():
    return user_error("SLACKWATER_SINK_UNREACHABLE", objectName="s", place="t", reason="a fault")


@dataclass
class Faulty:
    """A real table of a sink, and what befalls each commit, by its number.

    `others` are what other writers do before a commit, by the names of their fates. `tidied` are
    the fates of what follows commits, by their numbers.
    """

    target: LakeTarget
    others: Mapping[str, Callable[[], object]]
    fates: Mapping[int, str]
    tidied: Mapping[int, str] = field(default_factory=dict)
    calls: int = 0
    tables: list[LakeTable] = field(default_factory=list)

    def table(self):
        self.tables.append(self.target.opened())
        return self

    def load(self):
        return self.tables[-1].load()

    def close(self):
        self.tables.pop().close()

    def commit(self, changes, progress, written=unheard):
        fate = self.fates.get(self.calls, "done")
        self.calls += 1
        if fate == "crash before":
            raise Crash
        if fate in self.others:
            self.others[fate]()
        self.tables[-1].commit(changes, progress, written)
        if fate == "crash after":
            raise Crash

    def tidy(self):
        fate = self.tidied.get(self.calls - 1, "done")
        if fate in self.others:
            self.others[fate]()
        self.tables[-1].tidy()
        if fate == "crash after":
            raise Crash
