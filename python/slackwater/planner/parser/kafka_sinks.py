"""The grammar of ``INTO KAFKA``, and its canonical text. Source: surface 4, docs/decisions 0070."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast, get_args

from slackwater.planner.parser.kafka import read_topic
from slackwater.planner.parser.kafka_sink import Compression, KafkaSinkConnector, SinkPayload
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    invalid,
    positive_integer,
    read_options,
    text,
)
from slackwater.planner.parser.statements import Envelope
from slackwater.planner.parser.tokens import TokenCursor
from slackwater.repr.relation import quote_identifier, quote_string

_FORMATS = "JSON, TEXT or BYTES"
_OTHER_FORMATS = ("AVRO", "PROTOBUF", "CSV")
_MOST = 2**31 - 1
"""Kafka counts partitions and replicas in 32 bits."""


def read_kafka_sink(cursor: TokenCursor) -> tuple[KafkaSinkConnector, Envelope]:
    """Reads the statement's rest after KAFKA, up to WITH."""
    cursor.expect("CONNECTION")
    connection = cursor.name("a connection")
    config: dict[str, str] = {}

    def topic_config(cursor: TokenCursor, option: str) -> OptionValue:
        cursor.expect("MAP")
        cursor.expect_symbol("(")
        while True:
            at = cursor.token
            name = text(cursor, option)
            if name in config:
                raise invalid(cursor, option, at, "it is there twice")
            cursor.expect_symbol("=>")
            config[name] = cursor.string()
            if not cursor.accept_symbol(","):
                break
        cursor.expect_symbol(")")
        return True

    known: Mapping[str, ReadValue] = {
        "TOPIC": read_topic,
        "COMPRESSION TYPE": _compression,
        "TOPIC PARTITION COUNT": _count,
        "TOPIC REPLICATION FACTOR": _count,
        "TOPIC CONFIG": topic_config,
        "PARTITION BY": lambda cursor, _: cursor.identifier("the name of a column"),
        "TRANSACTIONAL ID PREFIX": text,
    }
    options = read_options(cursor, known)
    if "TOPIC" not in options:
        raise cursor.syntax_error("the option TOPIC", cursor.at(cursor.mark - 1))
    key: tuple[str, ...] = ()
    is_enforced = True
    if cursor.looking_at("KEY") and not cursor.looking_at("KEY", "FORMAT"):
        cursor.expect("KEY")
        key = cursor.identifiers()
        is_enforced = not cursor.accept("NOT", "ENFORCED")
    headers = cursor.identifier("the name of a column") if cursor.accept("HEADERS") else None
    key_format: SinkPayload | None = None
    if cursor.accept("KEY"):
        key_format = _format(cursor)
        cursor.expect("VALUE")
    value_format = _format(cursor)
    connector = KafkaSinkConnector(
        connection,
        str(options["TOPIC"]),
        value_format,
        key_format,
        is_enforced,
        headers,
        cast("Compression | None", options.get("COMPRESSION TYPE")),
        cast("int | None", options.get("TOPIC PARTITION COUNT")),
        cast("int | None", options.get("TOPIC REPLICATION FACTOR")),
        tuple(config.items()),
        cast("str | None", options.get("PARTITION BY")),
        cast("str | None", options.get("TRANSACTIONAL ID PREFIX")),
    )
    return connector, _envelope(cursor, key)


def _envelope(cursor: TokenCursor, key: tuple[str, ...]) -> Envelope:
    cursor.expect("ENVELOPE")
    if cursor.accept("DEBEZIUM"):
        return Envelope("DEBEZIUM", key)
    if not cursor.accept("UPSERT"):
        raise cursor.syntax_error("UPSERT or DEBEZIUM")
    if not key:
        raise cursor.syntax_error(
            "KEY (columns) before FORMAT, because of ENVELOPE UPSERT", cursor.at(cursor.mark - 1)
        )
    return Envelope("UPSERT", key)


def _format(cursor: TokenCursor) -> SinkPayload:
    cursor.expect("FORMAT")
    for other in _OTHER_FORMATS:
        if cursor.looking_at(other):
            raise cursor.unsupported(f"FORMAT {other} of a sink", "Write JSON, TEXT or BYTES.")
    for form in get_args(SinkPayload):
        if cursor.accept(form):
            return cast("SinkPayload", form)
    raise cursor.syntax_error(_FORMATS)


def _compression(cursor: TokenCursor, option: str) -> OptionValue:
    at = cursor.token
    found = text(cursor, option).lower()
    if found not in get_args(Compression):
        raise invalid(cursor, option, at, f"one of {', '.join(get_args(Compression))} is expected")
    return found


def _count(cursor: TokenCursor, option: str) -> OptionValue:
    at = cursor.token
    found = positive_integer(cursor, option)
    if found > _MOST:
        raise invalid(cursor, option, at, f"the greatest is {_MOST}")
    return found


def kafka_sink_sql(sink: KafkaSinkConnector, envelope: Envelope) -> str:
    """The canonical text from KAFKA to the envelope."""
    words = [f"KAFKA CONNECTION {sink.connection.sql} ({', '.join(_options(sink))})"]
    if envelope.key:
        columns = ", ".join(map(quote_identifier, envelope.key))
        words.append(f"KEY ({columns})" + ("" if sink.is_enforced else " NOT ENFORCED"))
    if sink.headers is not None:
        words.append(f"HEADERS {quote_identifier(sink.headers)}")
    if sink.key_format is None:
        words.append(f"FORMAT {sink.value_format}")
    else:
        words.append(f"KEY FORMAT {sink.key_format} VALUE FORMAT {sink.value_format}")
    return " ".join((*words, f"ENVELOPE {envelope.kind}"))


def _options(sink: KafkaSinkConnector) -> Iterator[str]:
    yield f"TOPIC {quote_string(sink.topic)}"
    if sink.compression is not None:
        yield f"COMPRESSION TYPE {quote_string(sink.compression)}"
    if sink.partitions is not None:
        yield f"TOPIC PARTITION COUNT {sink.partitions}"
    if sink.replication_factor is not None:
        yield f"TOPIC REPLICATION FACTOR {sink.replication_factor}"
    if sink.topic_config:
        pairs = (f"{quote_string(name)} => {quote_string(v)}" for name, v in sink.topic_config)
        yield f"TOPIC CONFIG MAP({', '.join(pairs)})"
    if sink.partition_by is not None:
        yield f"PARTITION BY {quote_identifier(sink.partition_by)}"
    if sink.transactional_id_prefix is not None:
        yield f"TRANSACTIONAL ID PREFIX {quote_string(sink.transactional_id_prefix)}"
