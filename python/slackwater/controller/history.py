"""The commands of an instance, kept for replicas to come. Source: spec controllers 2.7, I38."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from slackwater.repr.errors import FatalError

Command = TypeVar("Command")


class CommandHistory(Generic[Command]):
    """The commands of one instance, at most twice as many as after the last reduction, plus one."""

    def __init__(self, reduction: Callable[[Sequence[Command]], Sequence[Command]]) -> None:
        """`reduction` leaves out the commands that later ones make superfluous."""
        self.commands: list[Command] = []
        self.reduced_length = 0
        """The number of commands after the last reduction."""
        self._reduction = reduction

    def push(self, command: Command) -> None:
        """Remembers a command, and forgets what it makes superfluous when there is much of it."""
        self.commands.append(command)
        if len(self.commands) > 2 * self.reduced_length:
            self.reduce()

    def reduce(self) -> None:
        """Forgets the commands that later ones make superfluous."""
        self.commands = list(self._reduction(self.commands))
        self.reduced_length = len(self.commands)

    def validate(self) -> None:
        """Raises FatalError unless the history is as short as it promises (I38)."""
        if len(self.commands) > 2 * self.reduced_length + 1:
            raise FatalError(f"a history of {len(self.commands)} commands is not reduced")
