"""A real schema registry, from what `make registry` fetches: Apicurio, which knows Confluent's API.

It keeps its schemas in memory. It gives schemas of Protobuf as texts alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.server.ingress import held_port
from tests.support.waiting import wait_until

from slackwater.demo.broker import java

FOLDER = Path(__file__).parents[3] / ".registry"
_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class Apicurio:
    """The registry at that address."""

    address: str

    def register(self, subject: str, schema: str, kind: str, **references: str) -> int:
        """The id of a schema. References are the subjects of what it refers to, in their first
        versions, by the names of the files without their endings."""
        found = [
            {"name": f"{name}.proto", "subject": each, "version": 1}
            for name, each in references.items()
        ]
        body = json.dumps({"schema": schema, "schemaType": kind, "references": found}).encode()
        request = urllib.request.Request(
            f"{self.address}/subjects/{subject}/versions",
            body,
            {"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request) as answer:
            return int(json.load(answer)["id"])

    def answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"{self.address}/subjects"):
            return True
        return False


@contextmanager
def running_registry(folder: Path) -> Iterator[Apicurio]:
    """A registry for as long as the block runs, which logs into the folder."""
    (jar,) = FOLDER.glob("*-runner.jar")
    with held_port() as port, open(folder / "log", "wb") as log:
        host, number = "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"
        process = subprocess.Popen(
            [java(), *_OPTIONS, host, number, "-jar", str(jar)],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            found = Apicurio(f"http://127.0.0.1:{port}/apis/ccompat/v7")
            wait_until(found.answers, what="the registry answers")
            yield found
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """One registry for the tests of a file; each has topics, and so subjects, of its own."""
    with running_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found
