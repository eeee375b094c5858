"""Which process this is, and whether another one still runs."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path

from slackwater.persist.leadership import Owner

_ENDED = ("Z", "X")


def this_process() -> Owner:
    """The process that calls, as the owner of a lease."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        boot=_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        user=_user(),
        pid=pid,
        started=started(pid) or "",
    )


def is_near(owner: Owner, here: Owner) -> bool:
    """Whether an address on loopback of `owner` can be meant for a process of `here`."""
    if owner.boot or here.boot:
        return owner.boot == here.boot
    return owner.host == here.host


def is_dead(owner: Owner, here: Owner, start_of: Callable[[int], str | None]) -> bool:
    """Whether the process of `owner` has ended, as `here` can know for certain.

    Only a process of the same user sees the same processes: elsewhere a process that is not seen
    may be hidden, or be one of another machine. Where the system names no boot, nothing is certain.
    `start_of` is `started`.
    """
    same = (owner.host, owner.boot, owner.pid_namespace, owner.user) == (
        here.host,
        here.boot,
        here.pid_namespace,
        here.user,
    )
    if not same or not owner.boot or not owner.started:
        return False
    return start_of(owner.pid) != owner.started


def started(pid: int) -> str | None:
    """When the process began, in the system's own count; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before is in parentheses, and may have any character.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else fields[19]


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
