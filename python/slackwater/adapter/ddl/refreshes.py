"""Refresh options of a statement as a schedule, and the first refresh of a new view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from slackwater.planner.parser.refresh import format_time
from slackwater.planner.parser.statements import Refresh, RefreshAt, RefreshAtCreation, RefreshEach
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule


def aligned(options: Iterable[Refresh], now: Timestamp) -> tuple[Refresh, ...]:
    """The options, of which none depends on the time of the creation but REFRESH AT CREATION."""
    return tuple(
        replace(each, aligned_to_ms=now)
        if isinstance(each, RefreshEach) and each.aligned_to_ms is None
        else each
        for each in options
    )


def schedule_of(options: Iterable[Refresh], now: Timestamp) -> RefreshSchedule | None:
    """The schedule of a view that is created at `now`; None: it follows each commit."""
    every: list[RefreshEvery] = []
    at: list[Timestamp] = []
    for each in aligned(options, now):
        match each:
            case RefreshEach(interval_ms, aligned_to_ms):
                aligned_to = now if aligned_to_ms is None else Timestamp(aligned_to_ms)
                every.append(RefreshEvery(interval_ms, aligned_to))
            case RefreshAt(time_ms):
                at.append(Timestamp(time_ms))
            case RefreshAtCreation():
                at.append(now)
    if not every and not at:
        return None
    return RefreshSchedule(tuple(every), tuple(sorted(set(at))))


def first_time(
    name: str, schedule: RefreshSchedule | None, now: Timestamp, since: Timestamp
) -> Timestamp:
    """The time at which the contents of a new view begin, over inputs that are held at `since`.

    A view without a schedule begins at `now`, or where its inputs do if that is later. One with a
    schedule begins with its first refresh from then on, or with an earlier one that REFRESH AT
    names. Raises SLACKWATER_REFRESH_TOO_EARLY when the inputs cannot be read any more at such a
    time, or cannot be read yet.
    """
    begin = max(now, since)
    if schedule is None:
        return begin
    named = min(schedule.at, default=begin)
    if named < since:
        raise user_error(
            "SLACKWATER_REFRESH_TOO_EARLY",
            objectName=name,
            timestamp=format_time(named),
            since=format_time(since),
        )
    first = schedule.at_or_after(min(begin, named))
    if first is None:
        raise user_error(
            "SLACKWATER_REFRESH_TOO_EARLY",
            objectName=name,
            timestamp=format_time(named),
            since=format_time(begin),
        )
    return first
