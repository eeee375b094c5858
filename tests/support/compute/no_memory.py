"""An engine in whose driver there is no room for what programs look up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slackwater.compute.engine import Engine, KeptPlan, ProgramOwner, ReplicaShare, TickProgram
from slackwater.planner.delta.program import Program
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp


class WithoutMemory:
    """As `engine`, but no program is resident."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def under(self, settings: Mapping[str, str] | None) -> WithoutMemory:
        return WithoutMemory(self._engine.under(settings))

    def on_replica(self, share: ReplicaShare) -> WithoutMemory:
        return WithoutMemory(self._engine.on_replica(share))

    def open_program(
        self,
        kept: KeptPlan,
        program: Program,
        owner: ProgramOwner,
        as_of: Timestamp,
        resident: bool,
    ) -> TickProgram:
        if resident:
            sizes = {"wanted": "1", "used": "1", "limit": "1"}
            raise user_error("SLACKWATER_INDEX_MEMORY", objectName=owner.name, **sizes)
        return self._engine.open_program(kept, program, owner, as_of, resident)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)
