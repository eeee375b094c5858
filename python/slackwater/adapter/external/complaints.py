"""The complaints of librdkafka: why it does not succeed, and nothing on standard error."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from slackwater.storage.kafka.access import KafkaAccess

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
