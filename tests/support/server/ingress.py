"""Talks to an ingress over HTTP, and builds what its tests need."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from urllib.parse import urlsplit

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.support.waiting import PATIENCE


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    text: str
    headers: dict


@contextlib.contextmanager
def held_port():
    """A port of 127.0.0.1 for a listener of the product: nobody else gets it in the block.

    The socket that holds it does not listen, so that one that does may be bound beside it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def port():
    with held_port() as held:
        yield held


def request(url, body=b"", headers=(), *, method="POST", timeout_s=PATIENCE, trusted=None):
    """One request on a connection of its own. `headers`: pairs, or a dictionary."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=trusted)
        connection = http.client.HTTPSConnection(parts.netloc, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    given = list(headers.items()) if isinstance(headers, dict) else list(headers)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.putrequest(method, target, skip_accept_encoding=True)
        if not any(name.lower() in ("content-length", "transfer-encoding") for name, _ in given):
            connection.putheader("Content-Length", str(len(body)))
        for name, value in given:
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        text = response.read().decode()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, text, found)
    finally:
        connection.close()


def certificate(folder):
    """A certificate for 127.0.0.1 that signs itself, and its key, as files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


class Signer:
    """A key that signs tokens, and the file with its public half."""

    def __init__(self, folder, kind="ES256"):
        self._kind = kind
        self._key = (
            ec.generate_private_key(ec.SECP256R1())
            if kind.startswith("ES")
            else rsa.generate_private_key(65537, 2048)
        )
        self.file = folder / f"{kind}.pem"
        self.file.write_bytes(
            self._key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    def token(self, *schemas, claim="slackwater", algorithm=None, **more):
        claims = {"jti": "one", claim: {"schemas": [list(each) for each in schemas]}, **more}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self._key, algorithm=algorithm or self._kind)
