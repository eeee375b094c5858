"""What Spark tells of Python that failed in an executor: what it comes of, and how to say it."""

from __future__ import annotations

import re

CONDITION = "PYTHON_EXCEPTION"

_FRAME = re.compile(r'  File "(.+)", line (\d+), in (.+)')
_WORKER = re.compile(r"[/\\]pyspark[/\\](?:[^/\\]+[/\\])*worker\.py$")
_MISSING = frozenset({"ImportError", "ModuleNotFoundError", "MemoryError"})


def is_of_values(traceback: str) -> bool:
    """Whether a function failed over its arguments, so that the same ones make it fail again.

    Not so where the executor's Python lacks a module or memory, and where the worker failed before
    it took rows, as it does when it cannot load a function or is of another version.
    """
    kind = _raised(traceback).partition(":")[0].rpartition(".")[2]
    frames = [found for line in traceback.splitlines() if (found := _FRAME.match(line))]
    of_worker = [frame[3] for frame in frames if _WORKER.search(frame[1])]
    before_rows = "main" in of_worker and "process" not in of_worker
    return kind not in _MISSING and not before_rows


def in_a_line(traceback: str) -> str:
    """What was raised, and where: ``ValueError: too large (line 4 of <stdin>, in scaled)``."""
    frames = [found for line in traceback.splitlines() if (found := _FRAME.match(line))]
    if not frames:
        return _raised(traceback)
    file, line, function = frames[-1].groups()
    return f"{_raised(traceback)} (line {line} of {file}, in {function})"


def _raised(traceback: str) -> str:
    """The line after the last frame: type and message of the exception."""
    lines = traceback.strip().splitlines()
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    after = lines[frames[-1] + 1 :] if frames else lines
    return next((line.strip() for line in after if line[:1].strip()), "an exception")
