"""The as-ofs of all dataflows at a start, chosen together. Source: spec controllers 4.6, I43, I44.

As late as possible, so that nothing is computed from history that nobody reads; never so late that
a stored output would skip a time; never so early that an input cannot be read any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    MaterializedViewExport,
)
from slackwater.controller.frontiers import CollectionFrontiers
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import ReadPolicy


@dataclass(slots=True)
class Bounds:
    """The as-ofs that a dataflow may have: from `lower` to `upper`, both among them.

    `is_sealed`: a bound could not be had, and nothing moves them any more.
    """

    lower: Frontier = MINIMUM_FRONTIER
    upper: Frontier = EMPTY_FRONTIER
    is_sealed: bool = False

    def raise_lower(self, frontier: Frontier) -> bool:
        """At or after `frontier`. False if that cannot be."""
        if self.is_sealed or frontier <= self.lower:
            return True
        possible = frontier <= self.upper
        self.lower = frontier if possible else self.upper
        self.is_sealed = not possible
        return possible

    def lower_upper(self, frontier: Frontier) -> bool:
        """At or before `frontier`. False if that cannot be."""
        if self.is_sealed or self.upper <= frontier:
            return True
        possible = self.lower <= frontier
        self.upper = frontier if possible else self.lower
        self.is_sealed = not possible
        return possible


@dataclass(frozen=True, slots=True)
class FailedConstraint:
    """A demand on the as-of of a dataflow that could not be met; the start goes on."""

    exports: tuple[GlobalId, ...]
    reason: str
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Candidate:
    """A dataflow without inputs that are not in the same selection, and its bounds.

    `position` is its place among the dataflows of the selection.
    """

    position: int
    dataflow: DataflowDescription
    inputs: tuple[int, ...]
    bounds: Bounds


@dataclass(slots=True)
class Selection:
    """The dataflows of a start, what is stored, and the policies of their indexes.

    `steps` narrows the bounds; between two of them, for each input i of each dataflow d of which
    neither is sealed::

        lower(d) >= lower(i)   and   upper(d) >= upper(i)

    `dataflows` may come in any order. One whose `as_of` is given keeps it.
    """

    dataflows: Sequence[DataflowDescription]
    stored: Mapping[GlobalId, CollectionFrontiers]
    policies: Mapping[GlobalId, ReadPolicy]
    now: Timestamp
    failed: list[FailedConstraint] = field(default_factory=list, init=False)
    candidates: dict[int, Candidate] = field(default_factory=dict, init=False)
    _order: list[int] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        # A view whose output is complete for ever computes nothing any more.
        open_ = [n for n, each in enumerate(self.dataflows) if not self._is_complete(each)]
        exporter = {i: n for n in open_ for i in self.dataflows[n].export_ids}
        for position in open_:
            dataflow = self.dataflows[position]
            bounds = Bounds()
            if dataflow.as_of is not None:
                bounds = Bounds(dataflow.as_of, dataflow.as_of, is_sealed=True)
            inputs = tuple(
                dict.fromkeys(
                    exporter[each]
                    for each in dataflow.index_imports
                    if each in exporter and exporter[each] != position
                )
            )
            self.candidates[position] = Candidate(position, dataflow, inputs, bounds)
        self._order = self._by_dependency()

    def steps(self) -> Iterator[str]:
        """Narrows the bounds step by step, and says after each which it was."""
        self._each(self._inputs_can_be_read)
        self._downstream_lower()
        yield "inputs can be read"
        self._each(self._outputs_skip_nothing)
        self._upstream_upper()
        yield "outputs skip nothing"
        self._each(self._can_begin_at_once)
        self._downstream_upper()
        self._upstream_upper()
        yield "can begin at once"
        self._each(self._keeps_its_policy)
        self._upstream_upper()
        yield "keep their policies"
        self._each(self._is_not_in_the_future)
        self._upstream_upper()
        yield "are not in the future"

    def as_ofs(self) -> tuple[Frontier, ...]:
        """The as-of of each dataflow: the latest that is allowed, empty where nothing is left."""
        for _ in self.steps():
            pass
        return tuple(
            self.candidates[n].bounds.upper if n in self.candidates else EMPTY_FRONTIER
            for n in range(len(self.dataflows))
        )

    def by_dependency(self) -> list[int]:
        """The positions of all dataflows, each after those that it reads."""
        complete = [n for n in range(len(self.dataflows)) if n not in self.candidates]
        return [*complete, *self._order]

    def _by_dependency(self) -> list[int]:
        order: dict[int, None] = {}
        waiting = list(self.candidates)
        while waiting:
            ready = [n for n in waiting if all(i in order for i in self.candidates[n].inputs)]
            if not ready:
                raise FatalError(f"dataflows read each other in a circle: {waiting}")
            order |= dict.fromkeys(ready)
            waiting = [n for n in waiting if n not in order]
        return list(order)

    # The steps

    def _inputs_can_be_read(self, each: Candidate) -> None:
        for source in each.dataflow.source_ids:
            stored = self.stored.get(source)
            if stored is not None and not each.bounds.raise_lower(stored.since):
                self._fail(each, f"begins before {source} can be read", stored.since)

    def _outputs_skip_nothing(self, each: Candidate) -> None:
        for stored, target in self._targets(each.dataflow):
            # Of an output without a readable time nothing was seen; else its last time is kept.
            is_empty = stored.upper <= stored.since
            limit = stored.since if is_empty else Frontier(stored.upper.last_complete())
            if not each.bounds.lower_upper(limit):
                self._fail(each, f"leaves out times of its output {target}", limit)

    def _can_begin_at_once(self, each: Candidate) -> None:
        each.bounds.lower_upper(Frontier(self._stored_upper(each).last_complete()))

    def _keeps_its_policy(self, each: Candidate) -> None:
        policies = [
            self.policies[i.id] for i in each.dataflow.index_exports if i.id in self.policies
        ]
        if not policies:
            return
        inputs = [self.candidates[n].bounds.upper for n in each.inputs]
        upper = min([self._stored_upper(each), *inputs])
        if upper.is_empty:
            upper = Frontier(self.now)
        each.bounds.lower_upper(min(policy.frontier(upper) for policy in policies))

    def _is_not_in_the_future(self, each: Candidate) -> None:
        if each.dataflow.index_exports:
            each.bounds.lower_upper(Frontier(self.now))

    # Propagation, until nothing moves

    def _each(self, step: Callable[[Candidate], None]) -> None:
        for position in self._order:
            step(self.candidates[position])

    def _downstream_lower(self) -> None:
        def step(each: Candidate) -> None:
            for source in each.inputs:
                lower = self.candidates[source].bounds.lower
                if not each.bounds.raise_lower(lower):
                    self._fail(each, "begins before its inputs", lower)

        self._until_still(step)

    def _downstream_upper(self) -> None:
        def step(each: Candidate) -> None:
            for source in each.inputs:
                each.bounds.lower_upper(self.candidates[source].bounds.upper)

        self._until_still(step)

    def _upstream_upper(self) -> None:
        def step(each: Candidate) -> None:
            for source in each.inputs:
                below = self.candidates[source]
                upper = each.bounds.upper
                if not below.bounds.lower_upper(upper):
                    self._fail(below, f"is read by {each.dataflow.name} from before", upper)

        self._until_still(step)

    def _until_still(self, step: Callable[[Candidate], None]) -> None:
        before: list[tuple[Frontier, Frontier]] = []
        while True:
            now = [(c.bounds.lower, c.bounds.upper) for c in self.candidates.values()]
            if now == before:
                return
            before = now
            self._each(step)

    # What is stored

    def _is_complete(self, dataflow: DataflowDescription) -> bool:
        targets = list(self._targets(dataflow))
        return bool(targets) and all(stored.upper.is_empty for stored, _ in targets)

    def _targets(
        self, dataflow: DataflowDescription
    ) -> Iterator[tuple[CollectionFrontiers, GlobalId]]:
        for each in dataflow.sink_exports:
            if isinstance(each, MaterializedViewExport) and each.target in self.stored:
                yield self.stored[each.target], each.target

    def _stored_upper(self, each: Candidate) -> Frontier:
        uppers = [self.stored[i].upper for i in each.dataflow.source_ids if i in self.stored]
        return min(uppers, default=EMPTY_FRONTIER)

    def _fail(self, each: Candidate, reason: str, frontier: Frontier) -> None:
        self.failed.append(FailedConstraint(each.dataflow.export_ids, reason, frontier))
