"""A real Kafka broker for tests: one process that is broker and controller, from the jars of
`make kafka`.

It listens without encryption, and with TLS and SCRAM. A topic belongs to one test.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.kafka.certificates import Certificates
from tests.support.server.ingress import held_port
from tests.support.waiting import PATIENCE, wait_until

from slackwater.demo.broker import FOLDER, BrokerProcess, Listener, settings

JARS = Path(os.environ.get(FOLDER) or Path(__file__).parents[3] / ".kafka")
USER, PASSWORD = "reader", "what nobody guesses"

_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
"""Clusters have an id of 16 bytes in base64."""


@dataclass(frozen=True)
class Ports:
    plain: int
    secure: int
    controller: int


@dataclass
class Broker:
    """One broker with its data in a directory of its own."""

    directory: Path
    ports: Ports
    certificates: Certificates
    cluster: str = _CLUSTER
    process: BrokerProcess = field(init=False)

    def __post_init__(self) -> None:
        self.process = BrokerProcess(self.directory, jars(), PATIENCE)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports.plain}"

    @property
    def secure_address(self) -> str:
        """Where it expects TLS and a login by SCRAM-SHA-256."""
        return f"localhost:{self.ports.secure}"

    @property
    def pid(self) -> int:
        """Of its process, which this one has started."""
        return self.process.process.pid

    def described(self) -> dict[str, object]:
        """Its ports and certificates, by the names of their fields."""
        return {"ports": asdict(self.ports), "certificates": asdict(self.certificates)}

    def format(self) -> None:
        """Makes an empty data directory, of which the cluster has the id `cluster`."""
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        login = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        self.process.format(self._settings(), self.cluster, "--add-scram", login)

    def start(self) -> None:
        self.process.start(self._answers)

    def stop(self) -> None:
        """Ends it at once, as a crash would."""
        self.process.kill()

    def restart(self) -> None:
        self.stop()
        self.start()

    def new_topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic. Settings have `_` for the dots in their names."""
        name = f"t{uuid.uuid4().hex}"
        self.create_topic(name, partitions, **config)
        return name

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, partitions, 1, config=settings)
        admin = self.admin()
        for future in admin.create_topics([topic]).values():
            future.result(PATIENCE)

    def delete_topic(self, name: str) -> None:
        """Returns when nobody finds it any more."""
        admin = self.admin()
        for future in admin.delete_topics([name]).values():
            future.result(PATIENCE)
        wait_until(
            lambda: name not in admin.list_topics(timeout=PATIENCE).topics,
            what="the topic is gone",
        )

    def add_partitions(self, name: str, total: int) -> None:
        """The topic has so many partitions from now on."""
        admin = self.admin()
        for future in admin.create_partitions([NewPartitions(name, total)]).values():
            future.result(PATIENCE)

    def delete_records(self, name: str, partition: int, before: int) -> None:
        """Messages before that offset go, as retention would remove them."""
        admin = self.admin()
        place = TopicPartition(name, partition, before)
        for future in admin.delete_records([place]).values():
            future.result(PATIENCE)

    def admin(self) -> AdminClient:
        """A client for administrators. What it was asked ends when nobody has it any more."""
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def producer(self, **more: str) -> Producer:
        """A producer to which a write is done when the broker has acknowledged it."""
        given = {key.replace("_", "."): value for key, value in more.items()}
        settings = {"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 0}
        return Producer({**settings, **given})

    def _settings(self) -> list[str]:
        keys = self.directory / "keys.pem"
        keys.write_text(self.certificates.server_pem)
        listeners = [
            Listener("PLAINTEXT", "PLAINTEXT", self.address),
            Listener("SASL_SSL", "SASL_SSL", self.secure_address),
        ]
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        return [
            *settings(listeners, self.ports.controller),
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keys}",
            "sasl.enabled.mechanisms=SCRAM-SHA-256",
            f"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={scram}",
        ]

    def _answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def jars() -> Path:
    """The folder with the broker's jars."""
    if not any(JARS.glob("kafka_*.jar")):
        raise RuntimeError(f"no Kafka in {JARS}: run make kafka")
    return JARS


@contextmanager
def running_broker() -> Iterator[Broker]:
    """A broker in a directory of its own, for as long as the block runs."""
    directory = Path(tempfile.mkdtemp(prefix="slackwater-kafka-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory)
        ports = Ports(*(stack.enter_context(held_port()) for _ in range(3)))
        broker = Broker(directory, ports, Certificates.new())
        stack.callback(broker.stop)
        broker.format()
        broker.start()
        yield broker


@contextmanager
def shared_broker(folder: Path) -> Iterator[Broker]:
    """The broker of all processes that name the folder: the first starts it, the last ends it."""
    folder = folder / "kafka"
    folder.mkdir(exist_ok=True)
    broker = _joined(folder)
    try:
        yield broker
    finally:
        _leave(folder)


def _joined(folder: Path) -> Broker:
    with _locked(folder) as state:
        known = json.loads(state.read_text()) if state.exists() else None
        if known is not None:
            broker = Broker(folder, Ports(**known["ports"]), Certificates(**known["certificates"]))
            state.write_text(json.dumps({**known, "users": known["users"] + 1}))
            return broker
        with ExitStack() as stack:
            ports = Ports(*(stack.enter_context(held_port()) for _ in range(3)))
            broker = Broker(folder, ports, Certificates.new())
            broker.format()
            broker.start()
        state.write_text(json.dumps({"users": 1, "pid": broker.pid, **broker.described()}))
        return broker


def _leave(folder: Path) -> None:
    with _locked(folder) as state:
        known = json.loads(state.read_text())
        if known["users"] > 1:
            state.write_text(json.dumps({**known, "users": known["users"] - 1}))
            return
        os.kill(known["pid"], signal.SIGKILL)
        shutil.rmtree(folder / "data")
        state.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    """The file that says what runs, which nobody else reads or writes in the block."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / "running.json"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that do not break it; each has topics of its own.

    The processes of a run share it.
    """
    folder = tmp_path_factory.getbasetemp()
    is_shared = "PYTEST_XDIST_WORKER" in os.environ
    with shared_broker(folder.parent if is_shared else folder) as broker:
        yield broker
