"""Garbage: files that no part names any more, from their replacement to their deletion.

1. The transaction that replaces or drops parts puts their files on the durable list.
2. When the longest lease has passed and no older hold is left, a transaction marks them for
   deletion, unless a part of any shard names them: from then on no commit may.
3. The files are deleted, and with the last one the directory of a write or of a dropped shard.
4. A transaction takes them off the list.

A crash between any two leaves what the next turn goes on with, and every step may be repeated.
Files that were never named, because a writer crashed, are found by listing, which is trusted for
nothing else: when they are older than any write can last, they go onto the list as well.

It does not guarantee that a file is deleted at a certain time, nor that every file of a location is
known: files outside of the directories of shards are nobody's.

Source: spec controllers 3.7, 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar
from urllib.parse import unquote

from sqlalchemy import Connection, delete, func, insert, select, update

from slackwater.persist.parts import FileBody, NewPart, Part
from slackwater.persist.tables import garbage, parts
from slackwater.repr.errors import FatalError

T = TypeVar("T")

LEASE_MS = 15 * 60 * 1000
"""The longest that a lease is valid without being renewed."""

ORPHAN_AGE_MS = 48 * 3600 * 1000
"""No write is under way for so long: a session that is idle for a day is ended."""

STAMP_MARGIN_MS = 60_000
"""At most so long after its stamp a replacement is seen by readers; see `ShardMaintenance`."""

STAGING_PREFIX = "write-"
"""The prefix of the names of directories that belong to one write."""

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class GarbageFile:
    """A file on the list. `replaced_ms` is when its last part was replaced or dropped."""

    uri: str
    shard_id: int
    size_bytes: int
    replaced_ms: int


def unreferenced(
    gone: Iterable[Part], kept: Iterable[Part], now_ms: int
) -> tuple[GarbageFile, ...]:
    """The files of the parts that are gone which no other part names."""
    named = {part.body.uri for part in kept if isinstance(part.body, FileBody)}
    return tuple(
        GarbageFile(part.body.uri, part.shard_id, part.body.size_bytes, now_ms)
        for part in gone
        if isinstance(part.body, FileBody) and part.body.uri not in named
    )


def add(conn: Connection, files: Iterable[GarbageFile]) -> None:
    """Puts files on the list; those that are on it stay as they are.

    But one that another shard has put there waits anew, for those who read this shard.
    """
    for chunk in _chunks({file.uri: file for file in files}.values()):
        uris = [file.uri for file in chunk]
        statement = select(garbage.c.uri, garbage.c.shard_id).where(garbage.c.uri.in_(uris))
        known = {row.uri: row.shard_id for row in conn.execute(statement)}
        for file in chunk:
            if known.get(file.uri, file.shard_id) != file.shard_id:
                conn.execute(
                    update(garbage)
                    .where(garbage.c.uri == file.uri, garbage.c.replaced_ms < file.replaced_ms)
                    .values(shard_id=file.shard_id, replaced_ms=file.replaced_ms)
                )
        rows = [
            {
                "uri": file.uri,
                "shard_id": file.shard_id,
                "size_bytes": file.size_bytes,
                "replaced_ms": file.replaced_ms,
                "condemned": False,
            }
            for file in chunk
            if file.uri not in known
        ]
        if rows:
            conn.execute(insert(garbage), rows)


def reclaim(conn: Connection, news: Iterable[NewPart | Part]) -> None:
    """Takes the files of parts that are being committed off the list.

    So a negation may name a file whose own part was replaced meanwhile. Raises `FatalError` when
    the file has been marked for deletion: the commit took longer than a lease.
    """
    uris = [new.body.uri for new in news if isinstance(new.body, FileBody)]
    for chunk in _chunks(uris):
        found = conn.execute(
            select(garbage.c.uri, garbage.c.condemned).where(garbage.c.uri.in_(chunk))
        ).all()
        for row in found:
            if row.condemned:
                raise FatalError(f"a part was to name {row.uri}, which is being deleted")
        if found:
            conn.execute(delete(garbage).where(garbage.c.uri.in_([row.uri for row in found])))


def restamp(conn: Connection, uris: Sequence[str], replaced_ms: int) -> None:
    """Corrects when the files were replaced."""
    for chunk in _chunks(uris):
        conn.execute(
            update(garbage).where(garbage.c.uri.in_(chunk)).values(replaced_ms=replaced_ms)
        )


def waiting(conn: Connection) -> tuple[tuple[int, int], ...]:
    """The shards with files that are not marked yet, each with its oldest `replaced_ms`."""
    oldest = func.min(garbage.c.replaced_ms)
    statement = (
        select(garbage.c.shard_id, oldest)
        .where(garbage.c.condemned.is_(False))
        .group_by(garbage.c.shard_id)
        .order_by(oldest)
    )
    return tuple((row[0], row[1]) for row in conn.execute(statement))


def mark_for_deletion(conn: Connection, shard_id: int, until_ms: int, limit: int) -> int:
    """Condemns at most `limit` files of the shard that were replaced at or before `until_ms`.

    Those that a part of any shard names are taken off the list instead. Returns how many it dealt
    with.
    """
    chosen = conn.scalars(
        select(garbage.c.uri)
        .where(
            garbage.c.shard_id == shard_id,
            garbage.c.condemned.is_(False),
            garbage.c.replaced_ms <= until_ms,
        )
        .order_by(garbage.c.replaced_ms, garbage.c.uri)
        .limit(limit)
    ).all()
    for chunk in _chunks(chosen):
        named = set(conn.scalars(select(parts.c.uri).where(parts.c.uri.in_(chunk))))
        if named:
            conn.execute(delete(garbage).where(garbage.c.uri.in_(sorted(named))))
        rest = [uri for uri in chunk if uri not in named]
        conn.execute(update(garbage).where(garbage.c.uri.in_(rest)).values(condemned=True))
    return len(chosen)


def marked_for_deletion(conn: Connection, limit: int) -> tuple[str, ...]:
    """At most `limit` files that are to be deleted."""
    statement = select(garbage.c.uri).where(garbage.c.condemned.is_(True)).limit(limit)
    return tuple(conn.scalars(statement))


def forget(conn: Connection, uris: Sequence[str]) -> None:
    """Takes files that have been deleted off the list."""
    for chunk in _chunks(uris):
        conn.execute(delete(garbage).where(garbage.c.uri.in_(chunk)))


def abandoned(uri: str, is_finalized: Callable[[int], bool]) -> str | None:
    """The directory around the file in which nobody begins to write any more.

    That of a shard that was finalized, else that of the one write that made the file. None: the
    file is in the directory of a shard that is in use.
    """
    directory = uri.rpartition("/")[0]
    above, _, name = directory.rpartition("/")
    of_write = name.startswith(STAGING_PREFIX)
    of_shard = above if of_write else directory
    number = of_shard.rpartition("/")[2]
    if number.isdigit() and is_finalized(int(number)):
        return of_shard
    return directory if of_write else None


def deletable_until(
    now_ms: int, opened_ms: int | None, foreign_leases: bool, lease_ms: int = LEASE_MS
) -> int | None:
    """Files replaced up to this time are in use by nobody; None: nothing may be marked.

    `opened_ms` is that of the oldest hold on the shard, None without holds. What readers of an
    earlier leader use is not known: while the lease of one lasts (`foreign_leases`), all stays.
    """
    if foreign_leases:
        return None
    until = now_ms - lease_ms
    return until if opened_ms is None else min(until, opened_ms - STAMP_MARGIN_MS - 1)


def adopt_orphans(conn: Connection, listed: Iterable[GarbageFile], now_ms: int) -> None:
    """Puts those of the listed files on the list, as of `now_ms`, that no part names.

    The caller has chosen files that are older than `ORPHAN_AGE_MS`.
    """
    by_shard: dict[int, list[GarbageFile]] = {}
    for file in listed:
        by_shard.setdefault(file.shard_id, []).append(file)
    for shard_id, files in by_shard.items():
        named = names_on_record(conn, shard_id)
        orphans = [file for file in files if name_of_data(file.uri) not in named]
        if orphans:
            # Few, so that the names of all shards are read seldom.
            elsewhere = names_on_record(conn)
            orphans = [file for file in orphans if name_of_data(file.uri) not in elsewhere]
        add(conn, [replace(file, replaced_ms=now_ms) for file in orphans])


def names_on_record(conn: Connection, shard_id: int | None = None) -> frozenset[str]:
    """The last components of the names of all files that are on record, of a shard or of all.

    They are unique, and unlike whole URIs each program writes them in the same way.
    """
    of_parts = select(parts.c.uri).where(parts.c.uri.is_not(None))
    of_garbage = select(garbage.c.uri)
    if shard_id is not None:
        of_parts = of_parts.where(parts.c.shard_id == shard_id)
        of_garbage = of_garbage.where(garbage.c.shard_id == shard_id)
    return frozenset(_name(uri) for uri in (*conn.scalars(of_parts), *conn.scalars(of_garbage)))


def _name(uri: str) -> str:
    return unquote(uri).rpartition("/")[2]


def name_of_data(uri: str) -> str:
    """The name of the file; of a checksum that of the file beside it, with which it goes."""
    name = _name(uri)
    return name[1:-4] if name.startswith(".") and name.endswith(".crc") else name


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
