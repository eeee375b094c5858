"""A real Kafka broker for tests: one process that is broker and controller, from the jars of
`make kafka`.

It listens without encryption, and with TLS and SCRAM. A topic belongs to one test.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
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


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """One broker for all tests that do not break it; each has topics of its own."""
    with running_broker() as broker:
        yield broker
