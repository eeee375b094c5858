"""A coordinator whose views DuckDB computes, without troubles, at times that a test chooses."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.engine import SimulatedEngine
from tests.support.adapter.coordination import Place

from slackwater.persist.blobs import LocalBlobs


class Calm:
    """The hazards of a world in which nothing happens."""

    def boundary(self, name: str) -> None:
        """A step is about to be done."""

    def work(self) -> None:
        """Something is computed."""

    def strikes(self, trouble: str, *, often: bool = False) -> bool:
        """Whether the trouble comes now."""
        return False


class CalmPlace(Place):
    """An environment whose clock shows `now_ms`, which a test moves on.

    Each start has an engine of its own, as each process has.
    """

    def __init__(self, env, now_ms: int, **options) -> None:
        self.now_ms = now_ms
        super().__init__(env, clock=lambda: self.now_ms, **options)
        # Tables follow the clock soon after it was moved on.
        self.sql("ALTER SYSTEM SET default_timestamp_interval = '20 milliseconds'")

    def start(self) -> None:
        self._options["spark"] = SimulatedEngine(Calm(), LocalBlobs(Path(self._env.location)))
        super().start()

    def passes(self, ms: int) -> None:
        """Lets time pass, and tells tables so."""
        self.now_ms += ms
        self.wait(lambda: self.env.persist.reads.tables_upper() > self.now_ms)
