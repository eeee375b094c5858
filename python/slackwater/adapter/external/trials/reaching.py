"""The first three steps to any system: the name, TCP and TLS, by Python's own sockets.

Every wait ends at the deadline. A name is resolved in a thread, since a resolver cannot be
interrupted: one that does not answer keeps that thread, and nothing else, until it gives up.
"""

from __future__ import annotations

import queue
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence

from slackwater.adapter.external.files import certificate_files
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.storage.access import Tls, Tunnel

Address = tuple[socket.AddressFamily, tuple[object, ...]]
BeforeTls = Callable[[socket.socket, Deadline], None]
"""Talks in clear text before TLS begins. Raises `TlsRefused`, and OSError."""

LOOPBACK = "127.0.0.1"
SILENT = "it does not answer"
_CHUNK = 4096


class TlsRefused(Exception):
    """The server does not begin TLS, and says why."""


def reached(
    target: Target,
    tls: Tls | None,
    deadline: Deadline,
    before_tls: BeforeTls | None = None,
    tunnel: Tunnel | None = None,
) -> socket.socket:
    """A connection to the target, maybe through a tunnel, which the caller closes.

    Whichever way it goes, TLS checks the name of the target. Raises `StepFailed`, and
    SLACKWATER_CONNECTOR_MISSING for a tunnel.
    """
    if tunnel is None:
        connection = _connected(target, _resolved(target, deadline), deadline)
    else:
        connection = _tunnelled(target, tunnel, deadline)
    if tls is None:
        return connection
    try:
        if before_tls is not None:
            before_tls(connection, deadline)
        return _secured(connection, target.host, tls, deadline)
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError | ValueError | TlsRefused):
            raise StepFailed("TLS", target.address, tls_reason(error)) from None
        raise


def reach_one(targets: Sequence[Target], tls: Tls | None, deadline: Deadline) -> Target:
    """The first of the targets that can be reached; each has its share of the time.

    Raises the `StepFailed` of the first one.
    """
    failures: list[StepFailed] = []
    for position, target in enumerate(targets):
        try:
            reached(target, tls, deadline.share(len(targets) - position)).close()
        except StepFailed as failed:
            failures.append(failed)
        else:
            return target
    raise failures[0]


def receive(connection: socket.socket, most: int, deadline: Deadline) -> bytes:
    """At most `most` bytes, as soon as there are some; none: the other side has closed.

    Raises TimeoutError at the deadline, and OSError.
    """
    while True:
        connection.settimeout(_left(deadline))
        try:
            return connection.recv(min(most, _CHUNK))
        except ssl.SSLWantReadError:
            continue


def send(connection: socket.socket, data: bytes, deadline: Deadline) -> None:
    """Sends all of it. Raises TimeoutError at the deadline, and OSError."""
    connection.settimeout(_left(deadline))
    connection.sendall(data)


def tls_reason(error: Exception) -> str:
    """The reason of a failed TLS handshake, in words."""
    match error:
        case TlsRefused():
            return str(error)
        case TimeoutError():
            return SILENT
        case ssl.SSLCertVerificationError(verify_message=message) if message:
            return f"its certificate is refused: {message}"
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionError():
            return "it closed the connection"
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "HTTP_REQUEST" | "UNEXPECTED_MESSAGE"):
            return "it does not speak TLS there"
        case ssl.SSLError(reason=str(reason)):
            return reason.replace("_", " ").lower()
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error)


def _left(deadline: Deadline) -> float:
    left = deadline.left
    if left <= 0:
        raise TimeoutError
    return left


def _resolved(target: Target, deadline: Deadline) -> list[Address]:
    answers: queue.SimpleQueue[list[Address] | Exception] = queue.SimpleQueue()

    def resolve() -> None:
        try:
            found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            answers.put([(family, address) for family, _, _, _, address in found])
        except (OSError, ValueError) as error:
            answers.put(error)

    threading.Thread(target=resolve, name="resolver", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline.left)
    except queue.Empty:
        raise StepFailed("name", target.host, "the resolver does not answer") from None
    match answer:
        case socket.gaierror(strerror=str(text)):
            raise StepFailed("name", target.host, text)
        case Exception():
            raise StepFailed("name", target.host, "it is no name of a host")
        case _:
            return answer


def _connected(target: Target, addresses: Sequence[Address], deadline: Deadline) -> socket.socket:
    failed = StepFailed("TCP", target.address, SILENT)
    for position, (family, address) in enumerate(addresses):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(_left(deadline.share(len(addresses) - position)))
            connection.connect(address)
        except OSError as error:
            connection.close()
            reason = SILENT if isinstance(error, TimeoutError) else error.strerror or str(error)
            failed = StepFailed("TCP", target.address, reason)
        else:
            return connection
    raise failed


def _tunnelled(target: Target, tunnel: Tunnel, deadline: Deadline) -> socket.socket:
    with tunnel.forwarded(target.host, target.port, deadline.left) as way:
        connection = _connected(target, [(socket.AF_INET, (LOOPBACK, way.port))], deadline)
        try:
            way.check(deadline.left)
        except BaseException:
            connection.close()
            raise
    return connection


def _secured(connection: socket.socket, host: str, tls: Tls, deadline: Deadline) -> ssl.SSLSocket:
    secured = context_of(tls).wrap_socket(
        connection, server_hostname=host, do_handshake_on_connect=False
    )
    try:
        secured.setblocking(False)
        while True:
            try:
                secured.do_handshake()
                return secured
            except ssl.SSLWantReadError:
                _await(([secured], [], []), deadline)
            except ssl.SSLWantWriteError:
                _await(([], [secured], []), deadline)
    except BaseException:
        secured.close()
        raise


def _await(
    sockets: tuple[list[ssl.SSLSocket], list[ssl.SSLSocket], list[ssl.SSLSocket]],
    deadline: Deadline,
) -> None:
    if not any(select.select(*sockets, _left(deadline))):
        raise TimeoutError


def context_of(tls: Tls) -> ssl.SSLContext:
    """The settings of a client. Raises ValueError for certificates and keys that are none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.is_verified and tls.names_host
    context.verify_mode = ssl.CERT_REQUIRED if tls.is_verified else ssl.CERT_NONE
    if tls.authority is not None:
        _trust(context, tls.authority)
    elif tls.is_verified:
        context.load_default_certs()
    if tls.certificate is not None:
        with certificate_files(tls) as files:
            # Without a function for passwords, OpenSSL would ask for one at the terminal.
            try:
                context.load_cert_chain(str(files.certificate), files.key, lambda: "")
            except (OSError, ValueError):
                reason = "SSL CERTIFICATE and SSL KEY are no pair in PEM, without a passphrase"
                raise ValueError(reason) from None
    return context


def _trust(context: ssl.SSLContext, authority: str) -> None:
    try:
        context.load_verify_locations(cadata=authority)
    except (OSError, ValueError):
        raise ValueError("SSL CERTIFICATE AUTHORITY is no certificate in PEM") from None
