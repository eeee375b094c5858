"""The lines of the coordinator's log, which are JSON objects, as people read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

_OWN = ("timestamp", "level", "event")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line: its time, level and event, and everything else that it says."""

    at: str
    level: str
    event: str
    rest: str


def latest(texts: Iterable[str], query: str, limit: int) -> tuple[LogLine, ...]:
    """At most `limit` lines that have `query` in them, in any case; the latest first."""
    wanted = query.casefold()
    found = [text for text in texts if text.strip() and wanted in text.casefold()]
    return tuple(_line(text) for text in reversed(found[-limit:]))


def _line(text: str) -> LogLine:
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return LogLine("", "", "", text.strip())
    at, level, event = (str(said.pop(name, "")) for name in _OWN)
    return LogLine(at, level, event, " ".join(f"{name}={value}" for name, value in said.items()))
