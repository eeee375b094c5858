"""The Javas of this machine on which Spark runs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slackwater.doctor import SUPPORTED_JAVA

_INSTALLED = Path("/usr/lib/jvm")
_VERSION = re.compile(r'^JAVA_VERSION="([0-9]+)', re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Java:
    """An installed Java: its major version, and what `JAVA_HOME` would be."""

    major: int
    home: Path


def newest() -> Java:
    """The newest Java that Spark supports, of those that are here."""
    return max(java for home in _homes() if (java := _java_at(home)))


def _java_at(home: Path) -> Java | None:
    try:
        found = _VERSION.search((home / "release").read_text())
    except OSError:
        return None
    if found is None or not (home / "bin/java").exists():
        return None
    major = int(found[1])
    return Java(major, home) if major in SUPPORTED_JAVA else None


def _homes() -> Iterable[Path]:
    """Where a Java may be: what is named, where the command is, and where Debian keeps them."""
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    command = shutil.which("java")
    if command is not None:
        yield Path(command).resolve().parents[1]
    if _INSTALLED.is_dir():
        yield from _INSTALLED.iterdir()
