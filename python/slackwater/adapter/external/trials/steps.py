"""The steps in which a connection is tried: values, and what a failed one is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Step = Literal["name", "TCP", "host key", "TLS", "login", "permission"]


class StepFailed(Exception):
    """A step that failed at an address, and why. The reason may show a secret."""

    def __init__(self, step: Step, address: str, reason: str) -> None:
        super().__init__(f"{step} at {address}: {reason}")
        self.step = step
        self.address = address
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Target:
    """A host by its name or its address, and a port."""

    host: str
    port: int

    @staticmethod
    def of(text: str, default_port: int) -> Target:
        """The target of ``host``, ``host:port`` or ``[address]:port``."""
        host, _, port = text.rpartition(":")
        if text.endswith("]") or not port.isdecimal() or not host:
            host, port = text, str(default_port)
        return Target(host.removeprefix("[").removesuffix("]"), int(port))

    @property
    def address(self) -> str:
        """The target in the form in which it is written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time until which all steps have to be done, in seconds of `monotonic`."""

    at: float
    monotonic: Callable[[], float] = time.monotonic

    @staticmethod
    def after(seconds: float) -> Deadline:
        """The deadline so many seconds from now."""
        return Deadline(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then, 0 afterwards."""
        return max(0.0, self.at - self.monotonic())

    def earlier(self, seconds: float) -> Deadline:
        """The deadline so many seconds before this one."""
        return Deadline(self.at - seconds, self.monotonic)

    def share(self, of: int) -> Deadline:
        """The first of `of` equal shares of the time that is left."""
        return Deadline(self.monotonic() + self.left / max(1, of), self.monotonic)
