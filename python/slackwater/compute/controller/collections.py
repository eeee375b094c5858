"""The compute collections: who may read them when, and what they keep readable of their inputs.

Each counts two capabilities of its own. The implied one follows the upper: by the read policy where
the collection can be read, one step behind where it is only written. The warmup capability stays
behind the inputs, so that a new replica can begin at once with what is there. Edges to other
compute collections are counted; on each stored input there is a hold, where the since is.

Source: spec controllers 1.5 to 1.9, 4.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from slackwater.compute.controller.descriptions import DataflowDescription, ExportKind
from slackwater.compute.controller.errors import ComputeError, Variant
from slackwater.compute.controller.storage_collections import StorageCollections
from slackwater.controller.holds import Holder, HoldKind, Holds, ReadHold, ReleasedHold
from slackwater.controller.propagation import Propagation
from slackwater.repr.change_batch import ChangeBatch, MutableAntichain
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ReadPolicy, advance_by_policy

_HOLD_KINDS: Mapping[ExportKind, HoldKind] = {
    ExportKind.INDEX: HoldKind.INDEX,
    ExportKind.MATERIALIZED_VIEW: HoldKind.VIEW,
    ExportKind.SUBSCRIBE: HoldKind.SUBSCRIPTION,
    ExportKind.COPY_TO: HoldKind.COPY,
    ExportKind.LOG: HoldKind.INDEX,
}


@dataclass(slots=True)
class CollectionState:
    """The controller's state of one export, or of one log (spec 1.9).

    `policy` is None where the collection is only written. `dependencies` are the compute
    collections that it reads, `stored_ids` the others, `stored_inputs` its holds on these, `target`
    is the stored collection that it writes. `dataflow` is None for a log, and has the as-of at its
    creation. `number` grows with each collection, so an input has a lower one than what reads it.
    """

    id: GlobalId
    instance: str
    kind: ExportKind
    dataflow: DataflowDescription | None
    as_of: Frontier
    policy: ReadPolicy | None
    write_frontier: Frontier
    implied: Frontier
    warmup: Frontier
    stored_ids: tuple[GlobalId, ...] = ()
    dependencies: tuple[GlobalId, ...] = ()
    target: GlobalId | None = None
    target_replica: str | None = None
    stored_inputs: dict[GlobalId, ReadHold] = field(default_factory=dict)
    dependents: set[GlobalId] = field(default_factory=set)
    capabilities: MutableAntichain = field(default_factory=MutableAntichain)
    number: int = 0
    is_dropped: bool = False
    is_scheduled: bool = False
    is_read_only: bool = True

    @property
    def since(self) -> Frontier:
        """The first time at which the collection can be read."""
        return self.capabilities.frontier

    @property
    def holder(self) -> Holder:
        """The name under which it holds its stored inputs."""
        return Holder(_HOLD_KINDS[self.kind], self.id)


class Collections:
    """The compute collections of all instances, and everybody who reads them. Not thread-safe.

    After each call, for every collection that is installed and whose since is not empty::

        the hold on each stored input is where its since is             (I41)
        implied = max(as_of, upper - 1)      if it is only written      (I42)

    What follows for replicas is left in `compacted`, for the caller to take.
    """

    def __init__(self, storage: StorageCollections) -> None:
        self._storage = storage
        self._propagation = Propagation[CollectionState](lambda state: None)
        self.states = self._propagation.collections
        self.holds = Holds(self.apply)
        self.compacted: dict[GlobalId, CollectionState] = {}
        """Collections whose since moved."""
        self._created = 0

    # Collections

    def live(self, instance: str, global_id: GlobalId) -> CollectionState:
        """The collection of the instance, unless it was dropped. Raises COLLECTION_MISSING."""
        state = self.states.get(global_id)
        if state is None or state.instance != instance:
            raise ComputeError(Variant.COLLECTION_MISSING, [global_id])
        if state.is_dropped:
            raise ComputeError(Variant.COLLECTION_MISSING, [global_id], "it was dropped")
        return state

    def add(self, state: CollectionState) -> None:
        """Installs a collection whose inputs can be read at its as-of, with its two capabilities.

        Each input is held there.
        """
        self._created += 1
        state.number = self._created
        if not state.as_of.is_empty:
            at = Timestamp(state.as_of.value)
            for each in state.stored_ids:
                state.stored_inputs[each] = self._storage.acquire([each], state.holder, at)
        self._propagation.add(state, (state.implied, state.warmup))
        self._follow()

    def drop(self, state: CollectionState) -> None:
        """Gives up both capabilities of the collection's own; holds keep it readable."""
        state.is_dropped = True
        self._move(state, EMPTY_FRONTIER, EMPTY_FRONTIER)

    def forget(self, state: CollectionState) -> None:
        """Removes what nobody reads and no replica works on any more."""
        if not state.since.is_empty:
            raise FatalError(f"{state.id} can still be read from {state.since} on")
        del self.states[state.id]
        self.compacted.pop(state.id, None)

    def abandon(self, states: Sequence[CollectionState]) -> None:
        """Removes all of them at once, whoever held them. Later releases have no effect."""
        gone = {each.id for each in states}
        for hold in self.holds:
            if hold.ids & gone:
                self.holds.release(hold)
        for state in states:
            self.drop(state)
        for state in states:
            self.forget(state)

    # Frontiers

    def advance(self, state: CollectionState, upper: Frontier) -> bool:
        """The collection is complete up to `upper`. False if that is nothing new."""
        if upper <= state.write_frontier:
            return False
        state.write_frontier = upper
        self.evaluate(state, upper)
        return True

    def evaluate(self, state: CollectionState, upper: Frontier) -> None:
        """Moves the implied capability to where `upper` lets it go, never back (1.8, I13)."""
        if state.is_dropped:
            return
        if state.policy is None:
            implied = max(state.implied, Frontier(upper.last_complete()))
        else:
            implied = advance_by_policy(state.implied, state.policy, upper)
        self._move(state, implied, state.warmup)

    def warm_up(self, state: CollectionState, inputs: Iterable[Frontier]) -> None:
        """Moves the warmup capability behind the earliest of the uppers of its inputs."""
        if state.is_dropped:
            return
        if state.policy is None and state.write_frontier.is_empty:
            wanted = EMPTY_FRONTIER
        else:
            wanted = Frontier(min(inputs, default=EMPTY_FRONTIER).last_complete())
        if wanted > state.warmup:
            self._move(state, state.implied, wanted)

    def set_policies(
        self, policies: Sequence[tuple[CollectionState, ReadPolicy]]
    ) -> list[CollectionState]:
        """Sets the policies in order; returns those whose policy gives them up."""
        given_up: dict[GlobalId, CollectionState] = {}
        for state, policy in policies:
            if policy.frontier(state.write_frontier).is_empty:
                given_up[state.id] = state
                continue
            state.policy = policy
            self.evaluate(state, state.write_frontier)
        return list(given_up.values())

    # Holds

    def acquire(
        self, state: CollectionState, holder: Holder, at: Timestamp | None = None
    ) -> ReadHold:
        """A hold at `at`, or where the collection can first be read. Raises SINCE_VIOLATION."""
        since = state.since
        if since.is_empty or (at is not None and at < since.value):
            raise ComputeError(Variant.SINCE_VIOLATION, [state.id], f"at {since.as_list()}")
        return self.holds.take([state.id], Timestamp(since.value) if at is None else at, holder)

    # The engine

    def apply(self, changes: Mapping[GlobalId, ChangeBatch]) -> None:
        """Changes capabilities, and what the collections hold of their inputs (spec 2.2)."""
        self._propagation.apply(changes)
        self._follow()

    def _move(self, state: CollectionState, implied: Frontier, warmup: Frontier) -> None:
        change = ChangeBatch.move(state.implied, implied)
        change.extend(ChangeBatch.move(state.warmup, warmup))
        state.implied, state.warmup = implied, warmup
        if not change.is_empty:
            self.apply({state.id: change})

    def _follow(self) -> None:
        moved = self._propagation.moved
        for state in moved.values():
            since = state.since
            for each, hold in state.stored_inputs.items():
                state.stored_inputs[each] = self._storage.holds.downgrade(hold, since)
            if since.is_empty:
                state.stored_inputs.clear()
        self.compacted |= moved
        moved.clear()

    def validate(self) -> None:
        """Raises FatalError unless I9 to I12, I15, I16 and I40 to I42 hold."""
        self._propagation.check(lambda state: (state.implied, state.warmup), self.holds)
        for state in self.states.values():
            since = state.since
            if since < state.as_of:
                raise FatalError(f"{state.id} can be read before its as-of {state.as_of}")
            expected = () if since.is_empty else state.stored_ids
            if set(state.stored_inputs) != set(expected):
                raise FatalError(f"{state.id} holds {sorted(state.stored_inputs)}, not {expected}")
            for each, hold in state.stored_inputs.items():
                self._check_hold(state, each, hold)
            behind = max(state.as_of, Frontier(state.write_frontier.last_complete()))
            if state.policy is None and not state.is_dropped and state.implied != behind:
                raise FatalError(f"{state.id} is written up to {behind}, and reads {state.implied}")

    def _check_hold(self, state: CollectionState, each: GlobalId, hold: ReadHold) -> None:
        try:
            current = self._storage.holds.current(hold)
        except ReleasedHold as error:
            raise FatalError(f"{state.id} does not hold {each}: {error}") from None
        stored = self._storage.frontiers(each)
        if stored is None or current != hold or Frontier(hold.since) != state.since:
            raise FatalError(f"{state.id} holds {each} at {current}, not at {state.since}")
        if stored.since > state.since:
            raise FatalError(f"the since of {each} is after that of {state.id}")
