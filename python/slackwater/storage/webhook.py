"""Requests over HTTP as rows: what a source FROM WEBHOOK makes of headers and bodies. No I/O.

Source: spec coordinator 6.4.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from slackwater.planner.parser.statements import (
    HeaderColumn,
    HeaderRule,
    WebhookFormat,
    WebhookSource,
)
from slackwater.repr.relation import Column, RelationDesc, with_diff

BODY = "body"
HEADERS = "headers"
ROWS_BYTES = 64 * 1024 * 1024
"""The most that the rows of one request may take: each row has the headers of the request."""
_ROW_BYTES = 64

_WHITESPACE = " \t\n\r"
_BEGINS_VALUE = '"[{'


class BadRequest(Exception):
    """The request cannot become rows. `reason` has nothing of what it says."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RepeatedHeader(BadRequest):
    """A header is there twice, so it is not clear which one counts."""


class TooManyRows(BadRequest):
    """The body is small and its rows are not."""


@dataclass(frozen=True, slots=True)
class WebhookConfig:
    """The rules by which requests become rows. Names of headers are in lower case."""

    format: WebhookFormat
    columns: tuple[HeaderColumn, ...] = ()
    rules: tuple[HeaderRule, ...] | None = None

    @staticmethod
    def of(connector: WebhookSource) -> WebhookConfig:
        return WebhookConfig(connector.format, connector.columns, connector.rules)

    @property
    def desc(self) -> RelationDesc:
        """The columns of the source."""
        kind = "binary" if self.format == "BYTES" else "string"
        columns = [column(BODY, kind, nullable=False)]
        if self.rules is not None:
            columns.append(header_map(HEADERS))
        columns += [
            column(each.column, "binary" if each.is_bytes else "string", nullable=True)
            for each in self.columns
        ]
        return RelationDesc(tuple(columns))


@dataclass(frozen=True, slots=True)
class RequestRows:
    """The rows of one request: a value for each, and the headers that all of them have."""

    values: Sequence[str | bytes]
    headers: Mapping[str, str]


def column(name: str, kind: str, *, nullable: bool) -> Column:
    return Column(name, json.dumps(kind), nullable=nullable)


def header_map(name: str, kind: str = "string") -> Column:
    """A column with all headers."""
    spelled = {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": False}
    return Column(name, json.dumps(spelled, sort_keys=True), nullable=False)


def header_values(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers of a request by their names in lower case.

    Values that are no visible ASCII are left out. Raises `RepeatedHeader`.
    """
    found: dict[str, str] = {}
    seen: set[bytes] = set()
    for name, value in headers:
        lowered = name.lower()
        if lowered in seen:
            raise RepeatedHeader("a header is there twice")
        seen.add(lowered)
        text = value.decode("latin-1")
        if text.isascii() and text.replace("\t", " ").isprintable():
            found[lowered.decode("latin-1")] = text
    return found


def included(rules: Sequence[HeaderRule], headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that the rules let in: those blocked go first, and without others all stay."""
    blocked = {rule.header for rule in rules if rule.is_blocked}
    allowed = {rule.header for rule in rules if not rule.is_blocked}
    return {
        name: value
        for name, value in headers.items()
        if name not in blocked and (not allowed or name in allowed)
    }


def rows_of(config: WebhookConfig, body: bytes, headers: Mapping[str, str]) -> RequestRows:
    """The rows of a request. Raises `BadRequest`."""
    wanted = {each.header for each in config.columns}
    kept = {} if config.rules is None else included(config.rules, headers)
    named = {name: headers[name] for name in wanted if name in headers}
    values = list(_limited(_values(config.format, body), kept | named))
    return RequestRows(values, headers)


def _limited(values: Iterator[str | bytes], headers: Mapping[str, str]) -> Iterator[str | bytes]:
    beside = _ROW_BYTES + sum(len(name) + len(value) for name, value in headers.items())
    size = 0
    for value in values:
        size += len(value) + beside
        if size > ROWS_BYTES:
            raise TooManyRows("the body has too many rows")
        yield value


def _values(form: WebhookFormat, body: bytes) -> Iterator[str | bytes]:
    if form == "BYTES":
        return iter((body,))
    text = utf8(body)
    if form == "TEXT":
        return iter((text,))
    try:
        return iter(list(_json_values(text, expand=form == "JSON ARRAY")))
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None


def utf8(body: bytes) -> str:
    """Raises `BadRequest`."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None


def _no_constant(_: str) -> None:
    raise ValueError("NaN and the infinities are no JSON")


def _no_number(_: str) -> None:
    """Numbers stay text: they may have more digits than Python takes."""


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_int=_no_number, parse_float=_no_number
)


def _json_values(text: str, *, expand: bool) -> Iterator[str]:
    """The JSON values of `text` as they are written; with `expand`, arrays by their elements."""
    at = _skip(text, 0)
    while at < len(text):
        if expand and text[at] == "[":
            elements, end = _elements(text, at)
            yield from elements
        else:
            end = _end(text, at)
            yield text[at:end]
        at = _skip(text, end)
        separated = at > end or at == len(text) or text[end - 1] in '"]}'
        if not separated and text[at] not in _BEGINS_VALUE:
            raise ValueError("two values without a space between them")


def _elements(text: str, at: int) -> tuple[list[str], int]:
    """The elements of the array that begins at `at`, and where it ends."""
    found: list[str] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        return found, at + 1
    while True:
        end = _end(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        mark = text[at : at + 1]
        if mark == "]":
            return found, at + 1
        if mark != ",":
            raise ValueError("an array goes on with a comma")
        at = _skip(text, at + 1)


def _end(text: str, at: int) -> int:
    """The end of the value that begins at `at`."""
    if at >= len(text):
        raise ValueError("a value is missing")
    return int(_DECODER.raw_decode(text, at)[1])


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _WHITESPACE:
        at += 1
    return at


def table(config: WebhookConfig, requests: Sequence[RequestRows]) -> pa.Table:
    """The rows of requests, in their order, with ``__diff``."""
    schema = config.desc.arrow_schema()
    columns: list[list[Any]] = [[value for each in requests for value in each.values]]
    if config.rules is not None:
        columns.append(
            _repeated((list(included(config.rules, r.headers).items()), r) for r in requests)
        )
    for each in config.columns:
        columns.append(_repeated((_value(each, r.headers), r) for r in requests))
    arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
    return with_diff(pa.Table.from_arrays(arrays, schema=schema))


def _value(wanted: HeaderColumn, headers: Mapping[str, str]) -> str | bytes | None:
    value = headers.get(wanted.header)
    return value.encode() if wanted.is_bytes and value is not None else value


def _repeated(values: Iterable[tuple[Any, RequestRows]]) -> list[Any]:
    return [value for value, rows in values for _ in rows.values]
