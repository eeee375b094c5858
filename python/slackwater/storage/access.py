"""The ways into systems that connections lead to, with the values of secrets.

None of them shows a value: not in its representation, and not in a message that went through
`scrubbed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

HIDDEN = "<redacted>"
_LINE = 8
"""A line of a secret that is shorter may be anything, as the lines around a key are not."""


def scrubbed(message: str, secrets: Sequence[str]) -> str:
    """The message without the secrets, nor the longer lines of those with several."""
    hidden = {secret for secret in secrets if secret}
    for secret in secrets:
        hidden.update(line for line in secret.splitlines() if len(line) >= _LINE)
    for each in sorted(hidden, key=len, reverse=True):
        message = message.replace(each, HIDDEN)
    return message


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates in PEM; `authority` None: those of the machine. `is_verified`: the server's
    certificate has to be signed by one of them, and with `names_host` to name the host."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    is_verified: bool = True
    names_host: bool = True


@dataclass(frozen=True, slots=True)
class SshAccess:
    """A server of SSH by the `name` of its connection, whose id is `connection`.

    `host_key` is the one that it has to show: what the connection says, else the one that was seen
    first; None: none was seen yet. `keep` keeps the one that is seen now, and answers what is kept.
    `keys` are private ones in the form of OpenSSH, of which the server knows one.
    """

    connection: str
    name: str
    host: str
    port: int
    user: str
    host_key: str | None
    is_pinned: bool
    keys: tuple[str, ...] = field(repr=False)
    keep: Callable[[str], str] = field(repr=False, compare=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)


class Forwarded(Protocol):
    """A port of 127.0.0.1, from which connections go through a tunnel as long as it is open."""

    @property
    def port(self) -> int: ...

    def check(self, seconds: float) -> None:
        """Waits until the first of them has reached the other side. Raises what went wrong."""

    @property
    def failure(self) -> Exception | None:
        """The reason why the other side was not reached; None: it was, or nobody tried."""


class Tunnel(Protocol):
    """A way through another host. What was connected stays so when the port is closed."""

    def forwarded(
        self, host: str, port: int, seconds: float
    ) -> AbstractContextManager[Forwarded]: ...


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """A schema registry. `version` is another one after each change of it or of its secrets."""

    url: str
    tls: Tls | None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""
    tunnel: Tunnel | None = None

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)


SslMode = Literal["disable", "require", "verify_ca", "verify_full"]


@dataclass(frozen=True, slots=True)
class PostgresAccess:
    """A database of PostgreSQL. `version` is another one after each change, as of the others."""

    host: str
    port: int
    database: str
    user: str
    ssl_mode: str
    tls: Tls | None
    password: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""
    tunnel: Tunnel | None = None

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)


@dataclass(frozen=True, slots=True)
class AwsAccess:
    """AWS, or what speaks its protocols at `endpoint`. What is None, the SDK finds itself."""

    region: str | None = None
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role: str | None = None
    role_session: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)


@dataclass(frozen=True, slots=True)
class IcebergAccess:
    """A catalog of Iceberg: tables in a database (sql), a server of Iceberg's protocol (rest,
    s3tablesrest), a metastore of Hive (hive), or Glue of AWS (glue).

    `url` has no password: `credential` is that of the database's user, or what a server takes for a
    token. None, of Glue: its own address. `catalog_name` None: the usual one, by which a database
    knows its tables. `aws` is who one is for a catalog of AWS, and for files without an access of
    their own. `version` is another one after each change, as of the others.
    """

    catalog_type: str
    url: str | None
    warehouse: str | None
    catalog_name: str | None = None
    credential: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    scope: str | None = None
    aws: AwsAccess | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    version: str = ""

    def scrubbed(self, message: str) -> str:
        """The message without values of secrets."""
        return scrubbed(message, self.secrets)
