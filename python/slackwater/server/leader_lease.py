"""The lease of the leader of this process: its renewal, and whether it still counts.

The leader stops answering before anybody can take its lease. It counts from the moment before it
sent the last renewal that succeeded; a candidate counts from a moment after it has read it. When
the metastore is back and the lease was not taken, the same epoch goes on: nobody else has led.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from slackwater.persist.leadership import Fenced, give_up, renew
from slackwater.persist.metastore import RetryPolicy
from slackwater.repr.errors import SlackwaterError, user_error

RENEWALS = 3
"""The number of renewals within the length of a lease."""
DRIFT = 10
"""The leader's own limit is shorter than the lease by one part in `DRIFT`, as clocks differ."""
WAIT_MS = 10_000
"""Milliseconds that a call waits for a lease that has run out, as for a metastore that is away."""

_log = structlog.get_logger("lease")


def running_ms() -> int:
    """A monotonic clock in milliseconds; it counts sleep of the machine where the system does."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class LeaderLease:
    """Renews the lease of `epoch` in a thread of its own, from `start` to `stop`. Thread-safe.

    `engine` should be its own: renewing must wait for no other user of the metastore.
    `acquired_ms` is a time of `clock_ms` before the lease was taken. `on_lost` is called once, when
    another application leads; `on_renewed` at the start and with each renewal, with the
    milliseconds for which the lease counts from then on.
    """

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        lease_ms: int,
        *,
        acquired_ms: int,
        on_lost: Callable[[str], None],
        on_renewed: Callable[[int], None] = lambda _: None,
        clock_ms: Callable[[], int] = running_ms,
    ) -> None:
        self._engine = engine
        self._epoch = epoch
        self._lease_ms = lease_ms
        self._on_lost = on_lost
        self._on_renewed = on_renewed
        self._clock_ms = clock_ms
        self._changed = threading.Condition()
        self._renewed_ms = acquired_ms
        self._lost: Fenced | None = None
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        self._on_renewed(self._left_ms())
        self._thread.start()

    def stop(self) -> None:
        """Ends the renewals, without waiting. The lease stays until it runs out or is given up."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def give_up(self) -> None:
        """Gives the lease up in the metastore, if it can be reached: others may lead at once."""
        self._thread.join()
        try:
            give_up(self._engine, self._epoch, retry_policy=self._retry_policy())
        except (SlackwaterError, SQLAlchemyError) as error:
            _log.warning("lease not given up", error=str(error))

    def confirm(self, wait_ms: int = WAIT_MS) -> None:
        """Returns while nobody else can lead.

        Waits for a lease that has run out and may still be renewed. Raises `Fenced` when another
        application leads, SLACKWATER_METASTORE_UNAVAILABLE after `wait_ms`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lost or self._counts(), wait_ms / 1000)
            if self._lost is not None:
                raise self._lost
            if self._counts():
                return
            silent_ms = self._clock_ms() - self._renewed_ms
        raise user_error(
            "SLACKWATER_METASTORE_UNAVAILABLE",
            seconds=f"{silent_ms / 1000:.0f}",
            reason="the lease of the leader could not be renewed",
        )

    def _counts(self) -> bool:
        return self._left_ms() > 0

    def _left_ms(self) -> int:
        limit_ms = self._lease_ms - self._lease_ms // DRIFT
        return limit_ms - (self._clock_ms() - self._renewed_ms)

    def _retry_policy(self) -> RetryPolicy:
        return RetryPolicy(wait_ms=self._lease_ms // (2 * RENEWALS))

    def _run(self) -> None:
        pause_ms = self._lease_ms // RENEWALS
        while not self._is_over(pause_ms):
            pause_ms = self._beat()

    def _is_over(self, pause_ms: int) -> bool:
        with self._changed:
            over: bool = self._changed.wait_for(lambda: self._ending, pause_ms / 1000)
            return over or self._lost is not None

    def _beat(self) -> int:
        """Renews the lease once; returns the milliseconds until the next renewal."""
        began_ms = self._clock_ms()
        try:
            renew(self._engine, self._epoch, retry_policy=self._retry_policy())
        except Fenced as fenced:
            with self._changed:
                self._lost = fenced
                self._changed.notify_all()
            self._on_lost(str(fenced))
            return 0
        except (SlackwaterError, SQLAlchemyError) as error:
            _log.warning("lease not renewed", error=str(error))
            return self._lease_ms // (4 * RENEWALS)
        with self._changed:
            self._renewed_ms = began_ms
            self._on_renewed(self._left_ms())
            self._changed.notify_all()
        return self._lease_ms // RENEWALS
