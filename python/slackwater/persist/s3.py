"""The files of an environment in S3 or a store that speaks its protocol.

An object appears when its upload is complete, and S3 keeps its promise of reading what was written;
so no temporary names are needed. Credentials never occur in texts. Source: spec controllers 3.1.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from slackwater.persist.blobs import PLAIN_NAME, Blob
from slackwater.repr.clock import wall_clock_ms
from slackwater.repr.errors import SlackwaterError, invalid_option, user_error

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
"""The form of the names of buckets."""
_PREFIX = re.compile(r"([A-Za-z0-9_=+-][A-Za-z0-9._=+-]*/?)*")
_CONNECT_TIMEOUT_S = 5
_REQUEST_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The access to the store. What is None is found as the AWS SDK finds it."""

    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @staticmethod
    def of(environment: Mapping[str, str]) -> S3Settings:
        """The access that the standard variables of AWS give (``AWS_ACCESS_KEY_ID`` and so on)."""

        def first(*names: str) -> str | None:
            return next((environment[name] for name in names if environment.get(name)), None)

        return S3Settings(
            endpoint=first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
            region=first("AWS_REGION", "AWS_DEFAULT_REGION"),
            access_key=first("AWS_ACCESS_KEY_ID"),
            secret_key=first("AWS_SECRET_ACCESS_KEY"),
            session_token=first("AWS_SESSION_TOKEN"),
        )

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        for secret in (self.secret_key, self.session_token, self.access_key):
            text = text.replace(secret, "***") if secret else text
        return text


def s3_location(uri: str) -> str:
    """``s3://bucket/prefix`` from that or from the form with ``s3a:``, without a last slash.

    Raises SLACKWATER_INVALID_OPTION when the bucket or the prefix cannot be one.
    """
    split = urlsplit(uri)
    prefix = split.path.strip("/")
    plain = BUCKET.fullmatch(split.netloc) is not None and _PREFIX.fullmatch(prefix) is not None
    if not plain or split.query or split.fragment:
        # The text may hold credentials (s3://key:secret@bucket), so it is not shown.
        raise invalid_option(
            "spark.slackwater.location",
            "the session",
            "(hidden)",
            "it is not s3://bucket/prefix, with letters, digits and ._=+- only",
        )
    return f"s3://{split.netloc}/{prefix}".rstrip("/")


@dataclass(frozen=True, slots=True)
class S3Blobs:
    """Objects below ``s3://bucket/prefix``."""

    root: str
    settings: S3Settings
    files: Any
    """A `pyarrow.fs.FileSystem`."""

    @staticmethod
    def at(uri: str, settings: S3Settings) -> S3Blobs:
        """The objects below `uri`. Nothing is read or written yet.

        Raises SLACKWATER_INVALID_OPTION, and SLACKWATER_STORAGE_UNAVAILABLE when the region of
        the bucket is not given and cannot be found out.
        """
        root = s3_location(uri)
        return S3Blobs(root, settings, s3_file_system(root, settings))

    def uri(self, *names: str) -> str:
        return "/".join((self.root, *names))

    def put(self, directory: str, suffix: str, write: Callable[[BinaryIO], object]) -> Blob:
        uri = f"{directory}/{uuid.uuid4().hex}{suffix}"
        # PyArrow completes an upload also when its writer raises: so it gets the whole at once.
        whole = io.BytesIO()
        try:
            write(whole)
            with self.files.open_output_stream(_key(uri)) as upload:
                upload.write(whole.getbuffer())
        except OSError as error:
            raise self._unavailable(directory, error) from None
        return Blob(uri, whole.tell(), wall_clock_ms())

    def own(self, uri: str, directory: str) -> str | None:
        folder, _, name = _key(uri).rpartition("/")
        is_own = "://" in uri and folder == _key(directory) and PLAIN_NAME.fullmatch(name)
        return f"{directory}/{name}" if is_own else None

    def settle(self, uris: Iterable[str]) -> None:
        """An object that is complete is durable."""

    def open(self, uri: str) -> pa.NativeFile:
        return self.files.open_input_file(_key(uri))

    def outage(self, uri: str, error: OSError) -> SlackwaterError | None:
        # An error of the store has no errno but this text; of a damaged file Parquet speaks.
        if isinstance(error, FileNotFoundError) or "AWS Error" not in str(error):
            return None
        return self._unreadable(uri, error)

    def delete(self, uri: str) -> None:
        try:
            self.files.delete_file(_key(uri))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(uri, error) from None

    def remove_directory(self, directory: str) -> None:
        """An object needs no directory."""

    def list(self, directory: str) -> Iterator[Blob]:
        selector = fs.FileSelector(_key(directory), allow_not_found=True, recursive=True)
        try:
            found = self.files.get_file_info(selector)
        except OSError as error:
            raise self._unreadable(directory, error) from None
        for info in found:
            if info.type == fs.FileType.File:
                yield Blob(f"s3://{info.path}", info.size, info.mtime_ns // 1_000_000)

    def _unreadable(self, uri: str, error: OSError) -> SlackwaterError:
        return user_error("SLACKWATER_STORAGE_UNREADABLE", path=uri, reason=self._reason(error))

    def _unavailable(self, uri: str, error: OSError) -> SlackwaterError:
        return user_error(
            "SLACKWATER_STORAGE_UNAVAILABLE",
            what=f"a data file below {uri}",
            reason=self._reason(error),
        )

    def _reason(self, error: OSError) -> str:
        lines = str(error).splitlines()
        return self.settings.hide(lines[0] if lines else type(error).__name__)


def _key(uri: str) -> str:
    """Bucket and key, as PyArrow names objects."""
    return re.sub("^s3a?://", "", uri)


def s3_file_system(root: str, settings: S3Settings) -> Any:
    """A `pyarrow.fs.S3FileSystem` for the bucket of ``s3://bucket/prefix``.

    Raises SLACKWATER_STORAGE_UNAVAILABLE when the region is not given and cannot be found out.
    """
    options: dict[str, Any] = {}
    if settings.endpoint is not None:
        split = urlsplit(
            settings.endpoint if "//" in settings.endpoint else f"//{settings.endpoint}"
        )
        options["endpoint_override"] = split.netloc
        options["scheme"] = split.scheme or "https"
    if settings.access_key is not None and settings.secret_key is not None:
        options["access_key"] = settings.access_key
        options["secret_key"] = settings.secret_key
        options["session_token"] = settings.session_token
    return fs.S3FileSystem(
        region=_region(root, settings),
        connect_timeout=_CONNECT_TIMEOUT_S,
        request_timeout=_REQUEST_TIMEOUT_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=3),
        # One request for a small object, instead of the three of an upload in parts.
        allow_delayed_open=True,
        **options,
    )


def _region(root: str, settings: S3Settings) -> str | None:
    if settings.region is not None:
        return settings.region
    if settings.endpoint is not None:
        return "us-east-1"
    bucket = urlsplit(root).netloc
    try:
        region: str = fs.resolve_s3_region(bucket)
    except OSError as error:
        raise user_error(
            "SLACKWATER_STORAGE_UNAVAILABLE",
            what=f"to the bucket {bucket}",
            reason=f"its region is not known: {settings.hide(str(error).splitlines()[0])}",
        ) from None
    return region
