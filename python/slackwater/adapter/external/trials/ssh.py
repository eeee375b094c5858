"""Servers of SSH: reached, and logged in to. The client is asyncssh.

Nothing of the user who runs the process counts: neither files of `~/.ssh` nor an agent.

Source: docs/decisions 0082; RFC 4253.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from slackwater.adapter.external import libraries
from slackwater.adapter.external.trials.reaching import SILENT, reached
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.storage.access import SshAccess

KEEPALIVE_S = 5
_UNANSWERED = 2
"""So many questions whether the server is alive may have no answer."""
_ALGORITHMS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_REFUSED = (
    "it takes neither key: its user's authorized_keys needs a public key of"
    " mz_catalog.mz_ssh_tunnel_connections"
)


def new_pair(comment: str) -> tuple[str, str]:
    """A private key and its public key, both in the form of OpenSSH.

    Raises SLACKWATER_CONNECTOR_MISSING.
    """
    made = libraries.asyncssh().generate_private_key("ssh-ed25519", comment=comment)
    return made.export_private_key().decode(), made.export_public_key().decode().strip()


def validate(access: SshAccess, deadline: Deadline) -> None:
    """Tries the name, TCP, the host key and the login.

    Raises `StepFailed`, and SLACKWATER_CONNECTOR_MISSING.
    """
    library = libraries.asyncssh()
    connection = reach(access, deadline)

    async def tried() -> str:
        client, shown = await logged_in(library, access, connection, deadline)
        client.abort()
        return shown

    keep(access, asyncio.run(tried()))


def target_of(access: SshAccess) -> Target:
    """The host and the port of the server."""
    return Target(access.host, access.port)


def reach(access: SshAccess, deadline: Deadline) -> socket.socket:
    """A connection to the server, at which nothing was said yet. Raises `StepFailed`."""
    return reached(target_of(access), None, deadline.share(2))


def keep(access: SshAccess, shown: str) -> None:
    """Keeps the key that a server has shown first. Raises `StepFailed` for another one."""
    if access.host_key is None:
        kept = access.keep(shown)
        if kept != shown:
            raise _other_key(access, shown, kept)


async def logged_in(
    library: Any, access: SshAccess, connection: socket.socket, deadline: Deadline
) -> tuple[Any, str]:
    """A client of the server, and the key that the server has shown, without its comment.

    It takes over the connection, also when it fails. Raises `StepFailed`.
    """
    library.set_log_level(logging.WARNING)
    shown: list[str] = []
    failed: list[StepFailed] = []

    class Client(library.SSHClient):  # type: ignore[misc]
        """The client's side of the handshake, as asyncssh asks for it."""

        def validate_host_public_key(self, host: str, addr: str, port: int, key: Any) -> bool:
            shown.append(_text(key))
            if access.host_key is None or _plain(access.host_key) == shown[-1]:
                return True
            failed.append(_other_key(access, shown[-1], access.host_key))
            return False

    address = target_of(access).address
    connection.setblocking(False)
    try:
        handshake = library.run_client(
            connection,
            config=None,
            client_factory=Client,
            known_hosts=([], [], []),
            server_host_key_algs=_algorithms(access.host_key),
            username=access.user,
            client_keys=[library.import_private_key(each) for each in access.keys],
            agent_path=None,
            preferred_auth=["publickey"],
            gss_host=None,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=_UNANSWERED,
            login_timeout=0,
        )
        client = await asyncio.wait_for(handshake, deadline.left)
    except BaseException as error:
        # The transport of asyncssh has closed the connection.
        if failed:
            raise failed[0] from None
        reason = _reason(library, error)
        if reason is None:
            raise
        raise StepFailed("login" if shown else "host key", address, reason) from None
    return client, shown[-1]


def _reason(library: Any, error: BaseException) -> str | None:
    """The reason of a failed handshake, in words; None: it is no failure of the handshake."""
    match error:
        case asyncio.TimeoutError():
            return SILENT
        case library.PermissionDenied():
            return _REFUSED
        case library.ConnectionLost() | ConnectionError():
            return "it closed the connection"
        case library.DisconnectError():
            return str(error.reason)
        case OSError():
            return error.strerror or str(error)
        case _:
            return None


def _text(key: Any) -> str:
    exported: bytes = key.export_public_key("openssh")
    return _plain(exported.decode())


def _plain(text: str) -> str:
    """A public key without its comment."""
    return " ".join(text.split()[:2])


def _algorithms(host_key: str | None) -> list[str]:
    """The ways to prove a key: a server of several has to show the one that is known."""
    if host_key is None:
        return list(_ALGORITHMS)
    kind = host_key.split()[0]
    return list(_RSA) if kind == "ssh-rsa" else [kind]


def _other_key(access: SshAccess, shown: str, wanted: str) -> StepFailed:
    known = "that HOST KEY says" if access.is_pinned else "that was seen first"
    return StepFailed(
        "host key",
        target_of(access).address,
        f"it shows the key {shown}, which is not the one {known}: {_plain(wanted)}."
        " Somebody may be between. If the server has another key now:"
        f" ALTER CONNECTION {access.name} SET (HOST KEY = '...'), or RESET (HOST KEY), after which"
        " the next one that is seen counts",
    )
