"""The settings of the ingress: those below ``spark.slackwater.ingress.``.

They belong to the environment: the leader that has them remembers them in the metastore, and a
later leader that has none of its own goes on with those. Files are named, never their contents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.persist.tables import ingress
from slackwater.planner.parser.durations import parse_duration
from slackwater.planner.parser.variables import parse_size
from slackwater.repr.errors import SlackwaterError, invalid_option, user_error

PREFIX = "spark.slackwater.ingress."
OFF = "off"

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):(\d{1,5})")
_KEYS = (
    "address",
    "url",
    "tls.certificate",
    "tls.key",
    "jwt.keys",
    "jwt.revoked",
    "body.limit",
    "requests.limit",
    "memory.limit",
    "timeout",
)


@dataclass(frozen=True, slots=True)
class IngressSettings:
    """The address and the limits of the ingress.

    `body_bytes` is the most that one request may have, `memory_bytes` the most for all that are
    under way, and `requests` their largest number. `timeout_ms` is for one request. `url` is the
    address as senders see it, which differs behind a proxy.
    """

    host: str
    port: int
    url: str
    certificate: str | None = None
    key: str | None = None
    jwt_keys: str | None = None
    jwt_revoked: str | None = None
    body_bytes: int = 2 * 1024 * 1024
    requests: int = 500
    memory_bytes: int = 256 * 1024 * 1024
    timeout_ms: int = 30_000

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def read(settings: Mapping[str, str]) -> IngressSettings | None:
    """Reads settings, by their names without the prefix; None: nothing is to listen.

    Raises SLACKWATER_UNKNOWN_OPTION, SLACKWATER_INVALID_OPTION.
    """
    for name in settings:
        if name not in _KEYS:
            raise user_error(
                "SLACKWATER_UNKNOWN_OPTION",
                statement="The ingress",
                option=PREFIX + name,
                options=", ".join(PREFIX + each for each in _KEYS),
            )
    address = settings.get("address", OFF)
    if address == OFF:
        return None
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) < 65536:
        raise invalid("address", address, "it is host:port, or off")
    certificate, key = settings.get("tls.certificate"), settings.get("tls.key")
    if (certificate is None) != (key is None):
        missing = "tls.certificate" if certificate is None else "tls.key"
        raise invalid(missing, "", "certificate and key belong together")
    scheme = "http" if certificate is None else "https"
    return IngressSettings(
        host=found[1].strip("[]"),
        port=int(found[2]),
        url=settings.get("url", f"{scheme}://{address}").rstrip("/"),
        certificate=certificate,
        key=key,
        jwt_keys=settings.get("jwt.keys"),
        jwt_revoked=settings.get("jwt.revoked"),
        body_bytes=_size(settings, "body.limit", "2MB"),
        requests=_count(settings, "requests.limit", "500"),
        memory_bytes=_size(settings, "memory.limit", "256MB"),
        timeout_ms=_duration(settings, "timeout", "30s"),
    )


def invalid(name: str, value: str, reason: str) -> SlackwaterError:
    """The error for a setting, whose name is without the prefix."""
    return invalid_option(PREFIX + name, "the ingress", value, reason)


def _size(settings: Mapping[str, str], name: str, default: str) -> int:
    text = settings.get(name, default)
    try:
        return parse_size(text)
    except ValueError as error:
        raise invalid(name, text, str(error)) from None


def _count(settings: Mapping[str, str], name: str, default: str) -> int:
    text = settings.get(name, default)
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= 100_000):
        raise invalid(name, text, "it is a number from 1 to 100000")
    return int(text)


def _duration(settings: Mapping[str, str], name: str, default: str) -> int:
    text = settings.get(name, default)
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise invalid(name, text, str(error)) from None
    if found == 0:
        raise invalid(name, text, "it has to be longer than zero")
    return found


def remembered(conn: Connection, own: Mapping[str, str]) -> dict[str, str]:
    """The settings that count: `own`, which it stores; without any, those stored before."""
    if own:
        conn.execute(sa.delete(ingress))
        conn.execute(sa.insert(ingress).values(id=1, settings=json.dumps(dict(own))))
        return dict(own)
    stored = conn.scalar(sa.select(ingress.c.settings))
    return {} if stored is None else dict(json.loads(stored))
