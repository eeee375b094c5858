"""PostgreSQL, connected to by psycopg."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slackwater.adapter.external import libraries
from slackwater.adapter.external.files import CertificateFiles, certificate_files
from slackwater.adapter.external.reaching import TlsRefused, reached, receive, send
from slackwater.adapter.external.steps import Deadline, Step, StepFailed, Target
from slackwater.repr.errors import first_line
from slackwater.storage.access import PostgresAccess

_SSL_REQUEST = bytes((0, 0, 0, 8, 4, 210, 22, 47))
_LOGIN_S = 4.0
_LEAST_S = 2
"""libpq takes no shorter limit for connecting."""
_NOWHERE = "/dev/null/none"
"""A file that cannot be: with an empty path libpq takes that of the user."""
_SAID = re.compile(r"(?:FATAL|ERROR|PANIC):\s+(.*)")


def validate(access: PostgresAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING."""
    library = libraries.psycopg()
    target = Target(access.host, access.port)
    reached(target, access.tls, deadline.earlier(_LOGIN_S), _ask_for_tls).close()
    timeout_s = max(_LEAST_S, int(deadline.left))
    try:
        with connection_options(access) as options:
            library.connect(**options, connect_timeout=timeout_s).close()
    except library.Error as error:
        reason = said(str(error))
        raise StepFailed(step_of(reason), target.address, reason) from None


@contextmanager
def connection_options(access: PostgresAccess) -> Iterator[dict[str, Any]]:
    """The options of libpq for a connection that is made inside of the block.

    Nothing else counts: no file of the user and no variable of the process.
    """
    options: dict[str, Any] = {
        "host": access.host,
        "port": access.port,
        "dbname": access.database,
        "user": access.user,
        "password": access.password or "",
        "passfile": _NOWHERE,
        "sslmode": access.ssl_mode.replace("_", "-"),
        "gssencmode": "disable",
        "application_name": "slackwater",
    }
    if access.tls is None:
        yield options
        return
    with certificate_files(access.tls) as files:
        yield {**options, **_certificates(files)}


def _certificates(files: CertificateFiles) -> dict[str, str]:
    return {
        "sslrootcert": files.authority or _NOWHERE,
        "sslcert": files.certificate or _NOWHERE,
        "sslkey": files.key or _NOWHERE,
    }


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
