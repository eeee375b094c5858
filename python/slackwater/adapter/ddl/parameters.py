"""Changes of the parameters of the system: ALTER SYSTEM, and what the file of parameters says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slackwater.adapter.catalog.ops import SetParameter
from slackwater.adapter.controllers.parameters import ParameterFile, SystemParameters
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.parameters import checked, parameter


@dataclass(frozen=True, slots=True)
class ParameterDefinitions:
    """Changes parameters, one change at a time, durably first.

    `carried_out` has the replica of this process do what its controllers tell it; it is called with
    the catalog's lock held. `file` is looked at by `read_file`.
    """

    changes: Changes
    parameters: SystemParameters
    carried_out: Callable[[], None]
    file: ParameterFile | None

    def alter_system(self, execution: Execution, statement: st.AlterSystem) -> None:
        """ALTER SYSTEM SET and RESET. When it returns, the change is durable and has an effect.

        Raises SLACKWATER_UNKNOWN_VARIABLE, SLACKWATER_INVALID_VARIABLE,
        SLACKWATER_READ_ONLY_VARIABLE and SLACKWATER_UNSUPPORTED for a variable of sessions alone.
        """
        named = None if statement.name is None else parameter(statement.name)
        value = None
        if named is not None and statement.value is not None:
            value = checked(named.name, statement.value)
        with self.changes.defining(execution.cancellation):
            altered = self.changes.state.parameters
            names = list(altered) if named is None else [named.name]
            ops = [SetParameter(each, value) for each in names]
            if any(altered.get(each) != value for each in names):
                self.changes.commit(ops, execution.user)
            self.parameters.alter(self.changes.state.parameters)
            self.carried_out()
        if named is not None and named.of_sessions:
            execution.session.notify(
                f"The variable {named.name} of this session stays: new sessions begin with the "
                "parameter."
            )

    def read_file(self) -> None:
        """Looks whether the file of parameters has changed, and goes by it."""
        found = None if self.file is None else self.file.look()
        if found is not None:
            with self.changes.lock:
                self.parameters.load(found)
                self.carried_out()
