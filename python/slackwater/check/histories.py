"""Whether the files of the history, and the log, can be read. Nothing else depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slackwater.adapter.history import recorder
from slackwater.adapter.history.files import damage
from slackwater.adapter.history.levels import named
from slackwater.adapter.history.records import KINDS
from slackwater.adapter.system import dataflow_history, lag_history
from slackwater.check.shards import listed
from slackwater.findings import Finding
from slackwater.persist.blobs import Blobs

_HISTORIES: tuple[tuple[str, Mapping[str, type[Any]]], ...] = (
    (recorder.FOLDER, KINDS),
    (lag_history.FOLDER, lag_history.KINDS),
    (dataflow_history.FOLDER, dataflow_history.KINDS),
)


def history_finding(blobs: Blobs) -> Finding:
    """The finding about the histories. Raises what `Blobs.list` and `damage` raise."""
    count, damaged = 0, []
    for folder, kinds in _HISTORIES:
        for blob in blobs.list(blobs.uri(folder)):
            # Others have been begun by a leader, and not ended.
            if named(blob.uri) is None:
                continue
            count += 1
            if (reason := damage(blobs, blob.uri, kinds)) is not None:
                damaged.append(f"{blob.uri} ({reason})")
    if damaged:
        text = f"files cannot be read: {listed(damaged)}"
        return Finding("history", "warn", text, "they are ignored: what they had is not shown")
    return Finding("history", "ok", f"{count} files")


def log_finding(log: Path) -> Finding | None:
    """The finding about the log; None: there is none on this machine."""
    if not log.exists():
        return None
    try:
        with log.open(encoding="utf-8") as lines:
            # Libraries write there as well, and not in JSON.
            count = sum(1 for _ in lines)
    except (OSError, UnicodeDecodeError) as error:
        return Finding("log", "warn", f"{log} cannot be read: {error}", "look at the file")
    return Finding("log", "ok", f"{log}, {count} lines")
