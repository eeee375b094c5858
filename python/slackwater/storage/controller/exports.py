"""Exports (sinks): where they begin, what they hold, how far they are.

Source: spec controllers 2.5, M11 to M18.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import MINIMUM_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.read_policy import STEP_BACK, ReadPolicy, advance_by_policy
from slackwater.storage.controller.capabilities import Capabilities
from slackwater.storage.controller.descriptions import ExportDescription, SinkAsOf
from slackwater.storage.controller.errors import StorageError, Variant


@dataclass(frozen=True, slots=True)
class CreateExportToken:
    """Proof that `from_id` is held at `acquired_since` until the export is created or given up.

    It can be used once: to create, or to cancel (trap 7).
    """

    token_id: int
    id: GlobalId
    from_id: GlobalId
    acquired_since: Frontier


@dataclass(slots=True)
class ExportState:
    """A sink. Its hold on the input follows its write frontier by `policy`, one step behind."""

    id: GlobalId
    description: ExportDescription
    as_of: SinkAsOf
    hold: ReadHold
    policy: ReadPolicy = STEP_BACK
    write_frontier: Frontier = MINIMUM_FRONTIER

    @property
    def read_frontier(self) -> Frontier:
        """From where on the sink still needs its input."""
        return Frontier(self.hold.since)


@dataclass(slots=True)
class Exports:
    """The exports, and those that are being prepared. Not thread-safe.

    It does not guarantee that a sink runs, nor that what it reports is on disk.
    """

    capabilities: Capabilities
    states: dict[GlobalId, ExportState] = field(default_factory=dict)
    _prepared: dict[int, tuple[CreateExportToken, ReadHold]] = field(default_factory=dict)
    _next_token: int = 1

    def get(self, global_id: GlobalId) -> ExportState:
        """The export (M11, M12). Raises IDENTIFIER_MISSING."""
        state = self.states.get(global_id)
        if state is None:
            raise StorageError(Variant.IDENTIFIER_MISSING, [global_id])
        return state

    def prepare(self, global_id: GlobalId, from_id: GlobalId) -> CreateExportToken:
        """Holds the input from its since on, while the as-of of the export is chosen (M14).

        Deviates from spec M14: the hold is at the effective since, so that every time that anybody
        can still read may be chosen. Raises SINK_ID_REUSED, IDENTIFIER_MISSING.
        """
        if global_id in self.states:
            raise StorageError(Variant.SINK_ID_REUSED, [global_id])
        hold = self.capabilities.acquire([from_id], Holder(HoldKind.SINK, global_id))
        token = CreateExportToken(self._next_token, global_id, from_id, Frontier(hold.since))
        self._next_token += 1
        self._prepared[token.token_id] = (token, hold)
        return token

    def cancel(self, token: CreateExportToken) -> None:
        """Gives up what was prepared (M15). A token that was used has no effect."""
        prepared = self._prepared.pop(token.token_id, None)
        if prepared is not None:
            self.capabilities.holds.release(prepared[1])

    def check(self, token: CreateExportToken, description: ExportDescription) -> None:
        """Raises SINK_ID_REUSED, and INVALID_USAGE for a used token or another input."""
        if token.id in self.states:
            raise StorageError(Variant.SINK_ID_REUSED, [token.id])
        if token.token_id not in self._prepared:
            raise StorageError(Variant.INVALID_USAGE, [token.id], "the token was used before")
        if description.from_id != token.from_id:
            raise StorageError(Variant.INVALID_USAGE, [token.id], "prepared for another input")

    def create(self, token: CreateExportToken, description: ExportDescription) -> ExportState:
        """Takes over the token's hold."""
        _, hold = self._prepared.pop(token.token_id)
        first = SinkAsOf(description.as_of, strict=not description.with_snapshot)
        state = ExportState(token.id, description, first.downgraded(token.acquired_since), hold)
        self.states[token.id] = state
        return state

    def alter(self, state: ExportState, description: ExportDescription) -> None:
        """Goes on with the new input where the sink is. Raises READ_BEFORE_SINCE.

        It needs the new input's contents just before its write frontier.
        """
        if description.instance != state.description.instance:
            raise StorageError(Variant.INVALID_USAGE, [state.id], "it runs on another instance")
        source = self.capabilities.live(description.from_id)
        if source.since >= state.write_frontier:
            raise StorageError(Variant.READ_BEFORE_SINCE, [source.id])
        behind = max(source.since, STEP_BACK.frontier(state.write_frontier))
        holder = Holder(HoldKind.SINK, state.id)
        hold = self.capabilities.acquire([source.id], holder, Timestamp(behind.value))
        self.capabilities.holds.release(state.hold)
        state.hold = hold
        state.description = description
        state.as_of = SinkAsOf(behind, strict=True)

    def report(self, state: ExportState, frontier: Frontier) -> None:
        """The sink has written everything before `frontier`."""
        state.write_frontier = max(state.write_frontier, frontier)
        self.follow(state)

    def follow(self, state: ExportState) -> None:
        """Moves the sink's hold to where its policy says."""
        wanted = advance_by_policy(state.read_frontier, state.policy, state.write_frontier)
        state.hold = self.capabilities.holds.downgrade(state.hold, wanted)

    def validate(self) -> None:
        """Raises FatalError unless each export, and each that is prepared, has its hold (I23)."""
        held = {hold.hold_id: hold for hold in self.capabilities.holds}
        owned = {state.id: state.hold for state in self.states.values()}
        owned |= {token.id: hold for token, hold in self._prepared.values()}
        for global_id, hold in owned.items():
            if held.get(hold.hold_id) != hold:
                raise FatalError(f"the export {global_id} does not have the hold {hold}")

    def drop(self, state: ExportState) -> None:
        """Gives up the export and what it holds."""
        self.capabilities.holds.release(state.hold)
        del self.states[state.id]
