"""Tunnels through servers of SSH: ports of 127.0.0.1 from which connections go on from there.

One thread has the event loop of all. A server has one connection, which those who go through it
share; it ends when nobody has used it for a while, when another version of its access is used, and
when nothing comes over it any more.

Source: docs/decisions 0082; RFC 4254, "TCP/IP Port Forwarding".
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as WaitedTooLong
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from slackwater.adapter.external import libraries
from slackwater.adapter.external.trials import ssh
from slackwater.adapter.external.trials.reaching import LOOPBACK, SILENT
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.storage.access import SshAccess

T = TypeVar("T")
IDLE_S = 30.0
OPEN_S = 10.0
"""The most that a server may take to reach the other side."""
_CHUNK = 65536
_END_S = 1.0
_TURNS = 4
_ENDED = "the coordinator ends"


@dataclass(slots=True)
class _Server:
    """A connection to a server. `users` are open ports and streams; the loop's thread counts."""

    client: Any
    version: str
    users: int = 0
    idle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        self.users += 1
        if self.idle is not None:
            self.idle.cancel()
            self.idle = None

    def end(self, after_s: float) -> None:
        """One use less. The last one ends the connection so many seconds later."""
        self.users -= 1
        if self.users == 0:
            self.idle = asyncio.get_running_loop().call_later(after_s, self.client.abort)


@dataclass(slots=True)
class _Ways:
    """The way to one server: whoever wants it waits for who makes it."""

    making: threading.Lock = field(default_factory=threading.Lock)
    server: _Server | None = None


class ForwardedPort:
    """A port that is open now. See `slackwater.storage.access.Forwarded`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._outcome: Future[None] = Future()
        self.port = 0

    def check(self, seconds: float) -> None:
        try:
            self._outcome.result(seconds)
        except WaitedTooLong:
            raise StepFailed("TCP", self._address, SILENT) from None

    @property
    def failure(self) -> Exception | None:
        if not self._outcome.done():
            return None
        failed = self._outcome.exception()
        return failed if isinstance(failed, Exception) else None

    def came(self, failure: str | None) -> None:
        """A connection has reached the other side, or why it has not. The first one counts."""
        if self._outcome.done():
            return
        if failure is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(StepFailed("TCP", self._address, failure))


@dataclass(frozen=True, slots=True)
class SshTunnel:
    """A tunnel as an access has it. See `slackwater.storage.access.Tunnel`."""

    tunnels: Tunnels = field(repr=False, compare=False)
    access: SshAccess

    @contextmanager
    def forwarded(self, host: str, port: int, seconds: float) -> Iterator[ForwardedPort]:
        """Raises `StepFailed` and SLACKWATER_CONNECTOR_MISSING."""
        with self.tunnels.forwarded(self.access, Target(host, port), seconds) as way:
            yield way


class Tunnels:
    """The tunnels of a coordinator. Thread-safe."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        """A server that nobody uses is left after `idle_s`."""
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._ways: dict[str, _Ways] = {}
        self._servers: list[_Server] = []
        self._listeners: set[asyncio.Server] = set()

    def through(self, access: SshAccess) -> SshTunnel:
        """The tunnel through that server."""
        return SshTunnel(self, access)

    @contextmanager
    def forwarded(
        self, access: SshAccess, target: Target, seconds: float
    ) -> Iterator[ForwardedPort]:
        """A port for as long as the block runs. What was connected to it stays connected.

        Raises `StepFailed` of the server, and SLACKWATER_CONNECTOR_MISSING.
        """
        deadline = Deadline.after(seconds)
        server = self._server(access, deadline)
        tunnel = ssh.target_of(access).address
        way = ForwardedPort(f"{target.address} through the SSH tunnel {tunnel}")
        listener: asyncio.Server | None = None
        try:
            listener = self._run(self._listen(access, server, target, way), deadline, tunnel)
            yield way
        finally:
            # At the end of all there is no loop any more.
            with suppress(RuntimeError, StepFailed):
                self._running().call_soon_threadsafe(self._unlisten, access, server, listener)

    def close(self) -> None:
        """Ends all tunnels, and the thread."""
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            servers = tuple(self._servers)
            self._ways.clear()
            self._loop = None
        if loop is None or thread is None:
            return

        async def end() -> None:
            for listener in self._listeners:
                listener.close()
            for each in servers:
                each.client.abort()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            if tasks:
                # What goes through them ends with them.
                _, left = await asyncio.wait(tasks, timeout=_END_S)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
            for each in servers:
                await each.client.wait_closed()
            # Sockets close in turns after that: asyncssh's, then asyncio's.
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            loop.stop()

        asyncio.run_coroutine_threadsafe(end(), loop)
        thread.join()
        loop.close()

    def _server(self, access: SshAccess, deadline: Deadline) -> _Server:
        """The connection to the server, which may have to be made. The caller ends its use."""
        library = libraries.asyncssh()
        with self._lock:
            ways = self._ways.setdefault(access.connection, _Ways())
        address = f"the SSH tunnel {ssh.target_of(access).address}"
        if not ways.making.acquire(timeout=deadline.left):
            raise StepFailed("login", address, SILENT)
        try:
            known = ways.server
            if known is not None:
                is_same = known.version == access.version
                if is_same and self._run(_begun(known), deadline, address):
                    return known
                self._running().call_soon_threadsafe(_retire, known)
                ways.server = None
            self._running()
            try:
                connection = ssh.reach(access, deadline)
                made = ssh.logged_in(library, access, connection, deadline)
                client, shown = self._run(made, deadline, address)
                try:
                    ssh.keep(access, shown)
                except BaseException:
                    self._running().call_soon_threadsafe(client.abort)
                    raise
            except StepFailed as failed:
                at = f"the SSH tunnel {failed.address.removeprefix('the SSH tunnel ')}"
                raise StepFailed(failed.step, at, failed.reason) from None
            made_server = _Server(client, access.version, users=1)
            with self._lock:
                open_ones = [each for each in self._servers if not each.client.is_closed()]
                self._servers = [*open_ones, made_server]
            ways.server = made_server
            return made_server
        finally:
            ways.making.release()

    def _end(self, access: SshAccess, server: _Server) -> None:
        """One use of the server less, which is left at once if there is a newer one."""
        ways = self._ways.get(access.connection)
        server.end(self._idle_s if ways is not None and ways.server is server else 0)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise StepFailed("login", "the SSH tunnel", _ENDED)
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="ssh-tunnels", daemon=True
                )
                self._thread.start()
            return self._loop

    def _run(self, made: Coroutine[Any, Any, T], deadline: Deadline, address: str) -> T:
        try:
            running = asyncio.run_coroutine_threadsafe(made, self._running())
        except BaseException:
            made.close()
            raise
        try:
            return running.result(deadline.left + 1)
        except WaitedTooLong:
            running.cancel()
            raise StepFailed("login", address, SILENT) from None
        except CancelledError:
            raise StepFailed("login", address, _ENDED) from None

    async def _listen(
        self, access: SshAccess, server: _Server, target: Target, way: ForwardedPort
    ) -> asyncio.Server:
        async def carry(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
            server.begin()
            try:
                # At the end of all it is cancelled, and asyncio would log that as an error.
                with suppress(asyncio.CancelledError):
                    await _carried(server, target, way, (near, back))
            finally:
                back.close()
                self._end(access, server)

        listener = await asyncio.start_server(carry, LOOPBACK, 0)
        self._listeners.add(listener)
        way.port = listener.sockets[0].getsockname()[1]
        return listener

    def _unlisten(
        self, access: SshAccess, server: _Server, listener: asyncio.Server | None
    ) -> None:
        if listener is not None:
            listener.close()
            self._listeners.discard(listener)
        self._end(access, server)


async def _begun(server: _Server) -> bool:
    """Whether the connection is still there; if so, it is used."""
    if server.client.is_closed():
        return False
    server.begin()
    return True


def _retire(server: _Server) -> None:
    """Ends a connection that nobody uses; one that is used ends with its last user."""
    if server.users == 0:
        server.client.abort()


async def _carried(
    server: _Server,
    target: Target,
    way: ForwardedPort,
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Carries bytes both ways until one side has closed."""
    library = libraries.asyncssh()
    reader, back = near
    try:
        opening = server.client.open_connection(target.host, target.port)
        far, out = await asyncio.wait_for(opening, OPEN_S)
    except (asyncio.TimeoutError, library.Error, OSError) as error:
        way.came(SILENT if isinstance(error, asyncio.TimeoutError) else _reason(error))
        return
    way.came(None)
    both = [asyncio.ensure_future(each) for each in (_copied(reader, out), _copied(far, back))]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in both:
            each.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        out.close()


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", "") or error) or "it closed the connection"


async def _copied(source: Any, sink: Any) -> None:
    with suppress(OSError, libraries.asyncssh().Error):
        while data := await source.read(_CHUNK):
            sink.write(data)
            await sink.drain()
