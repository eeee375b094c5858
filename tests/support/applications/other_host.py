"""Applications on another host, as far as one machine has several.

As a program: a coordinator's process that takes itself for one on another host, of another user.
Run as the Python of an application (``spark.slackwater.python``): what it is told to run is the
server, and it runs that with another identity.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

HOST, USER = "neap", "berta"


def python_elsewhere(folder: Path) -> str:
    """An executable in `folder` that stands for the Python of another host."""
    script = folder / "python-elsewhere"
    script.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tests.support.applications.other_host "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def python_apart() -> tuple[str, ...]:
    """A command like Python's that runs in a network of its own, on a host called `HOST`.

    No name and no address leads from there to here or back, but files and sockets in files do.
    """
    begin = f'ip link set lo up && hostname {HOST} && exec "$0" "$@"'
    return ("unshare", "--net", "--uts", "sh", "-c", begin, sys.executable)


def cannot_be_apart() -> str | None:
    """Why this system gives nobody a network of his own; None: it does."""
    missing = [each for each in ("unshare", "ip", "hostname") if shutil.which(each) is None]
    if missing:
        return f"{', '.join(missing)} is not installed (util-linux, iproute2, hostname)"
    tried = subprocess.run([*python_apart(), "-c", ""], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no network of its own: {tried.stderr.strip()}"


def main() -> int:
    from slackwater.server.__main__ import main as serve
    from slackwater.server.identity import this_process

    here = replace(this_process(), host=HOST, boot="another", pid_namespace="", user=USER)
    return serve(here)


if __name__ == "__main__":
    sys.exit(main())
