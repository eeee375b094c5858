"""What the driver of a test's application answers."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass

from tests.support.waiting import PATIENCE


class SqlError(Exception):
    """A statement failed. `condition` and `sqlstate` are what the front end reported."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.kind = error["type"]
        self.condition = error["condition"]
        self.sqlstate = error["sqlstate"]
        self.message = error["message"]


class Gone(Exception):
    """The application's process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Result:
    """Rows as lists of JSON values; `ms` is how long the driver took."""

    columns: tuple[str, ...]
    rows: list
    ms: float


class Pending:
    """An answer that is under way."""

    def __init__(self):
        self._answers = queue.Queue()
        self._come = threading.Event()

    def put(self, answer):
        self._answers.put(answer)
        self._come.set()

    @property
    def is_done(self):
        """Whether there is an answer, also after it was taken."""
        return self._come.is_set()

    def result(self, timeout_s=PATIENCE):
        """The result. Raises SqlError, Gone, or TimeoutError."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s} s") from None
        if answer is None:
            raise Gone("the application ended")
        if "error" in answer:
            raise SqlError(answer["error"])
        return Result(tuple(answer.get("columns", ())), answer.get("rows", []), answer.get("ms", 0))
