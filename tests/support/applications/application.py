"""Starts, asks and kills Spark applications with Slackwater, each in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.applications.class_archive import options
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[3]

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


class SqlError(Exception):
    """A statement failed. `condition` and `sqlstate` are what the front end reported."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.kind = error["type"]
        self.condition = error["condition"]
        self.sqlstate = error["sqlstate"]
        self.message = error["message"]


class Gone(Exception):
    """The application's process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Result:
    """Rows as lists of JSON values; `ms` is how long the driver took."""

    columns: tuple[str, ...]
    rows: list
    ms: float


class Pending:
    """An answer that is under way."""

    def __init__(self):
        self._answers = queue.Queue()
        self._come = threading.Event()

    def put(self, answer):
        self._answers.put(answer)
        self._come.set()

    @property
    def is_done(self):
        """Whether there is an answer, also after it was taken."""
        return self._come.is_set()

    def result(self, timeout_s=PATIENCE):
        """The result. Raises SqlError, Gone, or TimeoutError."""
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"no answer within {timeout_s} s") from None
        if answer is None:
            raise Gone("the application ended")
        if "error" in answer:
            raise SqlError(answer["error"])
        return Result(tuple(answer.get("columns", ())), answer.get("rows", []), answer.get("ms", 0))


class Application:
    """A driver. Sessions are named; all but `main` begin with their first use."""

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
    ):
        """`folder`: where it runs and logs, if not beside the location; `python`: what runs it."""
        self.location = str(location)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}",
            **(variables or {}),
        }
        folder = folder or Path(self.location).parent
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / f"driver-{time.monotonic_ns()}.log"
        with open(self.log, "w") as log:
            self._process = subprocess.Popen(
                [*python, "-m", "tests.support.applications.driver"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        self._lock = threading.Lock()
        self._number = 0
        self._pending = {0: Pending()}
        threading.Thread(target=self._listen, daemon=True).start()
        settings = {
            "location": self.location,
            "metastore": metastore,
            "conf": {**CONF, **(conf or {})},
            "jar": jar,
            "master": master,
            "remote": remote,
        }
        self._send(settings)
        try:
            self._pending[0].result(PATIENCE)
        except (Gone, TimeoutError) as error:
            self.kill()
            raise AssertionError(f"{error}\n{self.log.read_text()[-4000:]}") from None

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
        return self._process.pid

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
        self._process.wait()

    def close(self):
        """Ends the application in good order."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _request(self, request):
        pending = Pending()
        with self._lock:
            self._number += 1
            self._pending[self._number] = pending
            number = self._number
        try:
            self._send({"id": number, **request})
        except OSError:
            pending.put(None)
        return pending

    def _send(self, message):
        with self._lock:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _listen(self):
        for line in self._process.stdout:
            answer = json.loads(line)
            self._pending.pop(answer["id"]).put(answer)
        for pending in list(self._pending.values()):
            pending.put(None)


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


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def coordinators(location):
    """The process ids of the coordinators of an environment."""
    wanted = f"SLACKWATER_LOCATION={location}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and "slackwater.server" in command_line(entry):
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    found.append(int(entry))
    return found


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
