"""Messages that begin with the id of their schema, as Confluent's serializers write them.

Source: docs/decisions 0071; Confluent's wire format.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

_MAGIC = 0
HEADER_BYTES = 5
"""A zero byte, and the id in four."""
ASKED_AGAIN_S = 10.0
"""A registry is asked again for a schema that it did not have so much later."""


def schema_of(message: bytes) -> int:
    """The id of its schema. Raises ValueError for a message that does not begin with one."""
    if len(message) < HEADER_BYTES or message[0] != _MAGIC:
        raise ValueError("it does not begin with a zero byte and the id of a schema")
    return int.from_bytes(message[1:HEADER_BYTES], "big")


@dataclass(slots=True)
class Writers(Generic[T]):
    """The schemas in which messages are written, each asked for when its id is first seen.

    `asked` raises ValueError for a schema that is none, of which the reason is told again for a
    while.
    """

    asked: Callable[[int], T]
    monotonic: Callable[[], float] = time.monotonic
    _known: dict[int, T] = field(init=False, default_factory=dict)
    _missing: dict[int, tuple[float, str]] = field(init=False, default_factory=dict)

    def of(self, schema: int) -> T:
        """The schema with that id. Raises ValueError, and what `asked` raises besides."""
        known = self._known.get(schema)
        if known is None:
            now = self.monotonic()
            until, reason = self._missing.get(schema, (now, ""))
            if now < until:
                raise ValueError(reason)
            try:
                known = self._known[schema] = self.asked(schema)
            except ValueError as error:
                self._missing[schema] = (now + ASKED_AGAIN_S, str(error))
                raise
        return known
