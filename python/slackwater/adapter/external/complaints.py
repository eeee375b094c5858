"""The complaints of librdkafka: why it does not succeed, and nothing on standard error."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from slackwater.repr.errors import SlackwaterError
from slackwater.storage.kafka.access import KafkaAccess

LOOK_S = 0.05
ANSWER_S = 10.0
"""The most that a broker may take to answer a question."""
DOWN_S = 2.0
"""The wait when none of the brokers can be connected to."""

QUIET = logging.getLogger("slackwater.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


@dataclass(slots=True)
class Complaints:
    """The complaints of librdkafka since something last succeeded."""

    access: KafkaAccess
    said: str | None = None
    is_down: bool = False

    def heard(self, error: Any) -> None:
        """Of several causes the first is the most precise: the last says that all have failed."""
        if error.name() == "_ALL_BROKERS_DOWN":
            self.is_down = True
        elif self.said is None or error.name() in ("_AUTHENTICATION", "_SSL"):
            self.said = self.access.scrubbed(error.str())

    def cleared(self) -> None:
        self.said, self.is_down = None, False

    def is_lost(self, began: float) -> bool:
        """Whether what began then, by the monotonic clock, has no broker that it could reach."""
        return self.is_down and time.monotonic() - began > DOWN_S

    def answer(self, admin: Any, future: Any, unreachable: Callable[[str], SlackwaterError]) -> Any:
        """The answer of a broker that `admin` has asked: the result of `future`, or what it raises.

        librdkafka says why there is none only to who polls meanwhile. Raises `unreachable` of its
        reason when no broker can be connected to.
        """
        began = time.monotonic()
        while not wait([future], LOOK_S).done:
            admin.poll(0)
            if self.is_lost(began):
                raise unreachable(self.said or "no broker answers")
        found = future.result()
        self.cleared()
        return found
