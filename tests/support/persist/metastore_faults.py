"""A metastore that goes away in the middle of a commit, on command."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

from slackwater.persist.metastore import RetryPolicy


class _Gone(Exception):
    pass


def gone(statement: str) -> OperationalError:
    """What the driver raises when the metastore does not answer."""
    return OperationalError(statement, {}, _Gone("gone"), connection_invalidated=True)


def lose_commit(conn: Connection, *, landed: bool) -> OperationalError:
    """Lets the commit happen or not, and the connection be lost; what the driver then raises."""
    driver = conn.connection.driver_connection
    # What is closed while a cursor is open goes on holding its locks.
    driver.commit() if landed else driver.rollback()
    driver.close()
    return gone("COMMIT")


class Outage:
    """Loses the answer of a commit and refuses all transactions for a while after.

    `strike` arms it for the next commit of a write; `landed` says whether that one happens. The
    metastore is back after `retry_policy` has run out once. `lost` counts what was lost.
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

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(monotonic=lambda: self._now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        self._now += 1.0

    def _commit(self, conn) -> None:
        if self._armed is None or conn.get_execution_options()["slackwater_read_only"]:
            return
        landed, self._armed = self._armed, None
        self.lost += 1
        self._away, self._began = True, self._now
        raise lose_commit(conn, landed=landed)

    def _begin(self, conn) -> None:
        if not self._away:
            return
        if self._now - self._began >= 10:
            self._away = False
        raise gone("BEGIN")
