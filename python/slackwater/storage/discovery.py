"""Discovery: the files that a source's PATH names.

A PATH is a file, a directory (its files, not those of its subdirectories), or a glob: ``*``, ``?``
and ``[...]`` within a name, ``**`` for any number of directories. A name that is there as it is
written is no pattern. Below the fixed part of the path, names that begin with ``.`` or ``_`` are
left out. ``**`` does not follow symbolic links.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from slackwater.repr.errors import unsupported

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as it was seen. `path` is absolute."""

    path: str
    size_bytes: int
    modified_ns: int


def local_path(uri: str, base: Callable[[], str]) -> str:
    """The absolute path for a PATH option: ``file:`` URI, absolute, or relative to that of `base`.

    Raises SLACKWATER_UNSUPPORTED for other schemes, and for a relative path when `base` raises
    OSError: the working folder has been removed.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", uri)
    if scheme is None:
        return os.path.normpath(
            uri if os.path.isabs(uri) else os.path.join(_folder(uri, base), uri)
        )
    parts = urlsplit(uri.replace("?", "%3F").replace("#", "%23"))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise unsupported(
            f"A PATH with the scheme {parts.scheme}",
            advice="Give a path of the local file system, or a file: URI.",
        )
    return os.path.abspath(unquote(parts.path))


def _folder(path: str, base: Callable[[], str]) -> str:
    try:
        return base()
    except OSError:
        raise unsupported(
            f"The relative path {path}, as the working folder of the leading application is gone,",
            advice="Give an absolute path.",
        ) from None


def find_files(path: str, pattern: str | None) -> list[FoundFile]:
    """The files that `path` names now, and whose name matches the glob `pattern`, in no order.

    A directory that does not exist holds no files. Raises OSError for one that cannot be listed.
    """
    root, segments = _fixed(path)
    if not segments:
        if not os.path.isdir(root):
            return [] if (one := _stat(root)) is None else [one]
        segments = ["*"]
    keep = re.compile(fnmatch.translate(pattern)) if pattern is not None else None
    found = dict[str, FoundFile]()
    for entry in _walk(root, segments):
        if keep is None or keep.match(entry.name):
            try:
                seen = entry.stat()
            except FileNotFoundError:
                continue
            found[entry.path] = FoundFile(entry.path, seen.st_size, seen.st_mtime_ns)
    return list(found.values())


def in_order(files: Iterable[FoundFile]) -> list[FoundFile]:
    """The files in the order in which a source takes them."""
    return sorted(files, key=lambda file: (file.modified_ns, file.path))


def _fixed(path: str) -> tuple[str, list[str]]:
    """The fixed part of a path, and the names of its glob after that, if it is one."""
    root, names = os.sep, [name for name in path.split(os.sep) if name]
    for i, name in enumerate(names):
        named = os.path.join(root, name)
        if _GLOB.search(name) and not os.path.lexists(named):
            return root, names[i:]
        root = named
    return root, []


def _stat(path: str) -> FoundFile | None:
    try:
        seen = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FoundFile(path, seen.st_size, seen.st_mtime_ns)


def _walk(directory: str, segments: list[str]) -> Iterator[os.DirEntry[str]]:
    segment, rest = segments[0], segments[1:]
    deep = segment == "**"
    if deep and rest:
        yield from _walk(directory, rest)
    matches = re.compile(fnmatch.translate("*" if deep else segment)).match
    try:
        entries = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.name[0] in "._" or not matches(entry.name):
                continue
            if deep and entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, segments)
            elif rest and not deep and entry.is_dir():
                yield from _walk(entry.path, rest)
            elif not rest and entry.is_file():
                yield entry
