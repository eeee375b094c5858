"""Plans of dataflows: from the text of a query to the program that maintains it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from slackwater.compute.definitions import Definition
from slackwater.compute.engine import Engine, KeptPlan, ViewPlan
from slackwater.planner.delta.lowering import NotMaintained, index_of, program_of
from slackwater.planner.plan.algebra import AnalyzedPlan
from slackwater.repr.errors import SlackwaterError, unsupported
from slackwater.repr.ids import GlobalId

Settings = Mapping[str, str] | None


class Planner:
    """Plans queries, whose expressions the driver keeps until it is told to forget. Thread-safe.

    A plan that was made while an object was defined can be left for the replica that maintains it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._ahead: dict[GlobalId, tuple[Definition, ViewPlan]] = {}

    def plan(self, name: str, definition: Definition, settings: Settings) -> ViewPlan:
        """The plan. Raises Spark's errors, and SLACKWATER_UNSUPPORTED for what no index can keep.

        `name` is for messages.
        """
        engine = self._engine.under(settings)
        kept = engine.plan(
            definition.query,
            definition.catalog,
            definition.namespace,
            definition.known,
            definition.indexed,
        )
        try:
            if not definition.keys:
                return view_plan(kept)
            return index_plan(kept, definition.keys)
        except NotMaintained as missing:
            if not definition.keys:
                return ViewPlan(kept, None, missing.reason)
            engine.forget_plan(kept.plan_id)
            raise _no_index(name, kept.plan, missing) from None

    def leave(self, global_id: GlobalId, definition: Definition, plan: ViewPlan) -> None:
        """Leaves the plan for the first who takes it."""
        with self._lock:
            self._ahead[global_id] = (definition, plan)

    def take(self, global_id: GlobalId, definition: Definition) -> ViewPlan | None:
        """The plan of that definition that was left; None: another, or none was."""
        with self._lock:
            found = self._ahead.get(global_id)
            if found is None or found[0].query != definition.query:
                return None
            del self._ahead[global_id]
            return found[1]

    def forget(self, global_id: GlobalId, settings: Settings) -> None:
        """Gives back a plan that was left, and that nobody has taken."""
        with self._lock:
            found = self._ahead.pop(global_id, None)
        if found is not None:
            self.give_back(found[1], settings)

    def give_back(self, plan: ViewPlan, settings: Settings) -> None:
        """The driver may drop what it keeps of the plan."""
        self._engine.under(settings).forget_plan(plan.kept.plan_id)


def view_plan(kept: KeptPlan) -> ViewPlan:
    """The plan with the programs of a view. Raises NotMaintained."""
    alone = program_of(kept.plan)
    program = program_of(kept.plan, serves=True)
    return ViewPlan(kept, program, alone=None if program == alone else alone)


def index_plan(kept: KeptPlan, keys: int) -> ViewPlan:
    """The plan with the programs of an index. Raises NotMaintained."""
    alone = index_of(kept.plan, keys)
    program = index_of(kept.plan, keys, serves=True)
    return ViewPlan(kept, program, alone=None if program == alone else alone)


def _no_index(name: str, plan: AnalyzedPlan, missing: NotMaintained) -> SlackwaterError:
    if plan.selects:
        return unsupported(
            f"The index {name} on a view with {missing.reason}",
            advice="Create a materialized view with the same query, and an index on that.",
        )
    return unsupported(
        f"The index {name} with {missing.reason}",
        advice="Use columns, or expressions of the rows alone, as keys.",
    )
