"""`slackwater serve` in processes of its own, over an ingress."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

from tests.support.applications.application import ROOT, kill_all
from tests.support.waiting import PATIENCE, wait_until


class Served:
    """`slackwater serve` in a process of its own."""

    def __init__(self, folder, name, conf=()):
        self.location = folder / "environment"
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "slackwater.cli", "serve"]
        command += ["--location", str(self.location), "--master", "local[1]"]
        for key, value in dict(conf).items():
            command += ["--conf", f"{key}={value}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        with open(self.log, "w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )

    def says(self, text):
        wait_until(
            lambda: text in self.log.read_text(),
            what=f"{text}, after {self.log.read_text()[-500:]}",
        )
        return self

    def kill(self):
        """Everything of it at once, with its coordinator."""
        kill_all(self._process)

    def end(self):
        """As a service manager does it; gives the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE)


def conf(port, lease="30s"):
    return {
        "spark.slackwater.ingress.address": f"127.0.0.1:{port}",
        "spark.slackwater.lease": lease,
    }


@contextlib.contextmanager
def served(*arguments):
    made = Served(*arguments)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.kill()
