"""The folder of a Delta table: of the local file system, or below a prefix of S3.

delta-rs reads and commits there by a URL and options, we read files by PyArrow. Both get the same
credentials. In S3 a version is an object that is written if it is not there yet
(``If-None-Match``): so the store, not a lock beside it, lets one of two writers be first.

Source: docs/decisions 0076, 0079.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from slackwater.adapter.external.aws import in_role
from slackwater.persist.s3 import S3Settings, s3_file_system
from slackwater.storage.access import AwsAccess

LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")
_COLOURS = re.compile("\x1b\\[[0-9;]*m")
_S3 = "s3://"
_LIMITS = {
    "connect_timeout": "5s",
    "timeout": "20s",
    "max_retries": "3",
    "retry_timeout": "30s",
    "aws_conditional_put": "etag",
}
"""Those of delta-rs for a request; by itself it tries for minutes what does not answer."""

Seen = tuple[int, int]
"""The time at which a file was written, and its size."""


@dataclass(frozen=True, slots=True)
class DeltaFolder:
    """One folder. `uri` is its path, or ``s3://bucket/prefix``; `root` is what `files` calls it."""

    uri: str
    root: str
    files: Any
    """A `pyarrow.fs.FileSystem`."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those that delta-rs takes for it."""
    settings: S3Settings | None = None

    @staticmethod
    def at(uri: str, access: AwsAccess | None = None) -> DeltaFolder:
        """The folder of that name; `access` None: S3 is reached as the variables of AWS say.

        Nothing is read yet. Raises `RoleRefused`, SLACKWATER_CONNECTOR_MISSING for a role, and
        SLACKWATER_STORAGE_UNAVAILABLE when the region of a bucket is not given and cannot be found
        out.
        """
        if not uri.startswith(_S3):
            return DeltaFolder(uri, uri, fs.LocalFileSystem())
        settings = S3Settings.of(os.environ) if access is None else _settings(in_role(access))
        files = s3_file_system(uri, settings)
        return DeltaFolder(
            uri, uri.removeprefix(_S3), files, _options(settings, files.region), settings
        )

    @property
    def is_local(self) -> bool:
        return self.settings is None

    @property
    def url(self) -> str:
        """The folder as delta-rs takes it, with all characters of its path."""
        return Path(self.uri).as_uri() if self.is_local else self.uri

    def opened(self, library: Any, version: int | None = None) -> Any:
        """The table as delta-rs has it in a version; None: in the last one."""
        return library.DeltaTable(self.url, version=version, storage_options=dict(self.options))

    def make(self) -> None:
        """Makes the folder; in S3 there is none to make."""
        if self.is_local:
            os.makedirs(self.root, exist_ok=True)

    def last_entry(self) -> int | None:
        """The number of the last entry of the log, all of which are listed. Raises OSError."""
        selector = fs.FileSelector(f"{self.root}/{LOG}")
        names = (each.base_name for each in self.files.get_file_info(selector))
        found = (_ENTRY.fullmatch(name) for name in names)
        return max((int(each[1]) for each in found if each is not None), default=None)

    def entry(self, number: int) -> str:
        """The entry of a version, as `files` calls it."""
        return f"{self.root}/{LOG}/{number:020}.json"

    def seen(self, path: str) -> Seen | None:
        """The mark by which a file is known from another at its place; None: it is gone.

        Raises OSError.
        """
        (found,) = self.files.get_file_info([path])
        return (found.mtime_ns, found.size) if found.type == fs.FileType.File else None

    def read(self, path: str) -> bytes:
        """The whole of a small file. Raises FileNotFoundError, OSError."""
        with self.files.open_input_stream(path) as found:
            return bytes(found.read())

    def open(self, path: str) -> pa.NativeFile:
        """A file for reading from any place. Raises FileNotFoundError, OSError."""
        return self.files.open_input_file(path)

    def place(self, path: str) -> str | None:
        """The file that an entry of the log, or delta-rs, means by `path`, as `files` calls it.

        None: one of another file system.
        """
        split = urlsplit(path)
        if split.scheme == "file":
            return unquote(split.path) if self.is_local else None
        if not split.scheme or not path.startswith(f"{split.scheme}://"):
            return os.path.join(self.root, unquote(path))
        is_near = split.scheme in ("s3", "s3a") and not self.is_local
        return split.netloc + unquote(split.path) if is_near else None

    def sync(self, version: int) -> None:
        """Makes a version of the table durable: delta-rs leaves that to the operating system.

        An object of S3 is durable when it is there.
        """
        if not self.is_local:
            return
        entry = self.entry(version)
        with open(entry, encoding="utf-8") as lines:
            actions = [json.loads(line) for line in lines]
        paths = [unquote(each["add"]["path"]) for each in actions if "add" in each]
        files = [os.path.join(self.root, path) for path in paths]
        folders = {os.path.dirname(path) for path in files}
        log = os.path.join(self.root, LOG)
        ends = (entry, log, self.root, os.path.dirname(self.root))
        for path in (*files, *sorted(folders), *ends):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def reason(self, error: BaseException) -> str:
        """The text of an error of delta-rs or PyArrow, in one line and without secrets."""
        text = " ".join(_COLOURS.sub("", str(error)).split()) or type(error).__name__
        return text if self.settings is None else self.settings.hide(text)


def _settings(access: AwsAccess) -> S3Settings:
    return S3Settings(
        access.endpoint,
        access.region,
        access.access_key_id,
        access.secret_access_key,
        access.session_token,
    )


def _options(settings: S3Settings, region: str) -> Mapping[str, str]:
    found = {
        "aws_endpoint_url": settings.endpoint,
        "aws_allow_http": "true" if (settings.endpoint or "").startswith("http:") else None,
        "aws_region": region,
        "aws_access_key_id": settings.access_key,
        "aws_secret_access_key": settings.secret_key,
        "aws_session_token": settings.session_token,
    }
    return {**_LIMITS, **{name: value for name, value in found.items() if value is not None}}
