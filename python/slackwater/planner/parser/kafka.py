"""The grammar of ``FROM KAFKA``. Source: surface 4, docs/decisions 0069."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from slackwater.planner.parser.kafka_source import Decoding, Included, KafkaSource, Payload
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    integer,
    positive_integer,
    read_options,
    text,
)
from slackwater.planner.parser.tokens import Token, TokenCursor
from slackwater.repr.errors import SlackwaterError

_FORMATS = "TEXT, BYTES, JSON or CSV"
_OTHER_FORMATS = ("AVRO", "PROTOBUF", "REGEX")
_METADATA = ("PARTITION", "OFFSET", "TIMESTAMP", "HEADERS")
_LONGEST_TOPIC = 249


def read_kafka(cursor: TokenCursor) -> KafkaSource:
    """Reads the statement's rest after KAFKA, up to EXPOSE or WITH."""
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    offsets: list[int] = []

    def start_offset(cursor: TokenCursor, option: str) -> OptionValue:
        cursor.expect_symbol("(")
        offsets.append(integer(cursor, option))
        while cursor.accept_symbol(","):
            offsets.append(integer(cursor, option))
        cursor.expect_symbol(")")
        return True

    known: Mapping[str, ReadValue] = {
        "TOPIC": read_topic,
        "START OFFSET": start_offset,
        "START TIMESTAMP": _moment,
        "GROUP ID PREFIX": text,
    }
    at = cursor.token
    options = read_options(cursor, known)
    if "TOPIC" not in options:
        raise cursor.syntax_error("the option TOPIC", cursor.at(cursor.mark - 1))
    if "START OFFSET" in options and "START TIMESTAMP" in options:
        raise _invalid(
            cursor, at, "START TIMESTAMP", str(options["START TIMESTAMP"]), "START OFFSET is given"
        )
    return KafkaSource(
        connection,
        str(options["TOPIC"]),
        read_decoding(cursor),
        tuple(offsets),
        cast("int | None", options.get("START TIMESTAMP")),
        cast("str | None", options.get("GROUP ID PREFIX")),
    )


def read_topic(cursor: TokenCursor, option: str) -> str:
    """The name of a topic. Raises SLACKWATER_INVALID_OPTION for one that Kafka does not allow."""
    at = cursor.token
    found = text(cursor, option)
    legal = all(each.isascii() and (each.isalnum() or each in "._-") for each in found)
    if not legal or len(found) > _LONGEST_TOPIC or found in (".", ".."):
        raise _invalid(cursor, at, option, repr(found[:60]), "Kafka has no topic of this name")
    return found


def _moment(cursor: TokenCursor, option: str) -> int:
    """Milliseconds since the epoch; a negative number counts from now."""
    sign = -1 if cursor.accept_symbol("-") else 1
    return sign * integer(cursor, option)


def read_decoding(cursor: TokenCursor) -> Decoding:
    """Reads formats, INCLUDE, ENVELOPE and ON ERROR: how messages become rows."""
    at = cursor.token
    key: Payload | None = None
    if cursor.accept("KEY"):
        key = _format(cursor)
        cursor.expect("VALUE")
    value = _format(cursor)
    if key is not None and key.kind == "CSV":
        raise cursor.unsupported("KEY FORMAT CSV", "Read keys as TEXT, BYTES or JSON.", at)
    included = _included(cursor)
    envelope, inline = _envelope(cursor)
    on_error: Literal["PROPAGATE", "SKIP", "DEAD LETTER"] = "PROPAGATE"
    if cursor.accept("ON", "ERROR"):
        if cursor.accept("SKIP"):
            on_error = "SKIP"
        elif cursor.accept("DEAD", "LETTER"):
            on_error = "DEAD LETTER"
        elif not cursor.accept("PROPAGATE"):
            raise cursor.syntax_error("PROPAGATE, SKIP or DEAD LETTER")
    wants_key = any(each.what == "KEY" for each in included)
    if key is None and (wants_key or envelope == "UPSERT"):
        needing = "INCLUDE KEY" if wants_key else "ENVELOPE UPSERT"
        raise cursor.syntax_error(f"KEY FORMAT ... VALUE FORMAT ..., because of {needing}", at)
    return Decoding(value, key, included, envelope, inline, on_error)


def _format(cursor: TokenCursor) -> Payload:
    cursor.expect("FORMAT")
    for other in _OTHER_FORMATS:
        if cursor.looking_at(other):
            raise cursor.unsupported(f"FORMAT {other}", f"The formats are {_FORMATS}.")
    if cursor.accept("TEXT"):
        return Payload("TEXT")
    if cursor.accept("BYTES"):
        return Payload("BYTES")
    if cursor.accept("JSON"):
        return Payload("JSON")
    if not cursor.accept("CSV"):
        raise cursor.syntax_error(_FORMATS)
    cursor.expect("WITH")
    header: tuple[str, ...] | None = None
    columns: int | None = None
    if cursor.accept("HEADER"):
        header = cursor.identifiers()
    else:
        columns = positive_integer(cursor, "COLUMNS")
        if not cursor.accept("COLUMNS"):
            cursor.expect("COLUMN")
    delimiter = ","
    if cursor.accept("DELIMITED", "BY"):
        at = cursor.token
        delimiter = cursor.string("a character as a string")
        if len(delimiter) != 1 or delimiter in '"\r\n\\':
            raise _invalid(
                cursor, at, "DELIMITED BY", repr(delimiter), "it is no character between fields"
            )
    return Payload("CSV", columns, header, delimiter)


def _included(cursor: TokenCursor) -> tuple[Included, ...]:
    """``INCLUDE KEY AS k, OFFSET, HEADER 'h' AS h BYTES``."""
    if not cursor.accept("INCLUDE"):
        return ()
    found = [_one_included(cursor)]
    while cursor.accept_symbol(","):
        at = cursor.token
        each = _one_included(cursor)
        if each.what != "HEADER" and each.what in {other.what for other in found}:
            raise _invalid(cursor, at, "INCLUDE", each.what, "it is there twice")
        found.append(each)
    return tuple(found)


def _one_included(cursor: TokenCursor) -> Included:
    if cursor.accept("HEADER"):
        header = cursor.string("the name of a header as a string")
        cursor.expect("AS")
        column = cursor.identifier("the name of a column")
        return Included("HEADER", column, header, cursor.accept("BYTES"))
    if cursor.accept("KEY"):
        return Included("KEY", _column(cursor, "key"))
    for what in _METADATA:
        if cursor.accept(what):
            named = cast("Literal['PARTITION', 'OFFSET', 'TIMESTAMP', 'HEADERS']", what)
            return Included(named, _column(cursor, what.lower()))
    raise cursor.syntax_error("KEY, PARTITION, OFFSET, TIMESTAMP, HEADERS or HEADER")


def _column(cursor: TokenCursor, otherwise: str) -> str:
    return cursor.identifier("the name of a column") if cursor.accept("AS") else otherwise


def _envelope(cursor: TokenCursor) -> tuple[Literal["NONE", "UPSERT"], str | None]:
    """The envelope, and the column for errors of values."""
    if not cursor.accept("ENVELOPE") or cursor.accept("NONE"):
        return "NONE", None
    if cursor.looking_at("DEBEZIUM"):
        raise cursor.unsupported("ENVELOPE DEBEZIUM of a source", "Use NONE or UPSERT.")
    if not cursor.accept("UPSERT"):
        raise cursor.syntax_error("NONE or UPSERT")
    if not cursor.accept_symbol("("):
        return "UPSERT", None
    cursor.expect("VALUE", "DECODING", "ERRORS")
    cursor.accept_symbol("=")
    braced = cursor.accept_symbol("(")
    cursor.expect("INLINE")
    column = _column(cursor, "error")
    if braced:
        cursor.expect_symbol(")")
    cursor.expect_symbol(")")
    return "UPSERT", column


def _invalid(
    cursor: TokenCursor, at: Token, option: str, value: str, reason: str
) -> SlackwaterError:
    return cursor.error(
        "SLACKWATER_INVALID_OPTION",
        at,
        option=option,
        statement=cursor.statement,
        value=value,
        reason=reason,
    )
