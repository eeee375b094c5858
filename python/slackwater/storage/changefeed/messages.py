"""Messages of CockroachDB's changefeeds, over HTTP or in files.

Numbers keep their digits, and a key has one text, whatever its blanks. Nothing here looks at the
types of columns: a payload that no table can take is durable all the same (see `binding`).

Source: spec checkpoint 5.6, traps 7 and 8.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from slackwater.repr.hlc import Time
from slackwater.storage.changefeed.encoding import offset
from slackwater.storage.text_values import shown

DEFAULT_FEED = "default"
"""The partition of a feed that names none."""
_MESSAGE = frozenset({"payload", "length", "resolved"})
_ROW = frozenset({"after", "before", "key", "topic", "updated"})
_PART = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))(\.|\Z)')
_DEEPEST = 3
_LONGEST = 1000
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_RESOLVED = re.compile(r"(\d{14})(\d{9})(\d{10})\.RESOLVED", re.ASCII)
_ROWS = re.compile(r"(?:[^-]+-){5}(.+)-[^-]+\.ndjson")
_ENCODE = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class BadMessage(Exception):
    """The message is not one of a changefeed. `reason` has nothing of what it says."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """A change of one row, as it landed. `after` is JSON; None: the row was deleted.

    `topic` is the last part of the table's name, `key` the text of the JSON array (see `key_text`),
    `updated` the offset of the transaction's time.
    """

    feed: str
    topic: str
    key: str
    updated: int
    after: str | None


@dataclass(frozen=True, slots=True)
class Payloads:
    """Changes of rows."""

    rows: Sequence[ChangeRecord]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The feed has delivered everything up to and with `time`."""

    time: Time


Message = Payloads | Resolved


@dataclass(frozen=True, slots=True)
class MessageTarget:
    """The end of a path: it names a table, or a file with rows or a resolved time."""

    table: str | None = None
    topic: str | None = None
    resolved: Time | None = None
    is_lines: bool = False


def target_of(parts: Sequence[str]) -> MessageTarget | None:
    """The meaning of the path behind the source's name; None: it has none.

    Nothing, a table, or, for feeds into files, ``[table/]2026-01-31/<name>``. Raises `BadMessage`
    for a file with a time that is none.
    """
    if not parts:
        return MessageTarget()
    if len(parts) == 1:
        return MessageTarget(table=parts[0])
    table = parts[0] if len(parts) == 3 else None
    if len(parts) > 3 or _DAY.fullmatch(parts[-2]) is None:
        return None
    resolved = _RESOLVED.fullmatch(parts[-1])
    if resolved is not None:
        return MessageTarget(table=table, resolved=_file_time(*resolved.groups()))
    rows = _ROWS.fullmatch(parts[-1])
    if rows is None:
        return None
    return MessageTarget(table=table, topic=table_of(rows[1]), is_lines=True)


def _file_time(moment: str, nanos: str, logical: str) -> Time:
    try:
        whole = datetime.strptime(moment, "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    except ValueError:
        raise BadMessage("the name of the file has no time") from None
    seconds = (whole - _EPOCH) // timedelta(seconds=1)
    return Time(seconds * 10**9 + int(nanos), int(logical))


def message_of(
    target: MessageTarget, body: bytes, feed: str, keys: Mapping[str, Sequence[str]]
) -> Message:
    """The message of a request. `keys` are the columns of each table's key.

    A feed of a query names its table in the path, and its rows have no key but those columns.
    Raises `BadMessage`.
    """
    if target.table is not None and target.table not in keys:
        raise BadMessage("the path names no table of the source")
    if target.resolved is not None:
        return Resolved(target.resolved)
    try:
        if target.is_lines:
            found = [_object(line) for line in body.splitlines() if line.strip()]
            return Payloads(tuple(_rows(found, target, feed, keys)))
        if not body.strip():
            return Payloads(())
        message = _object(body)
        if message.keys() - _MESSAGE:
            raise BadMessage("the message has a field that is not known")
        if "resolved" in message:
            return Resolved(_time(message["resolved"], "resolved"))
        payload = message.get("payload")
        if not isinstance(payload, list):
            raise BadMessage("the message has neither payload nor resolved")
        return Payloads(tuple(_rows(payload, target, feed, keys)))
    except (ValueError, ArithmeticError, RecursionError):
        raise BadMessage("the body is not JSON") from None


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text.decode("utf-8"), parse_float=Decimal, parse_constant=_no_constant)
    if not isinstance(found, dict):
        raise BadMessage("the body is no JSON object")
    return found


def _no_constant(_: str) -> None:
    raise ValueError("NaN and the infinities are no JSON")


def _rows(
    payload: Sequence[Any], target: MessageTarget, feed: str, keys: Mapping[str, Sequence[str]]
) -> Iterator[ChangeRecord]:
    places: dict[str, int] = {}
    topics: dict[str, str] = {}
    for row in payload:
        if not isinstance(row, dict) or row.keys() - _ROW:
            raise BadMessage("a payload has a field that is not known, or is no object")
        updated = row.get("updated")
        if not isinstance(updated, str):
            raise BadMessage("a payload has no updated: the feed needs WITH updated")
        if updated not in places:
            places[updated] = offset(_time(updated, "updated"))
        after = row.get("after")
        if after is not None and not isinstance(after, dict):
            raise BadMessage("after is no object")
        if target.table is None:
            topic = row.get("topic", target.topic)
            if not isinstance(topic, str) or not topic:
                raise BadMessage("table name is empty: a payload has no topic")
            if topic not in topics:
                topics[topic] = table_of(topic)
            topic, key = topics[topic], row.get("key")
        else:
            topic, key = target.table, _key_of_query(row, keys.get(target.table, ()))
            if key is None:
                continue
        if not isinstance(key, list):
            raise BadMessage("a payload has no key")
        text = None if after is None else exact_text(after)
        yield ChangeRecord(feed, topic, key_text(key), places[updated], text)


def _key_of_query(row: Mapping[str, Any], columns: Sequence[str]) -> list[Any] | None:
    """The key of a row of a query's feed; None for the deletion of what was never there."""
    found = row.get("after")
    if found is None:
        found = row.get("before")
    if found is None:
        if "after" not in row and "before" not in row:
            raise BadMessage("the feed of a query needs WITH envelope = 'wrapped'")
        return None
    if not isinstance(found, dict) or any(column not in found for column in columns):
        raise BadMessage("a payload lacks columns of the key")
    return [found[column] for column in columns]


def _time(text: object, field: str) -> Time:
    if not isinstance(text, str):
        raise BadMessage(f"{field} is no text")
    try:
        return Time.parse(text)
    except ValueError:
        raise BadMessage(f"{field} is no time of a changefeed") from None


def table_of(topic: str) -> str:
    """The last part of a dotted name, of which each part may be in double quotes.

    Raises `BadMessage`.
    """
    at, parts, more = 0, 0, True
    name = ""
    while more:
        found = _PART.match(topic, at)
        if found is None or parts == _DEEPEST:
            raise BadMessage("a topic is no name of a table")
        name = found[2] or found[1].replace('""', '"')
        at, more, parts = found.end(), found[3] == ".", parts + 1
    if shown(name) != name or "\0" in name:
        raise BadMessage("a topic is no name of a table")
    return name


def exact_text(value: Any) -> str:
    """Compact JSON of a decoded value, in ASCII. Numbers keep the digits that they came with."""
    try:
        return _ENCODE(value)
    except TypeError:
        # There is a Decimal in it, which only the slow way writes.
        return _exact(value)


def key_text(key: list[Any]) -> str:
    """The text of a key: the same one for ``1.5`` and ``1.50``, which are one key in the database.

    A row whose DECIMAL is written with other zeros is the same row.
    """
    try:
        return _ENCODE(key)
    except TypeError:
        return _exact([_number(each) if isinstance(each, Decimal) else each for each in key])


def _number(value: Decimal) -> int | Decimal:
    """The value without zeros that say nothing; a whole number as such, unless it is very long."""
    sign, digits, exponent = value.as_tuple()
    if not any(digits):
        return 0
    text = "".join(map(str, digits)).rstrip("0")
    exponent = int(exponent) + len(digits) - len(text)
    if 0 <= exponent <= _LONGEST:
        return (-1 if sign else 1) * int(text + "0" * exponent)
    return Decimal((sign, tuple(map(int, text)), exponent))


def _exact(value: Any) -> str:
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json.dumps(k)}:{_exact(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_exact, value)) + "]"
        case _:
            return json.dumps(value)
