"""Connections to PostgreSQL that do not wait for ever for a server that hangs.

The kernel of a host answers for a process that is stopped, so neither keepalives nor limits of TCP
notice it; and a socket in a folder has none of them. So each exchange with the server has a limit
of silence here. A connection on which it was reached is closed: whatever was under way on it may
have happened or not, as with any connection that breaks.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Engine, event


def limit_silence(engine: Engine, silence_ms: int) -> None:
    """Lets each exchange of the engine's connections fail after `silence_ms` without a word."""

    # psycopg waits in this method, whatever is sent, and offers no other place for a limit.
    class Limited(psycopg.Connection[Any]):
        def wait(self, gen: PQGen[Any], *more: Any, **options: Any) -> Any:
            return super().wait(_within(self, gen, silence_ms), *more, **options)

    def connection(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        return Limited.connect(*arguments, **options)

    event.listen(engine, "do_connect", connection)


def _within(connection: psycopg.Connection[Any], gen: PQGen[Any], silence_ms: int) -> PQGen[Any]:
    """`gen`, which ends the connection when it is not resumed by data for `silence_ms`."""
    heard = time.monotonic()
    try:
        asked = next(gen)
        while True:
            ready = yield asked
            if ready:
                heard = time.monotonic()
            elif (time.monotonic() - heard) * 1000 >= silence_ms:
                connection.pgconn.finish()
                raise psycopg.OperationalError(f"the server was silent for {silence_ms / 1000:g} s")
            asked = gen.send(ready)
    except StopIteration as end:
        return end.value
