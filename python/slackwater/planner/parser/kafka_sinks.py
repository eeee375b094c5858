"""The grammar of ``INTO KAFKA``, and its canonical text. Source: surface 4, docs/decisions 0070."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast, get_args

from slackwater.planner.parser.kafka import read_topic
from slackwater.planner.parser.kafka_sink import (
    Compatibility,
    Compression,
    KafkaSinkConnector,
    Side,
    SinkDoc,
    SinkPayload,
    SinkRegistry,
)
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import (
    OptionValue,
    ReadValue,
    boolean,
    choice,
    invalid,
    positive_integer_to,
    read_options,
    text,
)
from slackwater.planner.parser.statements import Envelope
from slackwater.planner.parser.tokens import Token, TokenCursor
from slackwater.repr.relation import quote_identifier, quote_string

_FORMATS = "JSON, AVRO, PROTOBUF, TEXT or BYTES"
_OTHER_FORMATS = ("CSV",)
_WITH_SCHEMA: Sequence[SinkPayload] = ("AVRO", "PROTOBUF")
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
        "TOPIC PARTITION COUNT": positive_integer_to(_MOST),
        "TOPIC REPLICATION FACTOR": positive_integer_to(_MOST),
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
    key_registry: SinkRegistry | None = None
    sides: tuple[str, ...] = ("KEY", "VALUE")
    if cursor.accept("KEY"):
        key_format, key_registry = _format(cursor, ("KEY",))
        cursor.expect("VALUE")
        sides = ("VALUE",)
    at = cursor.token
    value_format, registry = _format(cursor, sides)
    if not key:
        form = value_format if registry is not None else key_format
        _refuse_keys(cursor, registry or key_registry, at, form or value_format)
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
        registry,
        key_registry,
    )
    return connector, _envelope(cursor, key)


def _refuse_keys(
    cursor: TokenCursor, registry: SinkRegistry | None, at: Token, form: SinkPayload
) -> None:
    """Raises SLACKWATER_SYNTAX_ERROR for what is said of keys where there are none."""
    if registry is None:
        return
    docs = [each for each in registry.docs if each.side == "KEY"]
    for option, given in (
        (f"{form} KEY FULLNAME", registry.key_fullname),
        ("KEY COMPATIBILITY LEVEL", registry.key_compatibility),
        ("KEY DOC ON", docs[0].text if docs else None),
    ):
        if given is not None:
            raise cursor.syntax_error(f"KEY (columns) before FORMAT, because of {option}", at)


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


def _format(cursor: TokenCursor, sides: tuple[str, ...]) -> tuple[SinkPayload, SinkRegistry | None]:
    """The format of keys or values, or of both, as `sides` says."""
    cursor.expect("FORMAT")
    for other in _OTHER_FORMATS:
        if cursor.looking_at(other):
            raise cursor.unsupported(f"FORMAT {other} of a sink", f"Write {_FORMATS}.")
    for each in _WITH_SCHEMA:
        if cursor.accept(each):
            return each, _registry(cursor, sides, each)
    for form in get_args(SinkPayload):
        if cursor.accept(form):
            return cast("SinkPayload", form), None
    raise cursor.syntax_error(_FORMATS)


def _registry(cursor: TokenCursor, sides: tuple[str, ...], form: SinkPayload) -> SinkRegistry:
    """Reads what stands behind AVRO or PROTOBUF."""
    cursor.expect("USING")
    if cursor.looking_at("SCHEMA"):
        raise cursor.unsupported(
            f"{form} USING SCHEMA of a sink",
            "Its schemas are made of its columns: name a registry.",
        )
    cursor.expect("CONFLUENT", "SCHEMA", "REGISTRY", "CONNECTION")
    connection = cursor.name("a connection")
    options: dict[str, OptionValue] = {}
    docs: list[SinkDoc] = []
    if cursor.token.is_symbol("("):
        known: dict[str, ReadValue] = {"NULL DEFAULTS": boolean} if form == "AVRO" else {}
        of_docs = {
            f"{side} DOC ON {target}".lstrip(): _reads_doc(docs, cast("Side", side) or None)
            for side in ("", *sides)
            for target in ("TYPE", "COLUMN")
        }
        known |= of_docs
        for side in sides:
            known[f"{form} {side} FULLNAME"] = text
            known[f"{side} COMPATIBILITY LEVEL"] = choice(*get_args(Compatibility))
        options = read_options(cursor, known, repeated=of_docs)
    return SinkRegistry(
        connection,
        cast("str | None", options.get(f"{form} KEY FULLNAME")),
        cast("str | None", options.get(f"{form} VALUE FULLNAME")),
        options.get("NULL DEFAULTS") is True,
        cast("Compatibility | None", options.get("KEY COMPATIBILITY LEVEL")),
        cast("Compatibility | None", options.get("VALUE COMPATIBILITY LEVEL")),
        tuple(docs),
    )


def _reads_doc(docs: list[SinkDoc], side: Side | None) -> ReadValue:
    """Reads ``relation = 'text'`` or ``relation.column = 'text'`` into the docs."""

    def read(cursor: TokenCursor, option: str) -> OptionValue:
        at = cursor.token
        name, column = cursor.name(), None
        if option.endswith("COLUMN"):
            *relation, column = name.parts
            if not relation:
                raise cursor.syntax_error("a column as relation.column", at)
            name = QualifiedName(tuple(relation))
        cursor.accept_symbol("=")
        found = SinkDoc(name, cursor.string(), column, side)
        known = {((each.column or "").casefold(), each.side) for each in docs}
        if ((column or "").casefold(), side) in known:
            raise invalid(cursor, option, at, "it is there twice")
        docs.append(found)
        return True

    return read


def _compression(cursor: TokenCursor, option: str) -> OptionValue:
    at = cursor.token
    found = text(cursor, option).lower()
    if found not in get_args(Compression):
        raise invalid(cursor, option, at, f"one of {', '.join(get_args(Compression))} is expected")
    return found


def kafka_sink_sql(sink: KafkaSinkConnector, envelope: Envelope) -> str:
    """The canonical text from KAFKA to the envelope."""
    words = [f"KAFKA CONNECTION {sink.connection.sql} ({', '.join(_options(sink))})"]
    if envelope.key:
        columns = ", ".join(map(quote_identifier, envelope.key))
        words.append(f"KEY ({columns})" + ("" if sink.is_enforced else " NOT ENFORCED"))
    if sink.headers is not None:
        words.append(f"HEADERS {quote_identifier(sink.headers)}")
    value = _format_sql(sink.value_format, sink.value_registry)
    if sink.key_format is None:
        words.append(f"FORMAT {value}")
    else:
        key = _format_sql(sink.key_format, sink.key_registry)
        words.append(f"KEY FORMAT {key} VALUE FORMAT {value}")
    return " ".join((*words, f"ENVELOPE {envelope.kind}"))


def _format_sql(form: SinkPayload, registry: SinkRegistry | None) -> str:
    if registry is None:
        return form
    options = []
    for option, name in (
        (f"{form} KEY FULLNAME", registry.key_fullname),
        (f"{form} VALUE FULLNAME", registry.value_fullname),
    ):
        if name is not None:
            options.append(f"{option} {quote_string(name)}")
    if registry.null_defaults:
        options.append("NULL DEFAULTS = true")
    for option, level in (
        ("KEY COMPATIBILITY LEVEL", registry.key_compatibility),
        ("VALUE COMPATIBILITY LEVEL", registry.value_compatibility),
    ):
        if level is not None:
            options.append(f"{option} {quote_string(level)}")
    options += map(_doc_sql, registry.docs)
    words = f"{form} USING CONFLUENT SCHEMA REGISTRY CONNECTION {registry.connection.sql}"
    return f"{words} ({', '.join(options)})" if options else words


def _doc_sql(doc: SinkDoc) -> str:
    side = "" if doc.side is None else f"{doc.side} "
    named = "TYPE" if doc.column is None else "COLUMN"
    column = "" if doc.column is None else f".{quote_identifier(doc.column)}"
    return f"{side}DOC ON {named} {doc.relation.sql}{column} = {quote_string(doc.text)}"


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
