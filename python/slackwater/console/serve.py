"""`slackwater console`: reads its options, binds its address, and serves until it is ended."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.console.security import Door, Hosts, is_loopback
from slackwater.persist.locations import parse_location
from slackwater.repr.errors import SlackwaterError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from starlette.applications import Starlette

DEFAULT_LOCATION = "slackwater-environment"
EXTRA = "The console needs its libraries: pip install 'slackwater[console]'"


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """The address of the console, and the conditions for those who look.

    `names` are names by which browsers reach it beside its address. `is_behind_proxy`: a proxy
    in front of it ends TLS and knows who may look.
    """

    host: str = "127.0.0.1"
    port: int = 8070
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    password_file: Path | None = None
    is_behind_proxy: bool = False


class RefusedError(Exception):
    """The console does not start; the text says why and what to do."""


def serve(
    location: str | None,
    metastore: str | None,
    options: ConsoleOptions,
    say: Callable[[str], None],
) -> int:
    """Serves the console of an environment until it is interrupted; returns the exit status."""
    try:
        import uvicorn

        from slackwater.console.app import Access, application
        from slackwater.console.leader import LeaderClient
        from slackwater.console.looking import Looking
        from slackwater.server.identity import this_process
    except ModuleNotFoundError as missing:
        if str(missing.name).partition(".")[0] not in ("starlette", "jinja2"):
            raise
        say(EXTRA)
        return 1
    try:
        check(options)
        door = _door(options)
        url = metastore_url(location, metastore)
        listener = bound(options.host, options.port)
    except RefusedError as refused:
        say(str(refused))
        return 1
    except SlackwaterError as error:
        say(str(error))
        return 1
    is_secure = options.certificate is not None or options.is_behind_proxy
    access = Access(Hosts.of(options.host, options.names), door, is_secure)
    looking = Looking(LeaderClient(url, this_process()))
    app: Starlette = application(looking, access)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    looking.start()
    say(f"The console is at {address(options, listener)}")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        looking.stop()
    return 0


def check(options: ConsoleOptions) -> None:
    """Raises RefusedError for options by which others than this machine's users could look."""
    if (options.certificate is None) != (options.key is None):
        raise RefusedError("--tls-certificate and --tls-key belong together.")
    if options.certificate is not None and options.key is not None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.certificate, options.key)
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or error
            raise RefusedError(f"Certificate and key cannot be used: {reason}.") from None
    if is_loopback(options.host) or options.is_behind_proxy:
        return
    if options.certificate is None or options.password_file is None:
        raise RefusedError(
            f"{options.host} is reached from other machines: give --tls-certificate, --tls-key and "
            "--password-file, or --behind-proxy if a proxy does this."
        )


def metastore_url(location: str | None, metastore: str | None) -> str | URL:
    """The URL of the metastore, as an application has it. Raises SlackwaterError."""
    place = parse_location(location or DEFAULT_LOCATION, os.environ)
    return place.given_metastore(metastore, os.environ)


def bound(host: str, port: int) -> socket.socket:
    """A listener. Raises RefusedError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        reason = error.strerror or error
        raise RefusedError(
            f"The console cannot listen on {host}:{port}: {reason}. --port names another port."
        ) from None


def address(options: ConsoleOptions, listener: socket.socket) -> str:
    """The address to open in a browser."""
    scheme = "http" if options.certificate is None else "https"
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}/"


def _door(options: ConsoleOptions) -> Door | None:
    if options.password_file is None:
        return None
    try:
        password = options.password_file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"{options.password_file} cannot be read: {error}") from None
    if not password:
        raise RefusedError(f"{options.password_file} is empty: it has to have the password.")
    return Door(password)
