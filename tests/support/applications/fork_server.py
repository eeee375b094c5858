"""Coordinators of tests as forks of a process that has imported what they need.

Nearly all that a coordinator takes which lives for seconds is imports. So an application runs
`ForkServer.python` in the place of Python: a small program that gives its arguments, its variables,
its folder and its streams to the server, which forks a process that runs the same module with them.
The program waits for that process and ends as it ends; a program that is killed takes it along.

Run as ``python -m tests.support.applications.fork_server FOLDER``: the server, until its input
ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from slackwater.server.left_out import UNUSED, leave_out

MODULE = "slackwater.server"
SOCKET = "socket"
PROGRAM = "forked-python"
SERVER = "applications.fork_server"
"""In the command line of the server, and of what it forks."""
READY = b"ready\n"
FORKED_TOO = "jemalloc_bg_thd\n"
"""The thread of pyarrow's allocator, which begins another one in a fork."""
ROOT = Path(__file__).resolve().parents[3]
PATHS = f"{ROOT / 'python'}:{ROOT}"

_PROGRAM = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
said = {{"arguments": sys.argv[1:], "variables": dict(os.environ), "folder": os.getcwd()}}
socket.send_fds(server, [b"\\0"], [0, 1, 2])
server.sendall(json.dumps(said).encode() + b"\\n")
nothing = os.open(os.devnull, os.O_RDWR)
for stream in range(3):
    os.dup2(nothing, stream)
sys.exit(int(server.recv(16) or b"1"))
"""


class ForkServer:
    """The server as a process of its own, from when somebody asks for its `python`. Thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._lock = threading.Lock()

    @property
    def python(self) -> Path:
        """What an application runs as Python."""
        with self._lock:
            if self._process is None:
                self._process = self._start()
        return self._folder / PROGRAM

    def location(self, pid: int) -> str | None:
        """The environment that a process was forked for; None: it was not forked."""
        if self._folder is None:
            return None
        try:
            return (self._folder / str(pid)).read_text()
        except FileNotFoundError:
            return None

    def close(self) -> None:
        """Ends the server; what it forked goes on."""
        if self._process is not None:
            self._process.communicate()
            shutil.rmtree(self._folder)

    def _start(self) -> subprocess.Popen[bytes]:
        self._folder = Path(tempfile.mkdtemp(prefix="forks-"))
        program, address = self._folder / PROGRAM, str(self._folder / SOCKET)
        program.write_text(_PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", f"tests.support.{SERVER}", str(self._folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A process with several threads cannot be forked.
            env={**os.environ, "PYTHONPATH": PATHS, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert process.stdout is not None
        if process.stdout.readline() != READY:
            raise AssertionError("the fork server did not start")
        return process


@dataclass(slots=True)
class _Server:
    """What the server knows: its listener, and for each program the process that it waits for."""

    folder: Path
    listener: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self) -> None:
        """Forks whatever is asked for, until the input ends."""
        self.selector.register(self.listener, selectors.EVENT_READ, self._fork)
        self.selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)
        while True:
            for key, _ in self.selector.select():
                # What was called before may have ended others.
                if self.selector.get_map().get(key.fd) is key:
                    key.data()

    def _fork(self) -> None:
        program, _ = self.listener.accept()
        _, streams, _, _ = socket.recv_fds(program, 1, 3)
        with program.makefile("rb") as lines:
            line = lines.readline()
        pid = os.fork() if line.endswith(b"\n") else None
        if pid == 0:
            for key in list(self.selector.get_map().values()):
                os.close(key.fd)
            self.selector.close()
            program.close()
            said = json.loads(line)
            own = self.folder / str(os.getpid())
            own.write_text(said["variables"].get("SLACKWATER_LOCATION", ""))
            _become(said, streams)
        for stream in streams:
            os.close(stream)
        if pid is None:
            # The program was killed before it had said what it is for.
            program.close()
        else:
            self._wait(program, pid)

    def _wait(self, program: socket.socket, pid: int) -> None:
        """Tells the program how the process ends; ends the process when the program is killed."""
        process = os.pidfd_open(pid)

        def ended() -> None:
            _, status = os.waitpid(pid, 0)
            (self.folder / str(pid)).unlink(missing_ok=True)
            self.selector.unregister(process)
            self.selector.unregister(program)
            os.close(process)
            with program, contextlib.suppress(OSError):
                program.sendall(str(os.waitstatus_to_exitcode(status) % 256).encode())

        self.selector.register(process, selectors.EVENT_READ, ended)
        self.selector.register(program, selectors.EVENT_READ, lambda: os.kill(pid, signal.SIGKILL))


def _become(said: dict[str, object], streams: list[int]) -> None:
    """Runs the module as a process of its own would, and ends."""
    for stream, given in enumerate(streams):
        os.dup2(given, stream)
        os.close(given)
    os.environ.clear()
    os.environ.update(said["variables"])
    time.tzset()
    os.chdir(said["folder"])
    status = 1
    try:
        sys.argv[1:] = []
        runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def main(folder: Path) -> None:
    gc.disable()
    leave_out(*UNUSED)
    from slackwater.server import leading  # noqa: F401 - forks have it

    threads = [each.joinpath("comm").read_text() for each in Path("/proc/self/task").iterdir()]
    if len(threads) > 1 + threads.count(FORKED_TOO):
        raise AssertionError(f"forks would be without threads: {threads}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / SOCKET))
        listener.listen(64)
        sys.stdout.buffer.write(READY)
        sys.stdout.flush()
        _Server(folder, listener).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
