"""Spark's servers as the `slackwater` command starts them: Thrift and Connect."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tests.support.applications.application import (
    CONF,
    ROOT,
    command_line,
    coordinators,
    descendants,
    kill_all,
)
from tests.support.applications.class_archive import SHORT_LIVED
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
    own = {"PYTHONPATH": str(ROOT / "python"), "MASTER": "local[2]"}
    return {**os.environ, **own, "PYSPARK_PYTHON": sys.executable}


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
    with (
        held_port() as port,
        serving(command(program, location, "--port", str(port)), location, folder, port) as served,
    ):
        yield served


@contextlib.contextmanager
def spark_s_own_server(location, folder, *arguments):
    """A Thrift server as Spark's own script starts it, with arguments of `spark-submit`."""
    home = Path(str(resources.files("pyspark")))
    with held_port() as port:
        started = [str(home / "bin" / "spark-submit"), *arguments]
        started += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
        started += ["spark-internal", "--hiveconf", f"hive.server2.thrift.port={port}"]
        started += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
        with serving(started, location, folder, port) as served:
            yield served


@contextlib.contextmanager
def serving(arguments, location, folder, port):
    log = folder / "server.log"

    def listening():
        assert process.poll() is None, log.read_text()[-3000:]
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        with in_foreground(arguments, folder, log) as process:
            wait_until(listening, what=f"the server at {folder} listens")
            yield Served(port, jvm_below(process))
    finally:
        wait_until(lambda: not coordinators(location), what="the coordinator's end")


@contextlib.contextmanager
def in_foreground(arguments, folder, log):
    """A process in a group of its own, to which Ctrl-C goes, until the block ends. What it says is
    in the file `log`."""
    with open(log, "w") as output:
        process = subprocess.Popen(
            arguments,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env={**environment(), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            preexec_fn=hear_interrupts,
        )
    try:
        yield process
    finally:
        kill_all(process)


def hear_interrupts():
    """For a child: a test run in the background of a shell ignores SIGINT, and so would it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def beeline(port, folder, *arguments, **options):
    """A beeline process; what it says is in its output."""
    jars = Path(str(resources.files("pyspark"))) / "jars"
    return subprocess.Popen(
        [
            "java",
            *SHORT_LIVED.split(),
            "-cp",
            f"{jars}/*",
            "org.apache.hive.beeline.BeeLine",
            "-u",
            f"jdbc:hive2://127.0.0.1:{port}",
            "--silent=true",
            "--force=true",
            "--showHeader=false",
            "--outputformat=tsv2",
            "--nullemptystring=false",
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        start_new_session=True,
        preexec_fn=hear_interrupts,
    )
