"""Records the messages of a real Debezium over a real MariaDB: `make debezium`.

    python -m tests.support.kafka.debezium FOLDER_OF_JARS FILE

The file gets a line of JSON for each message: topic, key and value. MariaDB calls itself MySQL 5.7,
as the connector for MySQL refuses others; it has to be installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer
from tests.support.kafka.broker import Broker, running_broker
from tests.support.server.ingress import held_port
from tests.support.waiting import wait_until

USER, PASSWORD = "debezium", "what nobody guesses"
CONNECTORS: Mapping[str, Mapping[str, str]] = {
    "bare": {
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
    },
    "full": {
        "decimal.handling.mode": "precise",
        "bigint.unsigned.handling.mode": "precise",
        "time.precision.mode": "connect",
    },
}
"""The settings of connectors by their names, which are the prefixes of their topics."""

BEFORE = """
CREATE TABLE orders (
  id INT PRIMARY KEY, customer VARCHAR(20) NOT NULL, amount DECIMAL(10, 2), made DATETIME(6),
  seen TIMESTAMP(3) NULL, day DATE, at TIME(3), big BIGINT UNSIGNED, flag TINYINT(1),
  bits BINARY(4), doc JSON, kind ENUM('a', 'b'), ratio DOUBLE);
INSERT INTO orders VALUES
  (1, 'ann', 10.00, '2023-11-14 22:13:20.000001', '2023-11-14 22:13:20.123', '2023-11-14',
   '12:34:56.789', 18446744073709551615, 1, x'00ff0102', '{"a": 1}', 'a', 0.5),
  (2, 'bøb', 5.00, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
CHANGES = """
UPDATE orders SET amount = 12.50 WHERE id = 1;
INSERT INTO orders (id, customer, big) VALUES (3, 'cy', 9223372036854775807);
DELETE FROM orders WHERE id = 2;
UPDATE orders SET id = 4 WHERE id = 3;
ALTER TABLE orders ADD COLUMN note VARCHAR(9) DEFAULT 'x';
INSERT INTO orders (id, customer) VALUES (5, 'dee');
TRUNCATE orders;
INSERT INTO orders (id, customer, amount) VALUES (6, 'eve', -0.05)
"""
ROWS, MESSAGES = 2, 12
"""So many messages each connector writes of the first rows, and of everything."""


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


class Database:
    """A MariaDB with its data in a folder of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.command = [
            *("mariadbd", "--no-defaults", f"--datadir={folder}/data", "--user=root"),
            *(f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket"),
            *("--version=5.7.19-log", "--server-id=1", "--log-bin=binlog"),
            *("--binlog-format=ROW", "--binlog-row-image=FULL"),
        ]

    def make(self) -> None:
        """Makes the files of an empty one."""
        options = ("--user=root", "--auth-root-authentication-method=normal", "--skip-test-db")
        command = ["mariadb-install-db", "--no-defaults", f"--datadir={self._folder}/data"]
        subprocess.run([*command, *options], check=True, capture_output=True)

    def run(self, statements: str, database: str = "") -> None:
        client = ["mariadb", "--no-defaults", f"--socket={self._folder}/socket", "-uroot"]
        client += ["--default-character-set=utf8mb4", f"--execute={statements}"]
        named = [database] if database else []
        subprocess.run([*client, *named], check=True, capture_output=True)

    def answers(self) -> bool:
        try:
            self.run("SELECT 1")
        except subprocess.CalledProcessError:
            return False
        return True


def recorded(jars: Path, folder: Path, broker: Broker) -> list[list[str | None]]:
    """The messages of both connectors, each in its order."""
    with held_port() as port, held_port() as rest:
        database = Database(folder, port)
        database.make()
        with running(database.command, folder / "database.log"):
            wait_until(database.answers, what="the database answers")
            database.run(
                f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON *.* TO {USER};"
                " CREATE DATABASE shop"
            )
            database.run(BEFORE, "shop")
            files = [
                _file(folder / f"{name}.properties", _connector(name, number, port, broker))
                for number, name in enumerate(CONNECTORS)
            ]
            command = ["java", "-Xmx400m", "-cp", f"{jars}/*"]
            command += ["org.apache.kafka.connect.cli.ConnectStandalone"]
            worker = _file(folder / "worker.properties", _worker(folder, rest, broker))
            with running([*command, worker, *files], folder / "connect.log") as connect:
                return _messages(broker, connect, lambda: database.run(CHANGES, "shop"))


def _messages(broker, connect, change) -> list[list[str | None]]:
    settings = {"bootstrap.servers": broker.address, "group.id": "g", "log_level": 0}
    consumer = Consumer(
        {**settings, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 500}
    )
    consumer.subscribe([rf"^({'|'.join(CONNECTORS)})\.shop\..*"])
    found: list[list[str | None]] = []

    def has(count: int) -> bool:
        assert connect.poll() is None, "Kafka Connect has ended: connect.log says why"
        message = consumer.poll(0.1)
        while message is not None:
            if message.error() is None:
                parts = (message.key(), message.value())
                texts = [None if each is None else each.decode() for each in parts]
                found.append([message.topic(), *texts])
            message = consumer.poll(0.1)
        return len(found) >= count * len(CONNECTORS)

    wait_until(lambda: has(ROWS), what="the first rows are there")
    change()
    wait_until(lambda: has(MESSAGES), what="the changes are there")
    consumer.close()
    return found


def _worker(folder: Path, rest: int, broker: Broker) -> Mapping[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.file.filename": str(folder / "offsets"),
        "listeners": f"http://127.0.0.1:{rest}",
    }


def _connector(name: str, number: int, port: int, broker: Broker) -> Mapping[str, str]:
    history = "schema.history.internal.kafka"
    return {
        "name": name,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": str(4711 + number),
        "database.ssl.mode": "disabled",
        "database.include.list": "shop",
        "topic.prefix": name,
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        f"{history}.bootstrap.servers": broker.address,
        f"{history}.topic": f"{name}-history",
        "skipped.operations": "none",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        **CONNECTORS[name],
    }


def _file(path: Path, settings: Mapping[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def main() -> None:
    jars, file = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder, running_broker() as broker:
        found = recorded(jars.resolve(), Path(folder), broker)
    lines = [json.dumps(each, ensure_ascii=False) for each in sorted(found, key=lambda m: m[0])]
    file.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
