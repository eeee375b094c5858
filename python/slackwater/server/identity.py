"""Identities of processes: this one's, whether another one runs, and the end of a hanging one."""

from __future__ import annotations

import os
import pwd
import signal
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
    return _is_seen(owner, here) and start_of(owner.pid) != owner.started


def end(owner: Owner, here: Owner) -> bool:
    """Kills the process of `owner`, even a stopped one; returns whether it did.

    It does so only where `here` knows for certain which process that is, and never kills itself.
    Returns before the process has ended.
    """
    if not _is_seen(owner, here) or owner.pid == here.pid:
        return False
    try:
        process = os.pidfd_open(owner.pid)
    except OSError:
        return False
    try:
        # What the descriptor names stays the same; whose it is can only be asked by number.
        if started(owner.pid) != owner.started:
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(process)
    return True


def started(pid: int) -> str | None:
    """The time at which the process began, in the system's count; None when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before is in parentheses, and may have any character.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in _ENDED else fields[19]


def _is_seen(owner: Owner, here: Owner) -> bool:
    """Whether `here` sees the process of `owner`, if it runs, and can tell it from others."""
    same = (owner.host, owner.boot, owner.pid_namespace, owner.user) == (
        here.host,
        here.boot,
        here.pid_namespace,
        here.user,
    )
    return same and bool(owner.boot) and bool(owner.started)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
