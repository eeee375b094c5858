"""A metastore that goes away in the middle of a commit, on command."""

from __future__ import annotations

from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from slackwater.persist.metastore import Patience


class _Gone(Exception):
    pass


class Outage:
    """Loses the answer of a commit and refuses all transactions for a while after.

    `strike` arms it for the next commit of a write; `landed` says whether that one happens. The
    metastore is back after `patience` has run out once. `lost` counts what was lost.
    """

    def __init__(self, engine: Engine) -> None:
        self.lost = 0
        self._armed: bool | None = None
        self._away = False
        self._now = self._began = 0.0
        event.listen(engine, "commit", self._commit)
        event.listen(engine, "begin", self._begin)

    def strike(self, *, landed: bool) -> None:
        self._armed = landed

    def patience(self) -> Patience:
        return Patience(monotonic=lambda: self._now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self._now += 1.0

    def _commit(self, conn) -> None:
        if self._armed is None or conn.get_execution_options()["slackwater_read_only"]:
            return
        landed, self._armed = self._armed, None
        if landed:
            conn.connection.driver_connection.commit()
        conn.connection.driver_connection.close()
        self.lost += 1
        self._away, self._began = True, self._now
        raise OperationalError("COMMIT", {}, _Gone("lost"), connection_invalidated=True)

    def _begin(self, conn) -> None:
        if not self._away:
            return
        if self._now - self._began >= 10:
            self._away = False
        raise OperationalError("BEGIN", {}, _Gone("away"), connection_invalidated=True)
