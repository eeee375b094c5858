"""Paths of this machine as URIs, and the other way round."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slackwater.repr.errors import unsupported


def local_path(uri: str) -> Path:
    """The path that a ``file:`` URI (or a plain path) names.

    Raises SLACKWATER_UNSUPPORTED for other schemes.
    """
    # A path has no query and no fragment.
    split = urlsplit(uri.replace("?", "%3F").replace("#", "%23"))
    if split.scheme == "file":
        if split.netloc not in ("", "localhost"):
            raise unsupported(
                f"A location on the host {split.netloc}",
                advice=f"Write file:///{split.netloc}{split.path} for a folder of this machine.",
            )
        return Path(unquote(split.path))
    # Hadoop takes hdfs:/x for a URI too; one letter, or a colon further on, is part of a path.
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", uri) is None:
        return Path(uri).absolute()
    raise unsupported(
        f"A location of the scheme {split.scheme}",
        advice="Use a directory that all processes share, or s3://bucket/prefix.",
    )


def file_uri(path: Path) -> str:
    """The absolute ``file:///`` URI of a path."""
    return path.absolute().as_uri()
