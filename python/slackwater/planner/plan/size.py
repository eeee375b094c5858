"""How large the queries of a plan's ticks get: joins speak of their inputs several times."""

from __future__ import annotations

from slackwater.planner.plan.nodes import Aggregate, Join, Plan, ViewPlan, children


def largest_query(view: ViewPlan) -> int:
    """How often the largest query of a tick reads a collection or a state."""
    roots = [view.root, *(aggregate.input for aggregate in view.aggregates)]
    return max(sum(_reads(root, {})) for root in roots)


def _reads(node: Plan, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How often the node's old side and its delta read a leaf."""
    found = known.get(id(node))
    if found is None:
        below = [] if isinstance(node, Aggregate) else children(node)
        sides = [_reads(child, known) for child in below]
        old, delta = sum(s[0] for s in sides), sum(s[1] for s in sides)
        if isinstance(node, Join):
            # One term for each input; those before the changed one take part old and new.
            count = len(sides)
            delta = sum(s[1] * (count - i) + s[0] * (count - 1) for i, s in enumerate(sides))
        found = known[id(node)] = (old, delta) if sides else (1, 1)
    return found
