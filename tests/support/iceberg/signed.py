"""A server of Iceberg's REST protocol that wants signed requests, as S3 Tables does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SERVICE = "s3tables"
REFUSED = b'{"error": {"message": "not signed", "type": "NotAuthorizedException", "code": 403}}'


@dataclass
class SignedServer:
    """Where it listens, and how many requests it has refused."""

    url: str
    refused: int = 0


@contextmanager
def signed_server(behind: str, access_key: str, secret_key: str) -> Iterator[SignedServer]:
    """Gives requests to the server `behind` that are signed by these keys, and refuses others."""
    credentials = Credentials(access_key, secret_key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            if not is_signed(self, body, credentials):
                known.refused += 1
                self.answer(403, REFUSED)
                return
            kept = {"Content-Type": self.headers.get("Content-Type") or "application/json"}
            found = requests.request(
                self.command, behind + self.path, data=body, headers=kept, timeout=60
            )
            self.answer(found.status_code, found.content)

        def do_POST(self) -> None:
            self.do_GET()

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known = SignedServer(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()


def is_signed(request: BaseHTTPRequestHandler, body: bytes, credentials: Credentials) -> bool:
    """Whether the request has the signature that botocore makes of it with these keys."""
    kind, _, rest = (request.headers.get("Authorization") or "").partition(" ")
    if kind != "AWS4-HMAC-SHA256":
        return False
    parts = dict(each.strip().split("=", 1) for each in rest.split(","))
    _, _, region, service, _ = parts["Credential"].split("/")
    address = urlsplit(request.path)
    told = {each: request.headers[each] for each in parts["SignedHeaders"].split(";")}
    host = f"http://{request.headers['Host']}{address.path}"
    params = dict(parse_qsl(address.query))
    again = AWSRequest(request.command, host, params=params, data=body, headers=told)
    again.context["timestamp"] = told["x-amz-date"]
    signing = SigV4Auth(credentials, service, region)
    text = signing.string_to_sign(again, signing.canonical_request(again))
    return service == SERVICE and signing.signature(text, again) == parts["Signature"]
