"""Failures of Python in an executor: their causes, and their texts for users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

CONDITION = "PYTHON_EXCEPTION"

_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)')
_WORKER = re.compile(r"[/\\]pyspark[/\\](?:[^/\\]+[/\\])*worker\.py$")
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "MemoryError"})


@dataclass(frozen=True, slots=True)
class Frame:
    """The place of a function in a traceback."""

    file: str
    line: str
    function: str


@dataclass(frozen=True, slots=True)
class PythonFailure:
    """A failure in a traceback: the line of its exception, and the frames that it came through."""

    raised: str
    frames: Sequence[Frame]

    @property
    def is_of_values(self) -> bool:
        """Whether a function failed over its arguments, so that the same ones make it fail again.

        False if the executor's Python lacks a module or memory, and if the worker failed before it
        took rows, as it does when it cannot load a function or is of another version.
        """
        kind = self.raised.partition(":")[0].rpartition(".")[2]
        of_worker = [frame.function for frame in self.frames if _WORKER.search(frame.file)]
        before_rows = "main" in of_worker and "process" not in of_worker
        return kind not in _MISSING and not before_rows

    def __str__(self) -> str:
        """A text such as ``ValueError: too large (line 4 of <stdin>, in scaled)``."""
        if not self.frames:
            return self.raised
        last = self.frames[-1]
        return f"{self.raised} (line {last.line} of {last.file}, in {last.function})"


def failure(traceback: str) -> PythonFailure:
    """The failure in a traceback. Its exception is in the first line after the last frame."""
    raised, frames = None, []
    for line in traceback.strip().splitlines():
        if frame := _FRAME.match(line):
            frames.append(Frame(*frame.groups()))
            raised = None
        elif raised is None and line[:1].strip():
            raised = line.strip()
    return PythonFailure(raised or "an exception", tuple(frames))
