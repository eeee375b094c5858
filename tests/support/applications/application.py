"""Starts, asks and kills Spark applications with Slackwater, beside the process of a test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.applications.answers import Gone, Pending, Result, SqlError
from tests.support.applications.class_archive import options
from tests.support.applications.drivers import ROOT, Driver, Drivers, Start
from tests.support.applications.fork_server import PROGRAM, SERVER, ForkServer
from tests.support.waiting import PATIENCE, wait_until

from slackwater.persist.locations import without_password

__all__ = [
    "ROOT",
    "Application",
    "Gone",
    "Pending",
    "Result",
    "SqlError",
    "command_line",
    "coordinators",
    "descendants",
    "kill",
    "only_coordinator",
    "stat",
]

CONF = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    # Each sort, aggregate and broadcast takes at least one, of 16 MB if Spark chooses.
    "spark.buffer.pageSize": "1m",
    "spark.executor.extraJavaOptions": options(),
}

OF_PROCESSES = ("spark.driver.extra", "spark.driver.memory", "spark.jars")
"""Settings below these names may count where a JVM starts, and only there."""


class Application:
    """A driver. Sessions are named; all but `main` begin with their first use."""

    idle = Drivers(0)
    """Where processes wait for their next application; what runs tests makes room for some."""
    forks: ForkServer | None = None
    """What starts the coordinators of all but those that are started in their own way; what runs
    tests has one."""

    def __init__(
        self,
        location,
        metastore=None,
        *,
        conf=None,
        jar=True,
        master="local[1]",
        remote=None,
        folder=None,
        variables=None,
        python=(sys.executable,),
        alone=False,
    ):
        """`folder`: where it runs and logs, if not beside the location; `python`: what runs it;
        `alone`: no other application has run in its process, nor will."""
        self.location = str(location)
        folder = folder or Path(self.location).parent
        own = {"spark.sql.warehouse.dir": str(folder / "spark-warehouse"), **(conf or {})}
        settings = {
            "location": self.location,
            "metastore": metastore,
            "conf": {**CONF, **own},
            "jar": jar,
            "master": master,
            "remote": remote,
        }
        # A password is given to processes in a variable.
        password = metastore and without_password(metastore)[1]
        special = [password, remote, variables, alone, not jar]
        special += [key for key in own if key.startswith(OF_PROCESSES)]
        self._is_special = any(special) or python != (sys.executable,)
        if Application.forks and not (alone or variables or python != (sys.executable,)):
            settings["conf"].setdefault("spark.slackwater.python", str(Application.forks.python))
        found = None if self._is_special else Application.idle.take(self.location)
        start = Start(folder, python, variables or {})
        self._driver = Driver(start) if found is None else found
        self._is_over = False
        try:
            self._driver.request({"start": settings}).result()
        except (Gone, TimeoutError) as error:
            self.kill()
            raise AssertionError(f"{error}\n{self.log.read_text()[-4000:]}") from None

    @property
    def log(self):
        """The file with all that its process has written."""
        return self._driver.log

    def sql(self, text, *, session="main", args=None, timeout_s=PATIENCE):
        """Runs a statement and waits for it. Raises SqlError, Gone, TimeoutError."""
        return self.start(text, session=session, args=args).result(timeout_s)

    def rows(self, text, *, session="main", timeout_s=PATIENCE):
        return self.sql(text, session=session, timeout_s=timeout_s).rows

    def value(self, text, *, session="main"):
        """The only value of the only row."""
        ((value,),) = self.rows(text, session=session)
        return value

    def start(self, text, *, session="main", args=None):
        """Begins a statement; its answer is awaited with `result`."""
        return self._request({"session": session, "sql": text, "args": args})

    def python(self, code, *, session="main", timeout_s=PATIENCE):
        """Runs Python code in the driver, where `spark` is the session; its `result` comes back."""
        return self.begin_python(code, session=session).result(timeout_s).rows[0][0]

    def begin_python(self, code, *, session="main"):
        """Begins Python code; `python` says what it may do."""
        return self._request({"session": session, "python": code})

    @property
    def pid(self):
        return self._driver.pid

    def jvm(self):
        """The process id of the driver's JVM."""
        (found,) = [pid for pid in descendants(self.pid) if "SparkSubmit" in command_line(pid)]
        return found

    def kill(self):
        """Ends Python and JVM at once, as a crash of the machine's part would.

        Python first, which would say else that its JVM has gone.
        """
        known = descendants(self.pid)
        victims = [pid for pid in known if "slackwater.server" not in command_line(pid)]
        for pid in (self.pid, *victims):
            kill(pid)
        self._driver.wait()

    def close(self):
        """Ends the application in good order."""
        if self._is_over:
            return
        self._is_over = True
        if self._is_special or not Application.idle.limit or not self._driver.stop():
            try:
                self._driver.end()
            except subprocess.TimeoutExpired:
                self.kill()
        else:
            Application.idle.give(self._driver, self.location)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _request(self, request):
        if self._is_over:
            raise Gone("the application ended")
        return self._driver.request(request)


def only_coordinator(location):
    """The process id of the one that leads; one that has lost the election may still be ending."""
    (found,) = wait_until(
        lambda: found if len(found := coordinators(location)) == 1 else None,
        what="there is one coordinator",
    )
    return found


def descendants(pid):
    """All processes below a process, nearest first."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError):
                parent = int(stat(Path("/proc") / entry)[1])
                children.setdefault(parent, []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        below = children.get(waiting.pop(0), [])
        found += below
        waiting += below
    return found


def stat(task):
    """What the system says of a process or a thread, by its folder: from its state on. Its name,
    which comes before, may have any character."""
    return (task / "stat").read_text().rpartition(")")[2].split()


def is_alive(pid):
    """Whether a process runs: one for whose end nobody has waited yet does not."""
    try:
        return stat(Path(f"/proc/{pid}"))[0] != "Z"
    except FileNotFoundError:
        return False


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def coordinators(location):
    """The process ids of the coordinators of an environment."""
    return [int(each) for each in os.listdir("/proc") if each.isdigit() and _leads(each, location)]


def _leads(pid, location):
    """Whether a process is a coordinator of the environment, or would be."""
    program = command_line(pid)
    if SERVER in program:
        return Application.forks is not None and Application.forks.location(pid) == str(location)
    if "slackwater.server" not in program or PROGRAM in program:
        return False
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return f"SLACKWATER_LOCATION={location}".encode() in variables


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_all(process):
    """Kills a process that a test has started, with all below it, and waits for its end."""
    for pid in [*descendants(process.pid), process.pid]:
        kill(pid)
    process.wait()
