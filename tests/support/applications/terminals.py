"""A program at a terminal of its own, at which a test types."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import threading
from dataclasses import dataclass, field

from tests.support.applications.application import kill_all
from tests.support.applications.spark_servers import environment, hear_interrupts
from tests.support.waiting import wait_until


@dataclass(slots=True)
class Terminal:
    """`process` reads what is typed, and `seen` is all that it has written."""

    process: subprocess.Popen
    end: int
    seen: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    def type(self, text):
        os.write(self.end, text.encode())

    def shows(self, text, after=0):
        """Returns once `text` was written behind so many characters."""

        def is_there():
            assert text in self.seen[after:] or self.process.poll() is None, self.seen[-3000:]
            return text in self.seen[after:]

        wait_until(is_there, what=f"{text} at the terminal")

    def follow(self):
        # A terminal whose last program has ended gives an error instead of its end.
        with contextlib.suppress(OSError):
            while read := os.read(self.end, 65536):
                self.seen += read.decode(errors="replace")
        self.ended.set()


@contextlib.contextmanager
def at_terminal(arguments, folder):
    """Starts a program at a terminal; ends it, and all that it has started, with the block."""
    end, own = pty.openpty()
    process = subprocess.Popen(
        arguments,
        stdin=own,
        stdout=own,
        stderr=own,
        cwd=folder,
        env={**environment(), "TERM": "dumb"},
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )
    os.close(own)
    terminal = Terminal(process, end)
    reader = threading.Thread(target=terminal.follow, daemon=True)
    reader.start()
    try:
        yield terminal
    finally:
        kill_all(process)
        reader.join()
        os.close(end)
