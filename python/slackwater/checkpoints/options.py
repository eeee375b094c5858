"""The options of a group. Source: spec checkpoint 2.2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The ways in which a group follows its store.

    It refreshes when it is woken and every `poll_ms`, and prunes every `prune_ms`. `lookahead` is
    the limit of `limit_lookahead`. `is_streaming`: the store wakes it when others change the group.
    """

    lookahead: int | None = None
    is_streaming: bool = True
    poll_ms: int = 1_000
    prune_ms: int = 60_000


Option = Callable[[GroupSettings], GroupSettings]
"""A choice for `Checkpoints.start`."""


def limit_lookahead(checkpoints: int) -> Option:
    """Proposes at most so many checkpoints of each partition after the last applied one.

    So the bounds stay narrow, and so does what is done in one step. Where nothing of a partition is
    applied it is one more. Raises ValueError unless it is greater than zero.
    """
    if checkpoints <= 0:
        raise ValueError(f"lookahead must be greater than zero, not {checkpoints}")
    return lambda settings: replace(settings, lookahead=checkpoints)


def disable_stream() -> Option:
    """Lets the group hear of changes by others only when it polls."""
    return lambda settings: replace(settings, is_streaming=False)


def poll_every(interval_ms: int) -> Option:
    """Polls for changes by others at this interval. Raises ValueError unless it is positive."""
    checked = _positive(interval_ms)
    return lambda settings: replace(settings, poll_ms=checked)


def prune_every(interval_ms: int) -> Option:
    """Prunes superfluous checkpoints at this interval. Raises ValueError unless it is positive."""
    checked = _positive(interval_ms)
    return lambda settings: replace(settings, prune_ms=checked)


def _positive(interval_ms: int) -> int:
    if interval_ms <= 0:
        raise ValueError(f"an interval must be at least 1 ms, not {interval_ms}")
    return interval_ms
