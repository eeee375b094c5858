"""The grammar of ``FROM KAFKA``. Source: surface 4, docs/decisions 0069."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from slackwater.planner.parser.kafka_source import (
    Decoding,
    GivenSchema,
    Included,
    KafkaSource,
    Payload,
    Registry,
    SourceEnvelope,
    Strategy,
)
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    boolean,
    integer,
    invalid_value,
    positive_integer,
    read_options,
    text,
)
from slackwater.planner.parser.tokens import TokenCursor

_FORMATS = "TEXT, BYTES, JSON, CSV, AVRO or PROTOBUF"
_OTHER_FORMATS = ("REGEX",)
_LARGEST_ID = 2**31 - 1
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
        raise invalid_value(
            cursor, at, "START TIMESTAMP", str(options["START TIMESTAMP"]), "START OFFSET is given"
        )
    return KafkaSource(
        connection,
        str(options["TOPIC"]),
        read_decoding(cursor) if reads_decoding(cursor) else None,
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
        raise invalid_value(cursor, at, option, repr(found[:60]), "Kafka has no topic of this name")
    return found


def _moment(cursor: TokenCursor, option: str) -> int:
    """Milliseconds since the epoch; a negative number counts from now."""
    sign = -1 if cursor.accept_symbol("-") else 1
    return sign * integer(cursor, option)


def reads_decoding(cursor: TokenCursor) -> bool:
    """Whether what says how messages become rows is next."""
    return any(map(cursor.looking_at, ("FORMAT", "KEY", "INCLUDE", "ENVELOPE", "ON")))


def refuse_missing_columns(cursor: TokenCursor, decoding: Decoding) -> None:
    """Raises SLACKWATER_UNSUPPORTED for messages whose columns have to be declared."""
    if decoding.needs_columns:
        raise cursor.unsupported(
            "ENVELOPE DEBEZIUM of values in JSON without columns",
            "Declare those of the upstream's table behind the name.",
        )


def read_decoding(cursor: TokenCursor) -> Decoding:
    """Reads formats, INCLUDE, ENVELOPE and ON ERROR: how messages become rows."""
    at = cursor.token
    key: Payload | None = None
    if cursor.accept("KEY"):
        key = _format(cursor, ("KEY",))
        cursor.expect("VALUE")
        value = _format(cursor, ("VALUE",))
    else:
        value = _format(cursor, ("KEY", "VALUE"))
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
    if envelope == "DEBEZIUM" and value.kind not in ("JSON", "AVRO", "PROTOBUF"):
        raise cursor.unsupported(
            f"ENVELOPE DEBEZIUM with values in the format {value.kind}",
            "Read them as JSON, AVRO or PROTOBUF.",
            at,
        )
    wants_key = any(each.what == "KEY" for each in included)
    found = Decoding(value, key, included, envelope, inline, on_error)
    if found.needs_keys and found.key_format is None:
        needing = "INCLUDE KEY" if wants_key else f"ENVELOPE {envelope}"
        raise cursor.syntax_error(f"KEY FORMAT ... VALUE FORMAT ..., because of {needing}", at)
    registry = value.schema
    if isinstance(registry, Registry) and registry.key != Strategy() and not found.needs_keys:
        raise cursor.syntax_error(
            "INCLUDE KEY, or ENVELOPE UPSERT or DEBEZIUM, because of KEY STRATEGY", at
        )
    return found


def _format(cursor: TokenCursor, sides: tuple[str, ...]) -> Payload:
    """The format of keys or values, or of both, as `sides` says."""
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
    if cursor.accept("AVRO"):
        cursor.expect("USING")
        return Payload("AVRO", schema=_avro(cursor, sides))
    if cursor.accept("PROTOBUF"):
        return _protobuf(cursor, sides)
    if not cursor.accept("CSV"):
        raise cursor.syntax_error(_FORMATS)
    return _csv(cursor)


def _avro(cursor: TokenCursor, sides: tuple[str, ...]) -> Registry | GivenSchema:
    """Reads what stands behind AVRO USING."""
    if cursor.accept("SCHEMA"):
        schema = cursor.string("an Avro schema as a string")
        options: dict[str, OptionValue] = {}
        if cursor.token.is_symbol("("):
            options = read_options(cursor, {"CONFLUENT WIRE FORMAT": boolean})
        return GivenSchema(schema, options.get("CONFLUENT WIRE FORMAT", True) is True)
    return _registry(cursor, sides)


def _protobuf(cursor: TokenCursor, sides: tuple[str, ...]) -> Payload:
    """Reads what stands behind PROTOBUF."""
    message = None
    if cursor.accept("MESSAGE"):
        at = cursor.token
        message = cursor.string("the full name of a message as a string").removeprefix(".")
        if not message:
            raise invalid_value(cursor, at, "MESSAGE", "''", "it is no name")
    at = cursor.token
    cursor.expect("USING")
    if not cursor.accept("SCHEMA"):
        registry = _registry(cursor, sides)
        if registry.key.schema is not None or registry.value.schema is not None:
            raise cursor.unsupported(
                "STRATEGY INLINE of PROTOBUF",
                "Give a descriptor set: MESSAGE 'name' USING SCHEMA X'...'.",
                at,
            )
        return Payload("PROTOBUF", schema=registry, message=message)
    if message is None:
        raise cursor.syntax_error("MESSAGE 'name'", at)
    schema = _descriptors(cursor)
    options: dict[str, OptionValue] = {}
    if cursor.token.is_symbol("("):
        options = read_options(cursor, {"CONFLUENT WIRE FORMAT": boolean})
    given = GivenSchema(schema, options.get("CONFLUENT WIRE FORMAT", False) is True)
    return Payload("PROTOBUF", schema=given, message=message)


def _descriptors(cursor: TokenCursor) -> str:
    """The hexadecimal digits of a descriptor set: ``X'0a..'``, or a string of them."""
    token = cursor.token
    found = token.as_bytes
    if found is not None:
        cursor.advance()
    else:
        text = cursor.string("a descriptor set such as X'0a..'")
        try:
            found = bytes.fromhex(text.removeprefix("\\").removeprefix("x"))
        except ValueError:
            reason = "it is no text of hexadecimal digits"
            raise invalid_value(cursor, token, "SCHEMA", repr(text[:60]), reason) from None
    return found.hex()


def _registry(cursor: TokenCursor, sides: tuple[str, ...]) -> Registry:
    """Reads what stands behind USING, if it is a registry."""
    if not cursor.accept("CONFLUENT", "SCHEMA", "REGISTRY"):
        raise cursor.syntax_error("CONFLUENT SCHEMA REGISTRY or SCHEMA")
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    found = {
        side: _strategy(cursor) if side in sides and cursor.accept(side, "STRATEGY") else Strategy()
        for side in ("KEY", "VALUE")
    }
    return Registry(connection, found["KEY"], found["VALUE"])


def _strategy(cursor: TokenCursor) -> Strategy:
    if cursor.accept("LATEST"):
        return Strategy()
    if cursor.accept("INLINE"):
        return Strategy(schema=cursor.string("an Avro schema as a string"))
    if not cursor.accept("ID"):
        raise cursor.syntax_error("LATEST, ID or INLINE")
    at = cursor.token
    number = integer(cursor, "ID")
    if number > _LARGEST_ID:
        raise invalid_value(cursor, at, "STRATEGY ID", str(number), "ids are numbers of 31 bits")
    return Strategy(number)


def _csv(cursor: TokenCursor) -> Payload:
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
            raise invalid_value(
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
            raise invalid_value(cursor, at, "INCLUDE", each.what, "it is there twice")
        found.append(each)
    return tuple(found)


def _one_included(cursor: TokenCursor) -> Included:
    if cursor.accept("HEADER"):
        header = cursor.string("the name of a header as a string")
        cursor.expect("AS")
        column = cursor.identifier("the name of a column")
        return Included("HEADER", column, header, cursor.accept("BYTES"))
    if cursor.accept("KEY"):
        named = cursor.accept("AS")
        return Included("KEY", cursor.identifier("the name of a column") if named else None)
    for what in _METADATA:
        if cursor.accept(what):
            kind = cast("Literal['PARTITION', 'OFFSET', 'TIMESTAMP', 'HEADERS']", what)
            return Included(kind, _column(cursor, what.lower()))
    raise cursor.syntax_error("KEY, PARTITION, OFFSET, TIMESTAMP, HEADERS or HEADER")


def _column(cursor: TokenCursor, otherwise: str) -> str:
    return cursor.identifier("the name of a column") if cursor.accept("AS") else otherwise


def _envelope(cursor: TokenCursor) -> tuple[SourceEnvelope, str | None]:
    """The envelope, and the column for errors of values."""
    if not cursor.accept("ENVELOPE") or cursor.accept("NONE"):
        return "NONE", None
    if cursor.accept("DEBEZIUM"):
        return "DEBEZIUM", None
    if not cursor.accept("UPSERT"):
        raise cursor.syntax_error("NONE, UPSERT or DEBEZIUM")
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
