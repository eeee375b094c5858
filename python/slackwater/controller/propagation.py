"""The way in which read capabilities reach what a collection depends on.

Each collection counts capabilities in a multiset whose least time is its since. Its owner has
entries of its own, each dependent has one, which equals the dependent's since, and each read hold
has one. Source: spec controllers 1.5, 2.2, trap 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from slackwater.controller.holds import ReadHold
from slackwater.repr.change_batch import ChangeBatch, MutableAntichain
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.ids import GlobalId


class Counted(Protocol):
    """A collection whose capabilities are counted. Its dependencies are others of its kind."""

    @property
    def id(self) -> GlobalId: ...

    @property
    def dependencies(self) -> tuple[GlobalId, ...]: ...

    @property
    def dependents(self) -> set[GlobalId]: ...

    @property
    def capabilities(self) -> MutableAntichain: ...


State = TypeVar("State", bound=Counted)


class Propagation(Generic[State]):
    """The collections and the edges between them. Not thread-safe.

    For each dependency i of each collection d whose since is not empty, after each call::

        since(i) <= since(d), and i counts since(d) once for d
    """

    def __init__(self, closed: Callable[[State], None]) -> None:
        """`closed` is called with each collection whose since has become empty."""
        self.collections: dict[GlobalId, State] = {}
        self.moved: dict[GlobalId, State] = {}
        """Collections whose since moved; the caller takes them out."""
        self._closed = closed

    def add(self, state: State, own: Iterable[Frontier]) -> None:
        """Installs a collection with its first entries, and with one on each dependency.

        The dependencies exist and can be read at its since, else a FatalError.
        """
        entries = sorted(own)
        self.collections[state.id] = state
        for position, entry in enumerate(entries):
            if position == 0:
                state.capabilities.install(entry)
            elif not entry.is_empty:
                state.capabilities.apply(ChangeBatch([(Timestamp(entry.value), 1)]))
        since = state.capabilities.frontier
        if since.is_empty:
            return
        entry_of_dependent = ChangeBatch([(Timestamp(since.value), 1)])
        self.apply(dict.fromkeys(state.dependencies, entry_of_dependent))
        for each in state.dependencies:
            self.collections[each].dependents.add(state.id)

    def apply(self, changes: Mapping[GlobalId, ChangeBatch]) -> None:
        """Applies deltas, and the frontier changes that they cause to dependencies (spec 2.2).

        A collection that is absent was dropped at the same time: what releases only is ignored,
        anything else is a FatalError, as is a count below zero or a since that would go back.
        """
        pending = dict(changes)
        while pending:
            global_id, batch = pending.popitem()
            if batch.is_empty:
                continue
            state = self.collections.get(global_id)
            if state is None:
                if batch.only_releases:
                    continue
                raise FatalError(f"a capability was taken on {global_id}, which does not exist")
            moved = state.capabilities.apply(batch)
            if moved.is_empty:
                continue
            for each in state.dependencies:
                merged = ChangeBatch(moved.items())
                if (waiting := pending.get(each)) is not None:
                    merged.extend(waiting)
                pending[each] = merged
            self.moved[global_id] = state
            if state.capabilities.least is None:
                self._close(state)

    def _close(self, state: State) -> None:
        for each in state.dependencies:
            if each in self.collections:
                self.collections[each].dependents.discard(state.id)
        self._closed(state)

    def check(self, own: Callable[[State], Iterable[Frontier]], holds: Iterable[ReadHold]) -> None:
        """Raises FatalError unless each count is that of its owners (I9 to I11, I15, I16).

        `own` gives the entries that a collection has of its own.
        """
        held: dict[GlobalId, list[Frontier]] = {}
        for hold in holds:
            for each in hold.ids:
                held.setdefault(each, []).append(Frontier(hold.since))
        for state in self.collections.values():
            since = state.capabilities.frontier
            dependents = [self.collections[each] for each in state.dependents]
            owners = [*own(state), *(each.capabilities.frontier for each in dependents)]
            owners += held.get(state.id, [])
            expected = Counter(each.value for each in owners if not each.is_empty)
            found = dict(state.capabilities.items())
            if found != expected:
                raise FatalError(f"{state.id} counts {found}, and its owners {dict(expected)}")
            for each in () if since.is_empty else state.dependencies:
                source = self.collections.get(each)
                if source is None or state.id not in source.dependents:
                    raise FatalError(f"{each} does not know that {state.id} depends on it")
                if source.capabilities.frontier > since:
                    raise FatalError(f"the since of {each} is after that of {state.id}")
