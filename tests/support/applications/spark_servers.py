"""Spark's servers as the `slackwater` command starts them: Thrift and Connect."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from dataclasses import dataclass

from tests.support.applications.application import (
    CONF,
    ROOT,
    command_line,
    coordinators,
    descendants,
    kill,
)
from tests.support.server.ingress import held_port
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Served:
    port: int
    jvm: int


def command(program, location, *arguments):
    settings = []
    for key, value in CONF.items():
        settings += ["--conf", f"{key}={value}"]
    script = "from slackwater.cli import app; app()"
    return [
        sys.executable,
        "-c",
        script,
        program,
        "--location",
        str(location),
        *settings,
        *arguments,
    ]


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "python"), "MASTER": "local[2]"}


def jvm_below(process):
    """The JVM that the command line has become, or started; None while it does neither."""
    for pid in [process.pid, *descendants(process.pid)]:
        program, _, arguments = command_line(pid).partition(" ")
        if program.endswith("java") and "SparkSubmit" in arguments:
            return pid
    return None


@contextlib.contextmanager
def server(program, location, folder):
    """A server in the foreground, with its port and JVM, until the block ends."""
    with held_port() as port, serving(program, location, folder, port) as served:
        yield served


@contextlib.contextmanager
def serving(program, location, folder, port):
    log = folder / f"{program}.log"
    with open(log, "w") as output:
        process = subprocess.Popen(
            command(program, location, "--port", str(port)),
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment(),
            start_new_session=True,
        )

    def listening():
        assert process.poll() is None, log.read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(listening, what=f"{program} listens")
        yield Served(port, jvm_below(process))
    finally:
        for pid in [*descendants(process.pid), process.pid]:
            kill(pid)
        process.wait()
        wait_until(lambda: not coordinators(location), what="the coordinator's end")
