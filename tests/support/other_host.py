"""A coordinator's process that takes itself for one on another host, of another user.

Run as the Python of an application (``spark.slackwater.python``): what it is told to run is the
server, and it runs that with another identity.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

HOST, USER = "neap", "berta"


def python_elsewhere(folder: Path) -> str:
    """An executable in `folder` that stands for the Python of another host."""
    script = folder / "python-elsewhere"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.support.other_host "$@"\n')
    script.chmod(0o755)
    return str(script)


def main() -> int:
    from slackwater.server.__main__ import main as serve
    from slackwater.server.identity import this_process

    here = replace(this_process(), host=HOST, boot="another", pid_namespace="", user=USER)
    return serve(here)


if __name__ == "__main__":
    sys.exit(main())
