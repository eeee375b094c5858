"""A Kafka broker in a process of its own, for the demo and for tests.

It is broker and controller at once, and listens on loopback alone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path

VERSION = "4.4.0"
FOLDER = "SLACKWATER_KAFKA"
"""The variable that names a folder with the broker's jars."""
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class BrokerMissingError(Exception):
    """There are no jars of the broker, and they cannot be fetched."""


class BrokerFailedError(Exception):
    """The broker's process has ended, or does not answer."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A name, what is spoken there (PLAINTEXT, SASL_SSL), and an address."""

    name: str
    protocol: str
    address: str


@dataclass(slots=True)
class BrokerProcess:
    """A broker with its data, its settings and its log in `folder`, run from `jars`.

    `patience_s` is the most that its start may take.
    """

    folder: Path
    jars: Path
    patience_s: float = 60.0
    process: subprocess.Popen[bytes] | None = None

    def format(self, settings: Sequence[str], cluster: str, *options: str) -> None:
        """Writes the settings and an empty data folder, of which the cluster has that id.

        Raises BrokerFailedError.
        """
        self._settings.write_text("\n".join((*settings, f"log.dirs={self.folder / 'data'}", "")))
        arguments = ("format", "-t", cluster, "-c", str(self._settings), *options)
        formatted = self._java("kafka.tools.StorageTool", *arguments)
        if formatted.wait(self.patience_s) != 0:
            raise BrokerFailedError(f"Kafka's folder was not made:\n{self.last_log()}")

    def start(self, answers: Callable[[], bool]) -> None:
        """Starts it, and returns when it answers. Raises BrokerFailedError."""
        self.process = self._java("kafka.Kafka", str(self._settings))
        until = time.monotonic() + self.patience_s
        while not answers():
            if self.process.poll() is not None or time.monotonic() > until:
                raise BrokerFailedError(f"Kafka does not answer:\n{self.last_log()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def last_log(self) -> str:
        """The end of what it has logged."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                [java(), *_OPTIONS, "-cp", f"{self.jars}/*", *arguments],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"


def settings(listeners: Sequence[Listener], controller: int) -> list[str]:
    """The settings of a broker that is alone; its controller listens at that port."""
    every = [*listeners, Listener("CONTROLLER", "PLAINTEXT", f"127.0.0.1:{controller}")]
    return [
        "process.roles=broker,controller",
        "node.id=1",
        f"controller.quorum.voters=1@127.0.0.1:{controller}",
        "controller.listener.names=CONTROLLER",
        "listeners=" + ",".join(f"{each.name}://{each.address}" for each in every),
        "listener.security.protocol.map="
        + ",".join(f"{each.name}:{each.protocol}" for each in every),
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.num.partitions=1",
        "group.initial.rebalance.delay.ms=0",
        # A broker that was killed comes back when the session of the one before has ended.
        "broker.session.timeout.ms=3000",
        "broker.heartbeat.interval.ms=1500",
        # By default it writes a record twice a second that says nothing.
        "metadata.max.idle.interval.ms=0",
        "auto.create.topics.enable=false",
    ]


def fetched_jars(say: Callable[[str], None]) -> Path:
    """The folder with the broker's jars, fetched by Spark's Ivy when they are not there yet.

    Raises BrokerMissingError.
    """
    given = os.environ.get(FOLDER)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given) if given else cache / "slackwater" / f"kafka-{VERSION}"
    if any(folder.glob(f"kafka_*-{VERSION}.jar")):
        return folder
    if given:
        raise BrokerMissingError(f"{FOLDER} names {given}, which has no Kafka {VERSION}.")
    say(f"Fetching Kafka {VERSION} into {folder} (44 MB, once)")
    with resources.as_file(resources.files("slackwater") / "demo" / "kafka.xml") as wanted:
        return retrieve(wanted, folder)


def retrieve(wanted: Path, folder: Path) -> Path:
    """The folder with the jars that a file of Ivy's names, fetched if there is no such folder.

    Spark's Ivy fetches them from where it is set to. Raises BrokerMissingError.
    """
    if folder.exists():
        return folder
    target = f"{folder}.part/[artifact]-[revision].[ext]"
    options = ("-warn", "-types", "jar", "bundle", "-ivy", str(wanted), "-retrieve", target)
    ended = subprocess.run(
        [java(), "-jar", str(_ivy()), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        said = ended.stdout.strip()[-2000:]
        raise BrokerMissingError(f"Ivy cannot fetch the jars of {wanted.name}:\n{said}")
    Path(f"{folder}.part").rename(folder)
    return folder


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at now, all different."""
    with ExitStack() as stack:
        holders = [stack.enter_context(socket.socket()) for _ in range(count)]
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [holder.getsockname()[1] for holder in holders]


def java() -> str:
    """The JVM that JAVA_HOME names, else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _ivy() -> Path:
    found = util.find_spec("pyspark")
    folder = Path(found.origin).parent / "jars" if found and found.origin else Path()
    return next(folder.glob("ivy-*.jar"))
