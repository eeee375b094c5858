"""The folder of a FILES sink: how a range is committed, and who may write.

Everything that others can see is linked or renamed from a directory that belongs to one writer. Who
begins to write removes the directories of those before: whatever they are about to do then, they
have nothing to do it with. So a hung leader that comes back changes nothing, at whatever step.

A range is committed by the exclusive creation of its own small manifest, named after where the
last range ended. These manifests are the truth; they stay for ever. ``manifest.json``, which lists
all files, is made from them for readers, as often as its size allows.

Source: docs/decisions 0018, surface 4.1.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import GlobalId

MANIFEST = "manifest.json"
OWN = "_slackwater"
"""The folder of what readers have no use for. Spark and FILES sources leave such names out."""
COMMITS = "commits"
WRITING = "writing"

FREE_BYTES = 64 * 1024
"""A ``manifest.json`` up to this size is replaced with each range."""
BUSY_BYTES_PER_MS = 1024
"""A larger one is replaced so seldom that no more than this is written, on average."""
IDLE_BYTES_PER_MS = 64
"""The same while there are no new files."""
IDLE_MS = 1000
"""The wait after a range until the silence of its relation is told; it doubles each time."""
IDLE_MOST_MS = 15_000
"""The longest such wait."""


class FileSystem(Protocol):
    """The file operations of a sink; each may raise OSError."""

    def make_directory(self, path: str) -> None:
        """Creates the directory and its parents; one that exists is fine."""
        ...

    def list(self, path: str) -> tuple[str, ...]:
        """The names in the directory in their order; none when there is no such directory."""
        ...

    def exists(self, path: str) -> bool: ...

    def read(self, path: str) -> bytes | None:
        """The contents, or None when there is no such file."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Creates or overwrites the file; its contents are durable on return."""
        ...

    def link(self, source: str, target: str) -> bool:
        """Gives the file a second name. False, and nothing is changed, when the name is taken."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Renames atomically, over `target` if it exists."""
        ...

    def remove(self, path: str) -> None:
        """Removes the file; one that is gone is fine."""
        ...

    def remove_directory(self, path: str) -> None:
        """Removes the directory with all that is in it; one that is gone is fine."""
        ...

    def sync_directory(self, path: str) -> None:
        """Makes the names in a directory durable."""
        ...


class LocalFileSystem:
    """The operating system's files."""

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def list(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(path)))
        except FileNotFoundError:
            return ()

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as handle:
                return handle.read()
        except FileNotFoundError:
            return None

    def write(self, path: str, data: bytes) -> None:
        with open(path, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())

    def link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        while os.path.lexists(path):
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue
            except OSError as error:
                # Its writer is alive and has put something there meanwhile.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a leader to write a sink's files. `epoch` is that of the leader.

    `confirm` raises `Fenced` when another application leads, and what keeps it from finding out.
    `progress` is how far the sink has been reported to be, None if it was not. `name` is the sink's
    in messages.
    """

    sink_id: GlobalId
    name: str
    epoch: int
    confirm: Callable[[], None]
    progress: Frontier | None = None

    @contextmanager
    def asked_first(self) -> Iterator[None]:
        """Asks whether this leader still leads before the block's error is told: `Fenced`."""
        try:
            yield
        except SlackwaterError:
            self.confirm()
            raise


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a range that is being committed. Its name ends in `suffix`, without a dot."""

    data: bytes
    rows: int
    suffix: str


@dataclass(slots=True)
class _Known:
    """The committed files. `key`: where the last range with files ended, 0 before the first one.

    `entries` are the encoded entries of all files, `told` those and the frontier that
    ``manifest.json`` had when it was last seen.
    """

    frontier: Frontier | None = None
    key: int = 0
    entries: list[bytes] = field(default_factory=list)
    size: int = 0
    told: tuple[int, Frontier | None] = (0, None)

    def add(self, files: Sequence[dict[str, Any]]) -> None:
        for each in files:
            encoded = json.dumps(each).encode()
            self.entries.append(encoded)
            self.size += len(encoded) + 2
            self.key = max(self.key, int(each["upper"]))


class SinkFolder:
    """The folder of an open sink, for one writer. Not thread-safe."""

    def __init__(
        self,
        path: str,
        envelope: str,
        claim: Claim,
        files: FileSystem,
        clock: Callable[[], int],
    ) -> None:
        """Keeps all earlier writers of the sink out, and reads what is committed.

        What the claim says is reported is never taken back, and the files must be there. Raises
        `Fenced`, SLACKWATER_SINK_LOCATION_IN_USE, SLACKWATER_SINK_LOCATION_UNWRITABLE,
        SLACKWATER_NO_SPACE, SLACKWATER_METASTORE_UNAVAILABLE.
        """
        self._path = path
        self._envelope = envelope
        self._claim = claim
        self._files = files
        self._clock = clock
        self._known = _Known()
        self._uncertain = False
        self._silent_ms = IDLE_MS
        progress = claim.progress
        with _guarded(path, claim, lambda: True):
            # Before anything is made in a folder that is somebody else's, or whose files are away.
            found = read_manifest(path, claim.sink_id, files)
            if found is None and progress is not None and not files.exists(self._commit_path(0)):
                raise user_error(
                    "SLACKWATER_SINK_LOCATION_UNWRITABLE",
                    path=path,
                    reason=f"its {MANIFEST} is gone, and all before {progress.value} was there",
                )
            self._own = self._begin()
            self._read()
            files.sync_directory(os.path.join(path, OWN, COMMITS))
            self._clear()
        known = self._known
        if known.frontier is not None and progress is not None:
            known.frontier = max(known.frontier, progress)
        is_behind = known.told != (len(known.entries), known.frontier)
        self._told_ms: int | None = None if is_behind else clock()

    @property
    def frontier(self) -> Frontier | None:
        """Every update before this time is durably out. None: nothing has been committed."""
        return self._known.frontier

    def close(self) -> None:
        """Takes away what belongs to this writer alone. To be called once, at the end."""
        with contextlib.suppress(OSError):
            self._files.remove_directory(self._own)

    def commit(self, lower: Frontier, upper: Frontier, pieces: Iterable[DataFile]) -> bool:
        """Commits the files of a range, all or none. Durable on return.

        A piece is asked for when those before it are written.

        False: another writer has been there first, or an earlier attempt of unknown outcome. Then
        nothing is written, and `frontier` says how far that one got. Raises what opening it raises.
        """
        with _guarded(self._path, self._claim, self._is_kept_out):
            if self._uncertain:
                found = self._adopt()
                self._uncertain = False
                if found:
                    return False
            entries = [
                {
                    "path": self._put(upper, piece),
                    "lower": lower.value,
                    "upper": upper.value,
                    "rows": piece.rows,
                }
                for piece in pieces
            ]
            self._files.sync_directory(self._path)
            manifest = {
                "sink": self._claim.sink_id,
                "envelope": self._envelope,
                "epoch": self._claim.epoch,
                "lower": lower.value,
                "upper": upper.value,
                "files": entries,
            }
            made = self._make("commit.json", json.dumps(manifest).encode())
            self._uncertain = True
            is_first = self._files.link(made, self._commit_path(self._known.key))
            self._files.sync_directory(os.path.join(self._path, OWN, COMMITS))
            self._uncertain = False
            if not is_first:
                self._claim.confirm()
                if not self._adopt():
                    raise FatalError(f"{self._claim.sink_id}: a range is taken and is not there")
                return False
        self._known.add(entries)
        self._known.frontier = upper
        self._silent_ms = IDLE_MS
        return True

    def tell(self, frontier: Frontier, *, now: bool = False) -> None:
        """Replaces ``manifest.json`` if there is news and it is time for it, or `now`.

        Every update before `frontier` is out. Once it is told, this is durable. Raises what
        opening it raises.
        """
        known = self._known
        entries, told = known.told
        has_files = len(known.entries) > entries
        if not has_files and told == frontier:
            return
        now_ms = self._clock()
        if not now and not self._is_time(now_ms, has_files):
            return
        head = json.dumps(
            {
                "sink": self._claim.sink_id,
                "envelope": self._envelope,
                "frontier": frontier.value,
            }
        ).encode()
        text = b"".join((head[:-1], b', "files": [', b", ".join(known.entries), b"]}"))
        with _guarded(self._path, self._claim, self._is_kept_out):
            made = self._make(MANIFEST, text)
            self._files.replace(made, os.path.join(self._path, MANIFEST))
            self._files.sync_directory(self._path)
        known.frontier = frontier
        known.told = (len(known.entries), frontier)
        self._told_ms = now_ms
        is_news = has_files or told is None
        self._silent_ms = IDLE_MS if is_news else min(2 * self._silent_ms, IDLE_MOST_MS)

    def _is_time(self, now_ms: int, has_files: bool) -> bool:
        if self._told_ms is None or now_ms < self._told_ms:
            return True
        excess = max(0, self._known.size - FREE_BYTES)
        wait_ms = (
            excess // BUSY_BYTES_PER_MS
            if has_files
            else max(self._silent_ms, excess // IDLE_BYTES_PER_MS)
        )
        return now_ms - self._told_ms >= wait_ms

    def _make(self, name: str, data: bytes) -> str:
        """The path of a new file of this writer, whatever the one before is linked to."""
        path = os.path.join(self._own, name)
        self._files.remove(path)
        self._files.write(path, data)
        return path

    def _put(self, upper: Frontier, piece: DataFile) -> str:
        """The name of a new file in the folder. Names that are taken are left alone."""
        made = self._make(f"data.{piece.suffix}", piece.data)
        for number in itertools.count():
            name = f"{upper.value:020d}-{number}.{piece.suffix}"
            if self._files.link(made, os.path.join(self._path, name)):
                return name
        raise AssertionError("there is always another number")

    def _adopt(self) -> bool:
        """Takes over what has been committed since this writer last looked; whether there is."""
        before = self._known.key
        self._follow()
        self._files.sync_directory(os.path.join(self._path, OWN, COMMITS))
        return self._known.key != before

    def _begin(self) -> str:
        """A directory for this writer alone; those of all writers before are gone.

        First it is made, then the others are looked for, then it is asked who leads. So of two that
        do this at once, the one that does not lead any more is refused or its directory removed:
        that of the later leader is made after it leads, and who sees it asks after that.
        """
        files, claim = self._files, self._claim
        own_folder = os.path.join(self._path, OWN)
        files.make_directory(os.path.join(own_folder, COMMITS))
        prefix = f"{WRITING}-{claim.sink_id}-"
        numbers = [
            int(name.rpartition("-")[2])
            for name in files.list(own_folder)
            if name.startswith(prefix) and name.rpartition("-")[2].isdigit()
        ]
        number = 1 + max(numbers, default=0)
        name = f"{prefix}{claim.epoch}-{number}"
        own = os.path.join(own_folder, name)
        files.make_directory(own)
        others = [
            each for each in files.list(own_folder) if each.startswith(prefix) and each != name
        ]
        claim.confirm()
        for each in others:
            files.remove_directory(os.path.join(own_folder, each))
        files.sync_directory(own_folder)
        files.sync_directory(self._path)
        return own

    def _read(self) -> None:
        known = self._known
        manifest = read_manifest(self._path, self._claim.sink_id, self._files)
        if manifest is not None:
            known.add(manifest["files"])
            known.frontier = Frontier(int(manifest["frontier"]))
            known.told = (len(known.entries), known.frontier)
        self._follow()

    def _follow(self) -> None:
        """Adds the ranges that were committed after what is known, one after the other."""
        known, sink_id = self._known, self._claim.sink_id
        while (data := self._files.read(path := self._commit_path(known.key))) is not None:
            manifest = _decode(self._path, os.path.basename(path), data, sink_id, "upper")
            known.add(manifest["files"])
            upper = Frontier(int(manifest["upper"]))
            known.frontier = upper if known.frontier is None else max(known.frontier, upper)

    def _clear(self) -> None:
        """Removes the data files of ranges that were not committed: nobody is about to do so.

        By way of the writer's own directory: once it is gone, a later leader may have committed
        them. As long as nothing is committed, such files may be another sink's.
        """
        if not self._known.key:
            return
        for name in self._files.list(self._path):
            upper, dash, _ = name.partition("-")
            is_range = dash and len(upper) == 20 and upper.isdigit()
            if is_range and int(upper) > self._known.key:
                own = os.path.join(self._own, name)
                self._files.replace(os.path.join(self._path, name), own)
                self._files.remove(own)

    def _commit_path(self, key: int) -> str:
        return os.path.join(self._path, OWN, COMMITS, f"{key:020d}.json")

    def _is_kept_out(self) -> bool:
        return not self._files.exists(self._own)


@contextmanager
def _guarded(path: str, claim: Claim, is_suspicious: Callable[[], bool]) -> Iterator[None]:
    """Asks whether this leader still leads before it reports that it was kept out."""
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            if is_suspicious():
                claim.confirm()
        raise _refusal(path, error) from None


def read_manifest(path: str, sink_id: GlobalId, files: FileSystem) -> dict[str, Any] | None:
    """The contents of ``manifest.json``; None if there is none.

    Raises OSError, SLACKWATER_SINK_LOCATION_IN_USE when it is another sink's, and
    SLACKWATER_SINK_LOCATION_UNWRITABLE when it is no sink's.
    """
    data = files.read(os.path.join(path, MANIFEST))
    return None if data is None else _decode(path, MANIFEST, data, sink_id, "frontier")


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Turns the operating system's errors below a path into ours."""
    try:
        yield
    except OSError as error:
        raise _refusal(path, error) from None


def _decode(path: str, name: str, data: bytes, sink_id: GlobalId, frontier: str) -> dict[str, Any]:
    try:
        manifest = json.loads(data)
        owner = str(manifest["sink"])
        int(manifest[frontier])
        list(manifest["files"])
    except (ValueError, KeyError, TypeError):
        raise user_error(
            "SLACKWATER_SINK_LOCATION_UNWRITABLE",
            path=path,
            reason=f"its {name} is not a sink's",
        ) from None
    if owner != sink_id:
        raise user_error("SLACKWATER_SINK_LOCATION_IN_USE", path=path, sink=owner)
    decoded: dict[str, Any] = manifest
    return decoded


def _refusal(path: str, error: OSError) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return user_error("SLACKWATER_NO_SPACE", what="the files of a sink", path=path)
    return user_error(
        "SLACKWATER_SINK_LOCATION_UNWRITABLE",
        path=path,
        reason=error.strerror or str(error),
    )
