"""The way into a Kafka cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.storage.access import scrubbed


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The settings of a client by librdkafka's names, with the values of secrets.

    `version` is another one after each change of the connection or of one of its secrets: who has
    a client of an earlier version connects anew.
    """

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)
