"""Connections to PostgreSQL, as libpq makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slackwater.adapter.external.files import CertificateFiles, certificate_files
from slackwater.adapter.external.trials.reaching import LOOPBACK
from slackwater.storage.access import PostgresAccess

CONNECT_S = 10
"""The most that a server of SSH may take before there is a way to PostgreSQL."""
_NOWHERE = "/dev/null/none"
"""A file that cannot be: with an empty path libpq takes that of the user."""


@contextmanager
def connection_options(
    access: PostgresAccess, address: str | None = None, seconds: float = CONNECT_S
) -> Iterator[dict[str, Any]]:
    """The options of libpq for a connection that is made inside of the block.

    Nothing else counts: no file of the user and no variable of the process. With an `address` of
    the host no other one is tried; through a tunnel there is none. TLS checks the name of the host
    either way. Within so many `seconds` there is a tunnel. Raises `StepFailed` for one, also in
    place of what the block raises.
    """
    if access.tunnel is None:
        with _options(access, address, access.port) as options:
            yield options
        return
    with access.tunnel.forwarded(access.host, access.port, seconds) as way:
        try:
            with _options(access, LOOPBACK, way.port) as options:
                yield options
        except Exception:
            if way.failure is not None:
                raise way.failure from None
            raise


@contextmanager
def _options(access: PostgresAccess, address: str | None, port: int) -> Iterator[dict[str, Any]]:
    options: dict[str, Any] = {
        "host": access.host,
        "port": port,
        "dbname": access.database,
        "user": access.user,
        "password": access.password or "",
        "passfile": _NOWHERE,
        "sslmode": access.ssl_mode.replace("_", "-"),
        "gssencmode": "disable",
        "application_name": "slackwater",
    }
    if address is not None:
        options["hostaddr"] = address
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
