"""The threads and sockets of the ingress.

Each leader binds it. While the leader before still has the port (a process that hangs, for
example), the next one tries again until it is free.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import Any

import structlog
import uvicorn

from slackwater.server.ingress.app import IngressApp
from slackwater.server.ingress.gate import BackendGate
from slackwater.server.ingress.settings import IngressSettings, invalid
from slackwater.server.ingress.tokens import Tokens

BIND_AGAIN_S = 0.2
SILENT_S = 15.0
"""Seconds that a connection may last without a request, or until the headers of one are there."""
STOPPING_S = 3.0
HEAD_BYTES = 64 * 1024
"""The most that the headers of a request may take."""
CONNECTIONS = 4
"""The most connections for each request that may be under way."""

_log = structlog.get_logger("ingress")


class Ingress:
    """Listens from `start` to `stop`. Raises SLACKWATER_INVALID_OPTION when it cannot begin."""

    def __init__(self, settings: IngressSettings, gate: BackendGate) -> None:
        self._settings = settings
        self._gate = gate
        self._ending = threading.Event()
        self._server: uvicorn.Server | None = None
        _check_certificate(settings)
        tokens = (
            None if settings.jwt_keys is None else Tokens(settings.jwt_keys, settings.jwt_revoked)
        )
        self._app = IngressApp(settings, gate, tokens)
        self._thread = threading.Thread(target=self._run, name="ingress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Takes no more connections, and waits a moment for the requests that are under way."""
        self._ending.set()
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(STOPPING_S)

    def _run(self) -> None:
        while (listener := self._bound()) is not None:
            try:
                asyncio.run(_serve(self._new_server(), listener))
            except Exception as error:
                _log.exception("ended")
                self._gate.listens(self._settings.url, f"it has ended: {error}")
                self._ending.wait(BIND_AGAIN_S)
            finally:
                listener.close()

    def _new_server(self) -> uvicorn.Server:
        settings = self._settings
        server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                log_config=None,
                access_log=False,
                lifespan="off",
                # It limits what comes before a body, which the other one does not.
                http="h11",
                h11_max_incomplete_event_size=HEAD_BYTES,
                ws="none",
                server_header=False,
                proxy_headers=False,
                limit_concurrency=CONNECTIONS * settings.requests,
                timeout_graceful_shutdown=int(STOPPING_S),
                ssl_certfile=settings.certificate,
                ssl_keyfile=settings.key,
            )
        )
        self._server = server
        server.should_exit = self._ending.is_set()
        _log.info("listening", address=settings.address)
        self._gate.listens(settings.url, None)
        return server

    def _bound(self) -> socket.socket | None:
        """The listener; None when it is to end before there is one."""
        said = ""
        while not self._ending.is_set():
            try:
                return _listener(self._settings.host, self._settings.port)
            except OSError as error:
                reason = f"it cannot listen on {self._settings.address}: {error.strerror or error}"
                if reason != said:
                    _log.warning("not listening", reason=reason)
                    self._gate.listens(self._settings.url, reason)
                    said = reason
            self._ending.wait(BIND_AGAIN_S)
        return None


def _listener(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    listener = socket.create_server(address[:2], family=family, backlog=512)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _check_certificate(settings: IngressSettings) -> None:
    if settings.certificate is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate, settings.key)
    except (OSError, ssl.SSLError) as error:
        reason = f"certificate and key cannot be used: {error.strerror or error}"
        raise invalid("tls.certificate", settings.certificate, reason) from None


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    sweeping = asyncio.ensure_future(_sweep(server))
    try:
        await server.serve(sockets=[listener])
    finally:
        sweeping.cancel()


async def _sweep(server: uvicorn.Server) -> None:
    """Ends connections in which no request is under way at two looks in turn."""
    before: dict[Any, Any] = {}
    while True:
        await asyncio.sleep(SILENT_S / 2)
        connections: set[Any] = {*server.server_state.connections}
        silent = {
            each: each.cycle
            for each in connections
            if each.cycle is None or each.cycle.response_complete
        }
        for connection, cycle in silent.items():
            if connection in before and before[connection] is cycle:
                connection.transport.close()
        before = silent
