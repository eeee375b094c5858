"""Small servers that connections lead to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kafka.certificates import Certificates
from tests.support.waiting import PATIENCE

Serve = Callable[[socket.socket], None]


@contextmanager
def listening(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port of 127.0.0.1, on which each connection is served and closed, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_accept, args=(listener, serve, tls), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def context(folder: Path, certificates: Certificates) -> ssl.SSLContext:
    """The settings of a server with these certificates."""
    (folder / "server.pem").write_text(certificates.server_pem)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "server.pem")
    return made


def silent(connection: socket.socket) -> None:
    """Says nothing until the other side closes."""
    while connection.recv(4096):
        pass


def saying(answer: bytes) -> Serve:
    """Waits for something, and answers that whatever it is."""

    def serve(connection: socket.socket) -> None:
        if connection.recv(4096):
            connection.sendall(answer)

    return serve


def _accept(listener: socket.socket, serve: Serve, tls: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            try:
                if tls is None:
                    serve(connection)
                else:
                    with tls.wrap_socket(connection, server_side=True) as secured:
                        serve(secured)
            except OSError:
                continue
