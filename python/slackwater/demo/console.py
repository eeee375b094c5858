"""The console beside a demo, in a process of its own, and the environment that stays for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

END_S = 5.0
CLI = (
    "import sys; sys.path = [each for each in sys.path if each];"
    " from slackwater.cli import app; app(prog_name='slackwater')"
)
"""The command line. With `-m`, modules would come from the user's working folder first."""


class ConsoleMissingError(Exception):
    """The console did not start; the text is what it said."""


@contextmanager
def console_beside(
    location: str, metastore: str | None, say: Callable[[str], None]
) -> Iterator[None]:
    """Runs the console of an environment meanwhile. Raises ConsoleMissingError.

    `say` is told where it is.
    """
    command = [sys.executable, "-c", CLI, "console", "--port", "0"]
    command += ["--location", location]
    command += [] if metastore is None else ["--metastore", metastore]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        said = "" if process.stdout is None else process.stdout.readline().strip()
        if not said.startswith("The console is at"):
            raise ConsoleMissingError(said or "the console did not start")
        say(said)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()


def stay(say: Callable[[str], None]) -> None:
    """Keeps the environment as it is until Ctrl-C."""
    say("\nThe environment goes on, with the console. Ctrl-C ends both.")
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
