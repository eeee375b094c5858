"""The rules for those who look and for their browsers: cores without sockets or clocks."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of each answer: nothing is loaded from elsewhere, nor shown elsewhere."""

COOKIE = "slackwater_console"
LOGIN_S = 12 * 3600.0
FAILURES = 5
LOCKED_S = 30.0


def is_loopback(host: str) -> bool:
    """Whether nobody on another machine reaches this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a header `Host`, without its port and in small letters."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0][1:]
    return name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names by which browsers may reach the console.

    A page of another site, whose name was made to lead here, sends its own name (DNS rebinding).
    """

    names: frozenset[str]

    @staticmethod
    def of(host: str, names: Iterable[str]) -> Hosts:
        """The address, the names that were given, and those of loopback if it is one."""
        own = {"localhost", "127.0.0.1", "::1"} if is_loopback(host) else set()
        return Hosts(frozenset({host.lower(), *(name.lower() for name in names), *own}))

    def allows(self, header: str) -> bool:
        """Whether a request with this header `Host` is answered."""
        return host_name(header) in self.names


@dataclass(slots=True)
class Door:
    """Lets in who knows the password. Used under one lock; times are seconds of one clock.

    After `FAILURES` wrong passwords nobody can log in for `LOCKED_S`; who is in stays in.
    """

    password: str
    _inside: dict[str, float] = field(default_factory=dict)
    _failures: int = 0
    _locked_until_s: float = 0.0

    def log_in(self, password: str, now_s: float) -> str | None:
        """A new value for the cookie; None: it is the wrong password, or the door is locked."""
        if self.is_locked(now_s):
            return None
        if not hmac.compare_digest(password.encode(), self.password.encode()):
            self._failures += 1
            if self._failures >= FAILURES:
                self._failures, self._locked_until_s = 0, now_s + LOCKED_S
            return None
        self._failures = 0
        self._inside = {key: until for key, until in self._inside.items() if until > now_s}
        value = secrets.token_urlsafe(32)
        self._inside[_digest(value)] = now_s + LOGIN_S
        return value

    def is_locked(self, now_s: float) -> bool:
        """Whether passwords are not tried now."""
        return now_s < self._locked_until_s

    def is_inside(self, value: str, now_s: float) -> bool:
        """Whether the cookie is of somebody who has logged in less than `LOGIN_S` ago."""
        return self._inside.get(_digest(value), now_s) > now_s


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
