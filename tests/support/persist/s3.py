"""An S3-compatible server for tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyarrow import fs

from slackwater.storage.access import AwsAccess

ACCESS_KEY = "access-of-the-tests"
SECRET_KEY = "secret-of-the-tests"


@dataclass(frozen=True)
class S3Server:
    """Where it listens, as the AWS SDKs are told."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    @property
    def access(self) -> AwsAccess:
        """The way there as a connection gives it."""
        return AwsAccess("us-east-1", self.endpoint, ACCESS_KEY, SECRET_KEY, secrets=(SECRET_KEY,))

    def files(self) -> fs.S3FileSystem:
        """Access that does not go through our own code."""
        return fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def new_bucket(self) -> str:
        name = f"bucket-{uuid.uuid4().hex}"
        self.files().create_dir(name)
        return name


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3Server(f"http://{host}:{port}")
    server.stop()
