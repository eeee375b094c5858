"""PostgreSQL, tried by a connection of psycopg."""

from __future__ import annotations

import re
import socket
from contextlib import suppress

from slackwater.adapter.external import libraries
from slackwater.adapter.external.postgres import connection_options
from slackwater.adapter.external.trials.reaching import TlsRefused, reached, receive, send
from slackwater.adapter.external.trials.steps import Deadline, Step, StepFailed, Target
from slackwater.repr.errors import first_line
from slackwater.storage.access import PostgresAccess

_SSL_REQUEST = bytes((0, 0, 0, 8, 4, 210, 22, 47))
_LOGIN_S = 4.0
_LEAST_S = 2
"""libpq takes no shorter limit for connecting."""
_SAID = re.compile(r"(?:FATAL|ERROR|PANIC):\s+(.*)")


def validate(access: PostgresAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING."""
    library = libraries.psycopg()
    target = Target(access.host, access.port)
    address: str | None = None
    with (
        reached(
            target, access.tls, deadline.earlier(_LOGIN_S), _ask_for_tls, access.tunnel
        ) as connection,
        suppress(OSError),
    ):
        address = connection.getpeername()[0]
    timeout_s = max(_LEAST_S, int(deadline.left))
    try:
        with connection_options(access, address, timeout_s) as options:
            library.connect(**options, connect_timeout=timeout_s).close()
    except library.Error as error:
        reason = said(str(error))
        raise StepFailed(step_of(reason), target.address, reason) from None


def said(text: str) -> str:
    """The words of the server, without those that libpq puts around them."""
    found = _SAID.search(text)
    return found[1].strip() if found else first_line(text).rpartition(" failed: ")[2]


def step_of(reason: str) -> Step:
    """The step that failed when the server said that. libpq gives no SQLSTATE then."""
    return "permission" if "permission denied" in reason else "login"


def _ask_for_tls(connection: socket.socket, deadline: Deadline) -> None:
    """Asks in clear text for TLS, as the protocol wants it. Raises `TlsRefused`, and OSError."""
    send(connection, _SSL_REQUEST, deadline)
    match receive(connection, 1, deadline):
        case b"S":
            return
        case b"N":
            raise TlsRefused("the server has no TLS")
        case b"":
            raise TlsRefused("it closed the connection")
        case _:
            raise TlsRefused("it does not answer as PostgreSQL does")
