"""The report: files with what people need who are asked for help, without secrets."""

from __future__ import annotations

import io
import json
import platform
import zipfile
from collections.abc import Iterable, Mapping
from datetime import datetime

from slackwater.console.snapshot import Row, Snapshot
from slackwater.repr.version import VERSION

LEFT_OUT = frozenset({"create_sql", "definition", "sql"})
"""Columns with the literals of users; the forms without them stay."""
LOG_LINES = 2_000


def files(snapshot: Snapshot, log: list[str], metrics: str | None) -> Mapping[str, str]:
    """The contents of the files of a report, by their names."""
    leader, absence = snapshot.leader, snapshot.absence
    about = {
        "console": VERSION,
        "python": platform.python_version(),
        "system": platform.platform(),
        "leader": None if leader is None else leader.version,
        "epoch": None if leader is None else leader.epoch,
        "led_since": None if leader is None else leader.since_ms,
        "at": snapshot.at_ms,
        "absent": None if absence is None else absence.reason,
    }
    found = {
        "about.json": json.dumps(about, indent=1),
        "log/coordinator.jsonl": "\n".join(log[-LOG_LINES:]),
        "failures.jsonl": _lines(
            {"object_id": f.object_id, "condition": f.condition, "since": f.since_ms}
            for f in snapshot.failures
        ),
    }
    for name, rows in sorted(snapshot.tables.items()):
        found[f"relations/{name}.jsonl"] = _lines(rows)
    if metrics is not None:
        found["metrics.txt"] = metrics
    return found


def packed(contents: Mapping[str, str]) -> bytes:
    """The files as a ZIP file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(f"slackwater-report/{name}", text)
    return buffer.getvalue()


def _lines(rows: Iterable[Row]) -> str:
    return "\n".join(json.dumps(_told(row), default=_text) for row in rows)


def _told(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in LEFT_OUT}


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
