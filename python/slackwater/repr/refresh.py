"""Refresh schedules: the times at which a view takes over what its query gives.

A view with a schedule changes at these times only. Between two of them its contents stay, and are
known to stay, so its upper is always the next refresh. Source: surface 4, spec controllers 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.repr.frontier import EMPTY_FRONTIER, TIMESTAMP_MAX, Frontier, Timestamp


@dataclass(frozen=True, slots=True)
class RefreshEvery:
    """Refreshes at ``aligned_to + k * interval_ms`` for each whole k, before `aligned_to` too.

    The interval is positive (ValueError).
    """

    interval_ms: int
    aligned_to: Timestamp

    def __post_init__(self) -> None:
        if self.interval_ms <= 0:
            raise ValueError(f"{self.interval_ms} ms is no interval")

    def at_or_after(self, time: Timestamp) -> Timestamp | None:
        """The first refresh that is not before `time`; None: it is beyond the last time."""
        found = time + (self.aligned_to - time) % self.interval_ms
        return Timestamp(found) if found < TIMESTAMP_MAX else None

    def before(self, time: Timestamp) -> Timestamp | None:
        """The last refresh before `time`; None: there is none from 0 on."""
        found = time - 1 - (time - 1 - self.aligned_to) % self.interval_ms
        return Timestamp(found) if found >= 0 else None


@dataclass(frozen=True, slots=True)
class RefreshSchedule:
    """The times at which a view is refreshed: those of all of `every`, and those of `at`.

    Let f be the first refresh of the view, where its contents begin. For each time t from f on::

        contents of the view at t  =  its query over the inputs at r, where mz_now() is r
        r                          =  the last refresh that is not after t

    and before f it cannot be read. Where the inputs are complete before u::

        upper of the view  =  the first refresh that is not before u, or f if that is later

    or the empty frontier if there is no such refresh: the contents are final then.

    Not guaranteed: that a refresh is computed at its time. It is computed when the inputs are
    complete there, and reads at and after that time wait until then. A schedule without a time
    cannot be made (ValueError).
    """

    every: tuple[RefreshEvery, ...] = ()
    at: tuple[Timestamp, ...] = ()

    def __post_init__(self) -> None:
        if not self.every and not self.at:
            raise ValueError("a schedule has a time")

    def at_or_after(self, time: Timestamp) -> Timestamp | None:
        """The first refresh that is not before `time`; None: all are before."""
        found = [each.at_or_after(time) for each in self.every]
        found += [each for each in self.at if each >= time]
        return min((each for each in found if each is not None), default=None)

    def before(self, time: Timestamp) -> Timestamp | None:
        """The last refresh before `time`; None: there is none."""
        found = [each.before(time) for each in self.every]
        found += [each for each in self.at if each < time]
        return max((each for each in found if each is not None), default=None)

    def upper(self, complete: Frontier) -> Frontier:
        """The upper of a view that has begun, and whose inputs are complete before `complete`."""
        if complete.is_empty:
            return EMPTY_FRONTIER
        found = self.at_or_after(Timestamp(complete.value))
        return EMPTY_FRONTIER if found is None else Frontier(found)
