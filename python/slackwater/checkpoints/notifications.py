"""Changes of groups by LISTEN and NOTIFY of PostgreSQL. Source: spec checkpoint 2.5."""

from __future__ import annotations

import selectors
import socket
import uuid
from collections.abc import Callable
from contextlib import closing
from threading import Event, Lock, Thread
from typing import Any

import psycopg
import structlog
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from slackwater.checkpoints.listeners import GroupListeners
from slackwater.checkpoints.store import GroupSubscription

CHANNEL = "slackwater_checkpoints"
RETRY_MS = 5_000
"""Milliseconds before a broken connection is replaced by another one."""

_log = structlog.get_logger("checkpoint")


class PostgresNotifications:
    """Wakes the listeners of a group that another process has changed.

    A thread with a connection of its own follows, from the first `listen` on. When the connection
    breaks it makes another one, and then wakes everybody, because something may have been missed.
    """

    def __init__(self, engine: Engine, *, retry_ms: int = RETRY_MS) -> None:
        self.listeners = GroupListeners()
        self._engine = engine
        self._retry_ms = retry_ms
        self._id = uuid.uuid4().hex
        self._lock = Lock()
        self._thread: Thread | None = None
        self._closed = Event()
        self._end, self._ended = socket.socketpair()

    def told(self, group: str) -> Callable[[Connection], None]:
        """The step that tells others of a change of the group, with the commit."""

        def step(conn: Connection) -> None:
            conn.execute(select(func.pg_notify(CHANNEL, f"{self._id} {group}")))

        return step

    def listen(self, group: str, wake: Callable[[], None]) -> GroupSubscription:
        """Calls `wake` as `Store.listen` promises, and whenever a connection begins to listen."""
        subscription = self.listeners.add(group, wake)
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = Thread(target=self._run, name=CHANNEL, daemon=True)
                self._thread.start()
        return subscription

    def close(self) -> None:
        """Ends the thread and its connection."""
        with self._lock:
            self._closed.set()
            self._end.close()
            if self._thread is not None:
                self._thread.join()
            self._ended.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with closing(self._connect()) as connection:
                    connection.autocommit = True
                    connection.execute(f"LISTEN {CHANNEL}")
                    self.listeners.tell_all()
                    self._follow(connection)
            except (psycopg.Error, SQLAlchemyError) as error:
                _log.warning("notifications_lost", error=str(error), retry_ms=self._retry_ms)
                self._closed.wait(self._retry_ms / 1000)

    def _connect(self) -> psycopg.Connection[Any]:
        pooled = self._engine.raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert isinstance(connection, psycopg.Connection)
        return connection

    def _follow(self, connection: psycopg.Connection[Any]) -> None:
        """Follows notifications until this is closed. Raises what psycopg raises on a break."""
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while not any(key.fileobj is self._ended for key, _ in selector.select()):
                for notification in connection.notifies(timeout=0):
                    sender, _, group = notification.payload.partition(" ")
                    if sender != self._id:
                        self.listeners.tell(group)
