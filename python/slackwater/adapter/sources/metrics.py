"""The metrics of checkpoint groups and changefeeds, as Prometheus reads them.

The names are those of CockroachDB Replicator behind ``slackwater_``; the label ``schema`` is the
full name of the source. Source: spec checkpoint 2.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from slackwater.repr.hlc import Time

CONTENT_TYPE = CONTENT_TYPE_LATEST
_LABEL = ("schema",)
_WHICH = ("committed", "proposed")
_NANOS = 10**9

Timed = Literal["advance", "commit", "refresh"]


class Metrics:
    """The metrics of one leader. Thread-safe."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._durations = {
            what: Histogram(
                f"slackwater_checkpoint_{what}_duration_seconds",
                f"How long the {what} of a checkpoint group took.",
                _LABEL,
                registry=self._registry,
            )
            for what in ("advance", "commit", "refresh")
        }
        self._times = {
            (which, what): Gauge(
                f"slackwater_checkpoint_{which}_{what}_seconds",
                text,
                _LABEL,
                registry=self._registry,
            )
            for which in _WHICH
            for what, text in (
                ("age", f"How far the time that is {which} is behind the clock."),
                ("time", f"The time that is {which}, since the epoch."),
            )
        }
        self._backwards = Counter(
            "slackwater_checkpoint_proposed_going_backwards_errors",
            "Resolved times that were refused, because the feed had resolved a later one.",
            _LABEL,
            registry=self._registry,
        )
        self._landed = Counter(
            "slackwater_changefeed_landed_rows",
            "Changes of rows that landed.",
            _LABEL,
            registry=self._registry,
        )

    @contextmanager
    def timed(self, what: Timed, schema: str) -> Iterator[None]:
        """Observes the time that its block takes."""
        with self._durations[what].labels(schema).time():
            yield

    def went_backwards(self, schema: str) -> None:
        """Counts a resolved timestamp that was refused."""
        self._backwards.labels(schema).inc()

    def landed(self, schema: str, rows: int) -> None:
        """Counts changes that have landed."""
        self._landed.labels(schema).inc(rows)

    def reached(self, places: Mapping[str, tuple[Time, Time]], now_ms: int) -> None:
        """Records the committed and the proposed time of each group, by full name of the source.

        `now_ms` is the wall clock time from which their ages count. Other groups are removed.
        """
        for gauge in self._times.values():
            # Of a group that is gone, or has another name, nothing stays.
            gauge.clear()
        for schema, moments in places.items():
            for which, moment in zip(_WHICH, moments, strict=True):
                seconds = moment.nanos / _NANOS
                self._times[which, "time"].labels(schema).set(seconds)
                self._times[which, "age"].labels(schema).set(max(0.0, now_ms / 1000 - seconds))

    def text(self) -> bytes:
        """All of them, in the format of Prometheus."""
        return generate_latest(self._registry)
