"""``FROM KAFKA`` as canonical text."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.planner.parser.kafka_source import (
    Decoding,
    GivenSchema,
    Included,
    KafkaSource,
    Payload,
    Registry,
    Strategy,
)
from slackwater.repr.relation import quote_identifier, quote_string


def kafka_sql(source: KafkaSource) -> str:
    """The text from KAFKA on."""
    options = [f"TOPIC {quote_string(source.topic)}"]
    if source.start_offsets:
        options.append(f"START OFFSET ({', '.join(map(str, source.start_offsets))})")
    if source.start_timestamp_ms is not None:
        options.append(f"START TIMESTAMP {source.start_timestamp_ms}")
    if source.group_id_prefix is not None:
        options.append(f"GROUP ID PREFIX {quote_string(source.group_id_prefix)}")
    words = (f"KAFKA CONNECTION {source.connection.sql} ({', '.join(options)})",)
    rest = () if source.decoding is None else decoding_sql(source.decoding)
    return " ".join((*words, *rest))


def decoding_sql(decoding: Decoding) -> Iterator[str]:
    """The words that say how messages become rows."""
    value = _format(decoding.value)
    if decoding.key is None:
        yield f"FORMAT {value}"
    else:
        yield f"KEY FORMAT {_format(decoding.key)} VALUE FORMAT {value}"
    if decoding.included:
        yield f"INCLUDE {', '.join(map(_included, decoding.included))}"
    if decoding.envelope != "NONE":
        yield f"ENVELOPE {decoding.envelope}"
        if decoding.inline_errors is not None:
            column = quote_identifier(decoding.inline_errors)
            yield f"(VALUE DECODING ERRORS = INLINE AS {column})"
    if decoding.on_error != "PROPAGATE":
        yield f"ON ERROR {decoding.on_error}"


def _format(payload: Payload) -> str:
    if payload.kind in ("AVRO", "PROTOBUF"):
        message = "" if payload.message is None else f" MESSAGE {quote_string(payload.message)}"
        return f"{payload.kind}{message} USING {' '.join(_schema(payload))}"
    if payload.kind != "CSV":
        return payload.kind
    if payload.header is not None:
        columns = f"HEADER ({', '.join(map(quote_identifier, payload.header))})"
    else:
        columns = f"{payload.columns} COLUMNS"
    delimiter = quote_string(payload.delimiter)
    return f"CSV WITH {columns}" + ("" if delimiter == "','" else f" DELIMITED BY {delimiter}")


def _schema(payload: Payload) -> Iterator[str]:
    match payload.schema:
        case Registry(connection, key, value):
            yield f"CONFLUENT SCHEMA REGISTRY CONNECTION {connection.sql}"
            yield from _strategy("KEY", key)
            yield from _strategy("VALUE", value)
        case GivenSchema(digits, has_header) if payload.kind == "PROTOBUF":
            yield f"SCHEMA X'{digits}'"
            if has_header:
                yield "(CONFLUENT WIRE FORMAT = true)"
        case GivenSchema(text, has_header):
            yield f"SCHEMA {quote_string(text)}"
            if not has_header:
                yield "(CONFLUENT WIRE FORMAT = false)"
        case None:
            raise AssertionError("a statement with a schema says where its schema is")


def _strategy(side: str, strategy: Strategy) -> Iterator[str]:
    if strategy.id is not None:
        yield f"{side} STRATEGY ID {strategy.id}"
    elif strategy.schema is not None:
        yield f"{side} STRATEGY INLINE {quote_string(strategy.schema)}"


def _included(each: Included) -> str:
    header = "" if each.header is None else f" {quote_string(each.header)}"
    kind = " BYTES" if each.is_bytes else ""
    column = "" if each.column is None else f" AS {quote_identifier(each.column)}"
    return f"{each.what}{header}{column}{kind}"
