"""Changes of the parameters of the system: ALTER SYSTEM, and what the file of parameters says."""

from __future__ import annotations

from collections.abc import Callable

from slackwater.adapter.catalog.ops import SetParameter
from slackwater.adapter.controllers.parameters import ParameterFile, SystemParameters
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.parameters import checked, parameter


class ParameterDefinitions:
    """Changes parameters, one change at a time, durably first.

    `carried_out` has the replica of this process do what its controllers tell it; it is called with
    the catalog's lock held. `file` is looked at by `read_file`.
    """

    def __init__(
        self,
        changes: Changes,
        parameters: SystemParameters,
        carried_out: Callable[[], None],
        file: ParameterFile | None,
    ) -> None:
        self._changes = changes
        self._parameters = parameters
        self._carried_out = carried_out
        self._file = file

    def alter_system(self, execution: Execution, statement: st.AlterSystem) -> None:
        """ALTER SYSTEM SET and RESET. When it returns, the change is durable and has an effect.

        Raises SLACKWATER_UNKNOWN_VARIABLE, SLACKWATER_INVALID_VARIABLE,
        SLACKWATER_READ_ONLY_VARIABLE and SLACKWATER_UNSUPPORTED for a variable of sessions alone.
        """
        named = None if statement.name is None else parameter(statement.name)
        value = None
        if named is not None and statement.value is not None:
            value = checked(named.name, statement.value)
        with self._changes.defining(execution.cancellation):
            altered = self._changes.state.parameters
            names = list(altered) if named is None else [named.name]
            ops = [SetParameter(each, value) for each in names]
            if any(altered.get(each) != value for each in names):
                self._changes.commit(ops, execution.user)
            self._parameters.alter(self._changes.state.parameters)
            self._carried_out()
        if named is not None and named.of_sessions:
            execution.session.notify(
                f"The variable {named.name} of this session stays: new sessions begin with the "
                "parameter."
            )

    def read_file(self) -> None:
        """Looks whether the file of parameters has changed, and goes by it."""
        found = None if self._file is None else self._file.look()
        if found is not None:
            with self._changes.lock:
                self._parameters.load(found)
                self._carried_out()
