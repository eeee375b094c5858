"""Schema registries, tried by one request over HTTP."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from slackwater.adapter.external.trials.reaching import SILENT, reached, receive, send
from slackwater.adapter.external.trials.steps import Deadline, Step, StepFailed, Target
from slackwater.storage.access import RegistryAccess

_PORTS = {"http": 80, "https": 443}
_LOGIN_S = 4.0
_STATUS = re.compile(rb"HTTP/[0-9.]+ ([0-9]{3})[^\r\n]*\r?\n")
_HEAD = 65536


def validate(access: RegistryAccess, deadline: Deadline) -> None:
    """Tries all steps. Raises `StepFailed`."""
    target = target_of(access)
    path = f"{urlsplit(access.url).path.rstrip('/')}/subjects"
    with reached(
        target, access.tls, deadline.earlier(_LOGIN_S), tunnel=access.tunnel
    ) as connection:
        try:
            send(connection, request(target, path, access), deadline)
            status = _status(connection, deadline)
        except OSError as error:
            # With TLS 1.3 a server refuses a client's certificate when the handshake is over.
            reason = SILENT if isinstance(error, TimeoutError) else "it closed the connection"
            raise StepFailed("login", target.address, reason) from None
    failed = failure(status)
    if failed is not None:
        step, reason = failed
        raise StepFailed(step, target.address, reason)


def target_of(access: RegistryAccess) -> Target:
    """The host and the port of the registry."""
    parts = urlsplit(access.url)
    return Target(parts.hostname or "", parts.port or _PORTS[parts.scheme.lower()])


def authorization(access: RegistryAccess) -> Mapping[str, str]:
    """The headers that say who asks."""
    if access.username is None:
        return {}
    pair = f"{access.username}:{access.password or ''}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def request(target: Target, path: str, access: RegistryAccess) -> bytes:
    """The request for the names of all subjects."""
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.address}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in authorization(access).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def failure(status: int | None) -> tuple[Step, str] | None:
    """The step that an answer with that status says has failed; None status: it was no HTTP."""
    match status:
        case None:
            return "login", "it does not answer as an HTTP server does"
        case 401 | 407:
            return "login", f"it refuses the user (HTTP {status})"
        case 403:
            return "permission", f"the user may not see its subjects (HTTP {status})"
        case _ if 200 <= status < 300:
            return None
        case _:
            return "login", f"it does not answer as a schema registry does (HTTP {status})"


def _status(connection: socket.socket, deadline: Deadline) -> int | None:
    """The status of the answer. Raises OSError, also at the deadline."""
    head = b""
    while b"\n" not in head and len(head) < _HEAD:
        more = receive(connection, _HEAD, deadline)
        if not more:
            break
        head += more
    found = _STATUS.match(head)
    return None if found is None else int(found[1])
