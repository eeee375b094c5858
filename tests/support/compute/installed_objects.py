"""A replica as anybody can observe it, which follows what it is told without computing anything."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.controller.history import ReplicaState
from slackwater.compute.controller.protocol import Peek
from slackwater.compute.controller.reconciliation import Reconciled
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId


@dataclass(slots=True)
class Installed:
    """An export on a replica, as anybody can observe it: its dataflow and where it can be read."""

    dataflow: DataflowDescription
    since: Frontier


@dataclass(slots=True)
class InstalledObjects:
    """The objects of a replica that follows what it is told, without computing anything."""

    exports: dict[GlobalId, Installed] = field(default_factory=dict)
    peeks: dict[str, Peek] = field(default_factory=dict)

    @staticmethod
    def of(state: ReplicaState) -> InstalledObjects:
        """The objects of a replica that was told only what led to the state."""
        found = InstalledObjects(peeks=dict(state.peeks))
        for dataflow in state.dataflows():
            for each in dataflow.export_ids:
                found.exports[each] = Installed(dataflow, state.sinces[each])
        return found

    def carry_out(self, actions: Reconciled) -> None:
        """Does what `reconcile` has found. Raises FatalError for what cannot be done."""
        for peek_id in actions.cancel:
            del self.peeks[peek_id]
        for each in actions.stop:
            del self.exports[each]
        for allowed in actions.keep:
            installed = self.exports[allowed.id]
            if allowed.since < installed.since:
                raise FatalError(f"{allowed.id} has forgotten what is before {installed.since}")
            installed.since = allowed.since
        for dataflow in actions.start:
            for each in dataflow.export_ids:
                if each in self.exports:
                    raise FatalError(f"{each} is created a second time")
                self.exports[each] = Installed(dataflow, actions.state.sinces[each])
        self.peeks |= actions.state.peeks
