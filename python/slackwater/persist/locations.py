"""The location of an environment: its one URI form, and what that means.

The location is a directory (a path or a ``file:`` URI) or ``s3://bucket/prefix``. It holds the
files of the collections. An S3 location has no place for an SQLite file, nor for what belongs to
the running coordinator (log, token): those are in a directory of this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from slackwater.persist.uris import file_uri, local_path
from slackwater.repr.errors import invalid_option, user_error

if TYPE_CHECKING:
    # What joins a leader reads and writes no files.
    from slackwater.persist.blobs import Blobs


@dataclass(frozen=True, slots=True)
class Location:
    """`uri` says where the files are, `local` where this machine's own ones are."""

    uri: str
    local: Path

    @property
    def is_local(self) -> bool:
        """Whether the files are in a directory."""
        return self.uri.startswith("file:")

    def blobs(self, environment: Mapping[str, str]) -> Blobs:
        """Access to the files. `environment` has the standard variables of AWS.

        Raises SLACKWATER_STORAGE_UNAVAILABLE; see `S3Blobs.at`.
        """
        if self.is_local:
            from slackwater.persist.blobs import LocalBlobs

            return LocalBlobs(self.local)
        from slackwater.persist.s3 import S3Blobs, S3Settings

        return S3Blobs.at(self.uri, S3Settings.of(environment))

    def metastore(self, url: str | None, environment: Mapping[str, str]) -> str | URL:
        """The metastore's URL: `url` with its password, or SQLite in the directory.

        The latter is no text: a path may have characters that mean something in a URL.

        Raises SLACKWATER_METASTORE_REQUIRED for a location in S3 without one, and what
        `with_password` raises.
        """
        if url:
            return with_password(url, environment)
        if not self.is_local:
            raise user_error("SLACKWATER_METASTORE_REQUIRED", location=self.uri)
        return URL.create("sqlite", database=str(self.local / "metastore.sqlite"))

    def given_metastore(self, given: str | None, environment: Mapping[str, str]) -> str | URL:
        """The URL of the metastore as a command gets it: `given`, else as the variables say.

        `given` may have a password, which wins over that of the variables. Raises what `metastore`
        raises.
        """
        if given is None:
            return self.metastore(environment.get(METASTORE), environment)
        url, password = without_password(given)
        own = {} if password is None else {PASSWORD: password}
        return self.metastore(url, {**environment, **own})


METASTORE = "SLACKWATER_METASTORE"
"""The variable with the URL of the metastore."""
PASSWORD = "SLACKWATER_METASTORE_PASSWORD"
PASSWORD_FILE = "SLACKWATER_METASTORE_PASSWORD_FILE"


def with_password(url: str, environment: Mapping[str, str]) -> str:
    """`url` with the password that the variables or the file they name hold.

    The end of the file's last line is not part of it. Raises SLACKWATER_INVALID_OPTION when the
    file cannot be read, and SLACKWATER_PASSWORD_SHOWN when `url` has a password itself.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url
    if _own_password(parsed):
        raise user_error(
            "SLACKWATER_PASSWORD_SHOWN", key="spark.slackwater.metastore", variable=PASSWORD
        )
    if parsed.get_backend_name() == "sqlite":
        return url
    password = environment.get(PASSWORD)
    path = environment.get(PASSWORD_FILE)
    if not password and path:
        try:
            password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise invalid_option(
                "spark.slackwater.metastore.passwordFile",
                "the configuration",
                repr(path),
                error.strerror or type(error).__name__,
            ) from None
    if not password:
        return url
    return parsed.set(password=password).render_as_string(hide_password=False)


def without_password(url: str) -> tuple[str, str | None]:
    """`url` without its password, and that."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return url, None
    password = _own_password(parsed)
    if password is None:
        return url, None
    bare = parsed._replace(password=None).difference_update_query(["password"])
    return bare.render_as_string(hide_password=False), password


def _own_password(url: URL) -> str | None:
    password = url.password or url.query.get("password")
    return str(password) if password else None


def parse_location(text: str, environment: Mapping[str, str]) -> Location:
    """The location that `text` names. `environment` says where a user's state is on this machine.

    Raises SLACKWATER_INVALID_OPTION when an S3 URI is wrong, and SLACKWATER_UNSUPPORTED for
    another scheme.
    """
    if not re.match("s3a?://", text):
        # As the shim does, which tells environments apart by it.
        path = Path(os.path.abspath(local_path(text)))
        return Location(file_uri(path), path)
    from slackwater.persist.s3 import s3_location

    uri = s3_location(text)
    state = environment.get("XDG_STATE_HOME") or _home(text) / ".local" / "state"
    name = f"{uri.removeprefix('s3://').replace('/', '-')[-40:]}-{_digest(uri)}"
    return Location(uri, Path(state) / "slackwater" / name)


def _home(location: str) -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise invalid_option(
            "spark.slackwater.location",
            "the session",
            location,
            "an environment in S3 keeps its log in a folder of this machine, and this user has no "
            "home folder; the variable XDG_STATE_HOME may name one",
        ) from None


def _digest(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:12]
