"""Processes in which applications of tests run, one after the other.

Most of what an application takes that lives for seconds is the start of its JVM, and all that a
JVM does for the first time. So a process whose application has ended in good order serves another
one, as the process of a notebook does after `spark.stop()`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.applications.answers import Gone, Pending
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Start:
    """How a process is started: its folder, what runs it, and the variables that differ.

    Functions of Python in its queries are run by what runs the tests.
    """

    folder: Path
    python: tuple[str, ...] = (sys.executable,)
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        paths = f"{ROOT / 'python'}:{ROOT}"
        own = {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
        return {**os.environ, **own, **self.variables}


class Driver:
    """A process that runs an application, and after its end may run another one."""

    def __init__(self, start):
        self.served = set()
        """The environments of the applications that are over."""
        start.folder.mkdir(parents=True, exist_ok=True)
        self.log = start.folder / f"driver-{time.monotonic_ns()}.log"
        with open(self.log, "w") as log:
            self._process = subprocess.Popen(
                [*start.python, "-m", "tests.support.applications.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=start.folder,
                env=start.environment(),
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._number = 0
        self._pending = {}
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self):
        return self._process.pid

    def request(self, request):
        """Sends a request; its answer is awaited with `result`."""
        pending = Pending()
        with self._lock:
            self._number += 1
            self._pending[self._number] = pending
            message = json.dumps({"id": self._number, **request})
            try:
                self._process.stdin.write(message + "\n")
                self._process.stdin.flush()
            except OSError:
                pending.put(None)
        return pending

    def stop(self):
        """Ends the application in good order; whether the process can run another one."""
        try:
            self.request({"stop": True}).result()
        except (Gone, TimeoutError):
            return False
        return True

    def end(self):
        """Ends the process and its application in good order. Raises `TimeoutExpired`."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait(PATIENCE)

    def wait(self):
        """Waits for the end of a process that was killed."""
        self._process.wait()

    def _listen(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            self._pending.pop(answer["id"]).put(answer)
        for pending in list(self._pending.values()):
            pending.put(None)


class Drivers:
    """Processes without an application: at most `limit`, and none that was started in its own way.

    A process serves an environment once: of what one application knows in memory the next one of
    the same environment knows nothing. Thread-safe.
    """

    def __init__(self, limit):
        self.limit = limit
        self._idle = []
        self._lock = threading.Lock()

    def take(self, location):
        """One that has never served the environment at `location`; None: there is none."""
        with self._lock:
            for driver in self._idle:
                if location not in driver.served:
                    self._idle.remove(driver)
                    return driver
        return None

    def give(self, driver, location):
        """Keeps a process whose application, of the environment at `location`, is over."""
        with self._lock:
            driver.served.add(location)
            self._idle.append(driver)
            over = self._idle.pop(0) if len(self._idle) > self.limit else None
        if over is not None:
            over.end()

    def close(self):
        """Ends all that are idle, and keeps none from now on."""
        self.limit = 0
        while self._idle:
            self._idle.pop().end()
