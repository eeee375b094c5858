"""A server of SSH in this process, which forwards connections. It is asyncssh's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import asyncssh

USER = "tunnel"


class SshServer:
    """It lets in who has one of the keys in `authorized`, which may change while it runs.

    It stops and starts at the same port. `reached` are the hosts and ports that were asked for,
    `offered` the public keys that clients have shown, and `resolve` the addresses of names that
    nobody else knows.
    """

    def __init__(self, authorized: Sequence[str] = (), kind: str = "ssh-ed25519") -> None:
        self.authorized = list(authorized)
        self.reached: list[tuple[str, int]] = []
        self.offered: list[str] = []
        self._logins = 0
        self.resolve: dict[str, str] = {}
        self.port = 0
        self.host_keys = [asyncssh.generate_private_key(kind)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: list[asyncssh.SSHServerConnection] = []

    @property
    def host_key(self) -> str:
        """The public key that it shows."""
        return plain(self.host_keys[0].export_public_key().decode())

    @property
    def options(self) -> str:
        """The options of a connection to it."""
        return f"HOST '127.0.0.1', PORT {self.port}, USER '{USER}'"

    @property
    def logins(self) -> int:
        """How many clients have logged in. A client knows it a moment before this is counted."""
        return self._run(self._counted())

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return self._run(self._open())

    def start(self) -> None:
        self._acceptor = self._run(self._listen())
        self.port = self._acceptor.get_port()

    def stop(self) -> None:
        """Closes the port, and all that goes through it."""
        self._run(self._close())

    def renew(self) -> None:
        """Shows another key from its next start on."""
        self.host_keys = [asyncssh.generate_private_key("ssh-ed25519")]

    def close(self) -> None:
        """Ends it for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, made):
        return asyncio.run_coroutine_threadsafe(made, self._loop).result()

    async def _counted(self) -> int:
        return self._logins

    async def _open(self) -> int:
        return sum(not each.is_closed() for each in self._connections)

    async def _listen(self) -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_factory=lambda: _Login(self),
            server_host_keys=self.host_keys,
            reuse_address=True,
        )

    async def _close(self) -> None:
        if self._acceptor is not None:
            self._acceptor.close()
            await self._acceptor.wait_closed()
            self._acceptor = None
        for each in self._connections:
            each.abort()
        self._connections.clear()

    def joined(self, connection: asyncssh.SSHServerConnection) -> None:
        self._connections.append(connection)

    def logged_in(self) -> None:
        self._logins += 1


class _Login(asyncssh.SSHServer):
    """The login of a client, and what it asks for."""

    def __init__(self, server: SshServer) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.joined(conn)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        shown = plain(key.export_public_key().decode())
        self._server.offered.append(shown)
        return username == USER and shown in map(plain, self._server.authorized)

    def auth_completed(self) -> None:
        self._server.logged_in()

    def connection_requested(self, dest_host: str, dest_port: int, *_: object) -> object:
        self._server.reached.append((dest_host, dest_port))
        place = self._server.resolve.get(dest_host, dest_host)
        return self._connection.forward_connection(place, dest_port)


def plain(key: str) -> str:
    """A public key without its comment."""
    return " ".join(key.split()[:2])


@contextmanager
def running_ssh_server(authorized: Sequence[str] = ()) -> Iterator[SshServer]:
    """A server that ends with the block."""
    server = SshServer(authorized)
    server.start()
    try:
        yield server
    finally:
        server.close()
