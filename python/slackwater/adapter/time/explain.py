"""EXPLAIN TIMESTAMP: the text layout and the JSON form.

Source: spec coordinator 2.12, surface section 7.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from slackwater.adapter.time.isolation import Level
from slackwater.adapter.time.selection import (
    Constraint,
    Constraints,
    InputFrontiers,
    TimelineTimestamp,
    TimestampDetermination,
)
from slackwater.repr.frontier import Frontier, Timestamp

TIMELINE = "EpochMilliseconds"
_LABEL_WIDTH = 31
_MAX_IDS = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISOLATION_NAMES = {
    Level.STRICT_SERIALIZABLE: "StrictSerializable",
    Level.STRONG_SESSION_SERIALIZABLE: "StrongSessionSerializable",
    Level.SERIALIZABLE: "Serializable",
    Level.BOUNDED_STALENESS: "BoundedStaleness",
}


@dataclass(frozen=True, slots=True)
class TimestampExplanation:
    """The contents of EXPLAIN TIMESTAMP. `session_wall_time_ms` is the session's clock."""

    determination: TimestampDetermination
    inputs: tuple[InputFrontiers, ...]
    session_wall_time_ms: int


def explain_text(explanation: TimestampExplanation) -> str:
    """The text form: one cell of several lines, without a newline at the end."""
    determination = explanation.determination
    dated = determination.has_timestamp
    lines = [_scalar("query timestamp", format_timestamp(determination.timestamp, dated=dated))]
    if determination.oracle_read_ts is not None:
        shown = format_timestamp(determination.oracle_read_ts, dated=dated)
        lines.append(_scalar("oracle read timestamp", shown))
    largest = determination.largest_not_in_advance_of_upper
    lines += [
        _scalar("largest not in advance of upper", format_timestamp(largest, dated=dated)),
        _frontier("upper", determination.upper, dated=dated),
        _frontier("since", determination.since, dated=dated),
        _scalar("can respond immediately", str(determination.respond_immediately).lower()),
        _scalar("timeline", f"Some({TIMELINE})" if dated else "None"),
        _scalar(
            "session wall time",
            format_timestamp(Timestamp(explanation.session_wall_time_ms), dated=True),
        ),
    ]
    for each in explanation.inputs:
        lines += [
            "",
            f"source {each.name} ({each.id}, {each.kind.value}):",
            _frontier("read frontier", each.since, dated=dated),
            _frontier("write frontier", each.upper, dated=dated),
        ]
    lines += _constraint_lines(determination.constraints, dated=dated)
    return "\n".join(lines)


def explain_json(explanation: TimestampExplanation) -> str:
    """The JSON form. Frontiers are lists of at most one integer."""
    determination = explanation.determination
    document = {
        "determination": {
            "timestamp_context": _context_json(determination),
            "since": determination.since.as_list(),
            "upper": determination.upper.as_list(),
            "largest_not_in_advance_of_upper": determination.largest_not_in_advance_of_upper,
            "oracle_read_ts": determination.oracle_read_ts,
            "session_oracle_read_ts": determination.session_ts,
            "real_time_recency_ts": None,
            "constraints": {
                "lower": [_constraint_json(c) for c in determination.constraints.lower],
                "upper": [_constraint_json(c) for c in determination.constraints.upper],
            },
        },
        "sources": [
            {
                "name": f"{each.name} ({each.id}, {each.kind.value})",
                "read_frontier": each.since.as_list(),
                "write_frontier": each.upper.as_list(),
            }
            for each in explanation.inputs
        ],
        "session_wall_time": explanation.session_wall_time_ms,
        "respond_immediately": determination.respond_immediately,
    }
    return json.dumps(document, indent=2)


def format_timestamp(timestamp: Timestamp, *, dated: bool) -> str:
    """`timestamp` in 13 characters, with its date in UTC where the calendar reaches so far."""
    number = f"{timestamp:>13}"
    if not dated:
        return number
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return number
    return f"{number} ({moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d})"


def _scalar(label: str, value: str) -> str:
    return f"{label:>{_LABEL_WIDTH}}: {value}"


def _frontier(label: str, frontier: Frontier, *, dated: bool) -> str:
    return f"{label:>{_LABEL_WIDTH}}:{_frontier_list(frontier, dated=dated)}"


def _frontier_list(frontier: Frontier, *, dated: bool) -> str:
    shown = [format_timestamp(Timestamp(t), dated=dated) for t in frontier.as_list()]
    return f"[{', '.join(shown)}]"


def _constraint_lines(constraints: Constraints, *, dated: bool) -> list[str]:
    if not constraints.lower and not constraints.upper:
        return []
    lines = ["", "binding constraints:"]
    for title, bounds in (("lower:", constraints.lower), ("upper:", constraints.upper)):
        if bounds:
            lines.append(title)
            lines += _bound_lines(bounds, dated=dated)
    return lines


def _bound_lines(bounds: Sequence[Constraint], *, dated: bool) -> list[str]:
    return [f"  ({reason_text(c)}): {_frontier_list(c.bound, dated=dated)}" for c in bounds]


def reason_text(constraint: Constraint) -> str:
    """The reason of a bound, e.g. ``StorageInput([u1, u2])``; at most ten ids are named."""
    name = constraint.reason.value
    if constraint.isolation is not None:
        return f"{name}({_ISOLATION_NAMES[constraint.isolation.level]})"
    if constraint.ids:
        shown = ", ".join(constraint.ids[:_MAX_IDS])
        more = ", ..." if len(constraint.ids) > _MAX_IDS else ""
        return f"{name}([{shown}{more}])"
    return name


def _constraint_json(constraint: Constraint) -> dict[str, Any]:
    return {"bound": constraint.bound.as_list(), "reason": reason_text(constraint)}


def _context_json(determination: TimestampDetermination) -> Any:
    context = determination.timestamp_context
    if not isinstance(context, TimelineTimestamp):
        return "NoTimestamp"
    return {
        "TimelineTimestamp": {
            "timeline": TIMELINE,
            "chosen_ts": context.chosen_ts,
            "oracle_ts": context.oracle_ts,
        }
    }
