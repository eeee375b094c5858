"""Read capabilities: their holders, and the way in which they reach dependencies.

Each collection counts capabilities in a multiset whose least time is its since. One entry is its
own, the implied capability, which follows the upper by the read policy; each dependent has one,
which equals the dependent's since; each read hold has one.

Collections that share the tables upper are brought up to date when somebody looks: a tick moves one
number, whatever the number of collections. What can be observed is what the formulas say, because
every look, and every change, settles the collection and its dependents.

Source: spec controllers 1.5 to 1.8, 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from slackwater.controller.frontiers import CollectionFrontiers
from slackwater.controller.holds import Holder, HoldKind, Holds, ReadHold
from slackwater.controller.propagation import Propagation
from slackwater.repr.change_batch import ChangeBatch, MutableAntichain
from slackwater.repr.frontier import MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import DROPPED, STEP_BACK, NoPolicy, ReadPolicy, advance_by_policy
from slackwater.storage.controller.descriptions import CollectionDescription, CollectionMetadata
from slackwater.storage.controller.errors import StorageError, Variant


@dataclass(slots=True)
class CollectionState:
    """The controller's state of one collection (spec 1.9).

    `capabilities` counts the implied capability, one entry for each dependent, and one for each
    hold. `writer_hold` keeps what the writer reads to go on: its dependencies at the last complete
    time.
    """

    id: GlobalId
    description: CollectionDescription
    metadata: CollectionMetadata
    implied: Frontier
    policy: ReadPolicy
    upper: Frontier
    dependencies: tuple[GlobalId, ...] = ()
    dependents: set[GlobalId] = field(default_factory=set)
    capabilities: MutableAntichain = field(default_factory=MutableAntichain)
    writer_hold: ReadHold | None = None
    evaluated_at: Frontier | None = None

    @property
    def since(self) -> Frontier:
        """The first time at which the collection can be read."""
        return self.capabilities.frontier

    @property
    def is_dropped(self) -> bool:
        """Whether only holds of others keep it."""
        return self.implied.is_empty


class Capabilities:
    """The collections and everybody who reads them. Not thread-safe, does no I/O.

    What follows from its calls for the outside is left in `moved` and `closed`, for the caller to
    take. It does not guarantee that a since is durable, nor that all collections are settled: only
    those that a call names, and what depends on them.
    """

    def __init__(self, tables_upper: Frontier) -> None:
        self._propagation = Propagation[CollectionState](self._close)
        self.collections = self._propagation.collections
        self.moved = self._propagation.moved
        """Collections whose since moved."""
        self.holds = Holds(self._propagation.apply)
        self.closed: list[CollectionState] = []
        """Collections that nobody can read any more; they are gone from `collections`."""
        self._tables_upper = tables_upper

    # Collections

    def state(self, global_id: GlobalId) -> CollectionState:
        """The collection as it is now (M3, M7), settled. Raises IDENTIFIER_MISSING.

        Deviates from spec M3: a collection that was dropped and that nobody holds is gone.
        """
        state = self.collections.get(global_id)
        if state is None:
            raise StorageError(Variant.IDENTIFIER_MISSING, [global_id])
        self.settle(state)
        return state

    def frontiers(self, global_id: GlobalId) -> CollectionFrontiers | None:
        """The frontiers of the collection, settled; None when nobody can read it any more."""
        state = self.collections.get(global_id)
        if state is None:
            return None
        self.settle(state)
        return CollectionFrontiers(state.since, state.upper, state.is_dropped)

    def settled(self) -> Iterator[CollectionState]:
        """All collections as they are now (M8)."""
        states = list(self.collections.values())
        # What depends on one is among them.
        for state in states:
            self._evaluate(state)
        yield from states

    def live(self, global_id: GlobalId) -> CollectionState:
        """The collection, settled, unless it was dropped. Raises IDENTIFIER_MISSING."""
        state = self.state(global_id)
        if state.is_dropped:
            raise StorageError(Variant.IDENTIFIER_MISSING, [global_id], "it was dropped")
        return state

    def add(
        self,
        global_id: GlobalId,
        description: CollectionDescription,
        metadata: CollectionMetadata,
        dependencies: tuple[GlobalId, ...],
    ) -> CollectionState:
        """Installs a collection with its own capability and one entry on each dependency.

        Its since is the latest of its shard's, of the description's, and of the dependencies'
        implied ones: durable sinces arrive late and out of order (trap 9).
        """
        upper = self._tables_upper if metadata.shares_tables_upper else metadata.upper
        inputs = [self.live(each) for each in dependencies]
        since = max([first_since(description, metadata), *(each.implied for each in inputs)])
        state = CollectionState(
            id=global_id,
            description=description,
            metadata=metadata,
            implied=since,
            policy=NoPolicy(since),
            upper=upper,
            dependencies=dependencies,
        )
        state.evaluated_at = self._reached(state)
        self._propagation.add(state, [since])
        if not since.is_empty and inputs:
            begin = max([STEP_BACK.frontier(upper), *(each.since for each in inputs)])
            holder = Holder(HoldKind.INGESTION, global_id)
            state.writer_hold = self.holds.take(dependencies, Timestamp(begin.value), holder)
        return state

    @property
    def tables_upper(self) -> Frontier:
        """The upper that tables and sources share."""
        return self._tables_upper

    def upper(self, state: CollectionState) -> Frontier:
        """The upper of the collection now, whether it was settled or not."""
        return self._tables_upper if state.metadata.shares_tables_upper else state.upper

    def report(self, state: CollectionState, upper: Frontier) -> None:
        """The collection has been written up to `upper`; what is behind is ignored."""
        if state.metadata.shares_tables_upper:
            self.advance_tables(upper)
        else:
            state.upper = max(state.upper, upper)
        self.settle(state)

    def advance_tables(self, upper: Frontier) -> None:
        """Moves the upper of all collections that share it. Costs the same for any number."""
        self._tables_upper = max(self._tables_upper, upper)

    def set_policies(self, policies: Sequence[tuple[GlobalId, ReadPolicy]]) -> None:
        """Sets the policies in order; ids that are not known are left out."""
        for global_id, policy in policies:
            state = self.collections.get(global_id)
            if state is not None:
                self.settle(state)
                state.policy = policy
                state.evaluated_at = None
                self._evaluate(state)

    def validate(self) -> None:
        """Raises FatalError unless each count is exactly that of its owners (I9 to I11, I15, I16).

        Each collection counts its own capability, the since of each dependent and each hold.
        """
        self._propagation.check(lambda state: (state.implied,), self.holds)

    # The present uppers

    def settle(self, state: CollectionState) -> None:
        """Brings the collection, and all that depends on it, to their present uppers."""
        pending, seen = [state], {state.id}
        while pending:
            current = pending.pop()
            self._evaluate(current)
            for each in current.dependents - seen:
                seen.add(each)
                pending.append(self.collections[each])

    def _evaluate(self, state: CollectionState) -> None:
        if state.metadata.shares_tables_upper:
            state.upper = self._tables_upper
        reached = self._reached(state)
        if state.evaluated_at == reached:
            return
        state.evaluated_at = reached
        implied = advance_by_policy(state.implied, state.policy, reached)
        if implied != state.implied:
            change = ChangeBatch.move(state.implied, implied)
            state.implied = implied
            self._propagation.apply({state.id: change})
        if state.writer_hold is not None:
            behind = STEP_BACK.frontier(state.upper)
            if behind > Frontier(state.writer_hold.since):
                state.writer_hold = self.holds.downgrade(state.writer_hold, behind)

    def _reached(self, state: CollectionState) -> Frontier:
        """The upper by which the read policy goes."""
        if state.description.runs_ahead:
            return min(state.upper, self._tables_upper)
        return state.upper

    def _close(self, state: CollectionState) -> None:
        del self.collections[state.id]
        self.moved.pop(state.id, None)
        self.closed.append(state)

    def drop(self, state: CollectionState) -> None:
        """Gives up the collection's own capability and what its writer holds."""
        if state.writer_hold is not None:
            self.holds.release(state.writer_hold)
            state.writer_hold = None
        self.set_policies([(state.id, DROPPED)])

    # Holds

    def acquire(
        self, ids: Iterable[GlobalId], holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """One hold on all of them, at `at` or at the first time at which all can be read.

        Raises IDENTIFIER_MISSING, and READ_BEFORE_SINCE with those that cannot be read at `at`.
        """
        states = [self.live(each) for each in dict.fromkeys(ids)]
        latest = max((state.since for state in states), default=MINIMUM_FRONTIER)
        time = Timestamp(latest.value) if at is None else at
        if latest.value > time or latest.is_empty:
            late = [state.id for state in states if state.since.value > time]
            raise StorageError(Variant.READ_BEFORE_SINCE, late, f"at {time}")
        return self.holds.take([state.id for state in states], time, holder)


def first_since(description: CollectionDescription, metadata: CollectionMetadata) -> Frontier:
    """The beginning of a collection's history, without regard to its inputs."""
    return max(metadata.since, description.since or MINIMUM_FRONTIER)
