"""Certificates as files, for libraries that take them in no other way."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slackwater.storage.access import Tls


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The paths of the certificates; None: there is no such one."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None


@contextmanager
def certificate_files(tls: Tls) -> Iterator[CertificateFiles]:
    """The certificates in a folder that is open to its user alone, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="slackwater-") as folder:

        def written(name: str, text: str | None) -> str | None:
            if text is None:
                return None
            path = Path(folder) / name
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            return str(path)

        yield CertificateFiles(
            written("authority.pem", tls.authority),
            written("certificate.pem", tls.certificate),
            written("key.pem", tls.key),
        )
