"""Messages in Avro, decoded by fastavro. The seam is `slackwater.storage.kafka.avro`.

Source: docs/decisions 0071; Confluent's wire format.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slackwater.adapter.external.libraries import fastavro
from slackwater.adapter.external.wire_format import HEADER_BYTES, Writers, schema_of
from slackwater.storage.kafka.avro import unreadable
from slackwater.storage.kafka.avro_meaning import other_meaning

_UNREADABLE = (EOFError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError)
"""The errors of fastavro for bytes that are not of the schema."""

WriterSchema = Callable[[int], str | None]
"""The text of the schema with that id; None: the registry has none.

Raises SLACKWATER_REGISTRY_UNREACHABLE.
"""


def check(schema: str, what: str) -> None:
    """Raises SLACKWATER_AVRO_SCHEMA for what fastavro does not take as a schema."""
    library = fastavro()
    try:
        found = json.loads(schema)
        if not isinstance(found, str | list | dict):
            raise ValueError(f"{schema[:80]} is no schema")
        library.parse_schema(found)
    except library.schema.UnknownType as error:
        raise unreadable(what, f"it names {error.name}, which it does not define before") from None
    except (
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
        library.schema.SchemaParseException,
    ) as error:
        raise unreadable(what, _words(error)) from None


@dataclass(slots=True)
class AvroMessages:
    """Messages as values in one reader schema. See `MessageReader`.

    With `writer` they begin with the id of their schema; without it all are written in `original`,
    behind a header if `has_header`. `schema` is the original as decoders take it.
    """

    schema: str
    original: str
    has_header: bool = True
    writer: WriterSchema | None = None
    monotonic: Callable[[], float] = time.monotonic
    _library: Any = field(init=False)
    _reader: Any = field(init=False)
    _writer: Any = field(init=False)
    _writers: Writers[Any] = field(init=False)

    def __post_init__(self) -> None:
        self._library = fastavro()
        self._reader = self._library.parse_schema(json.loads(self.schema))
        self._writer = self._parsed(self.original) if self.writer is None else None
        self._writers = Writers(self._asked, self.monotonic)

    def value(self, message: bytes) -> Any:
        writer = self._writer
        if self.has_header:
            schema = schema_of(message)
            if writer is None:
                writer = self._writers.of(schema)
        stream = io.BytesIO(message)
        stream.seek(HEADER_BYTES if self.has_header else 0)
        try:
            found = self._library.schemaless_reader(stream, writer, self._reader)
        except self._library.read.SchemaResolutionError as error:
            raise ValueError(f"its schema is none of the source's: {_words(error)}") from None
        except _UNREADABLE as error:
            raise ValueError(f"it is not Avro of its schema: {_words(error)}") from None
        left = len(message) - stream.tell()
        if left:
            raise ValueError(f"it is not Avro of its schema: {left} bytes are left")
        return found

    def _asked(self, schema: int) -> Any:
        """The schema, of the registry. Raises ValueError."""
        text = None if self.writer is None else self.writer(schema)
        if text is None:
            raise ValueError(f"the registry has no schema {schema}")
        try:
            found, parsed = json.loads(text), self._parsed(text)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ValueError(f"the schema {schema} is not Avro: {_words(error)}") from None
        except self._library.schema.SchemaParseException as error:
            raise ValueError(f"the schema {schema} is not Avro: {_words(error)}") from None
        other = other_meaning(found, json.loads(self.original))
        if other is not None:
            raise ValueError(f"its schema is none of the source's: {other}")
        return parsed

    def _parsed(self, text: str) -> Any:
        """The schema, without logical types: the columns say what numbers mean."""
        return self._library.parse_schema(_without_logical_types(json.loads(text)))


def _without_logical_types(schema: Any) -> Any:
    match schema:
        case dict():
            return {
                name: value if name in ("default", "symbols") else _without_logical_types(value)
                for name, value in schema.items()
                if name != "logicalType"
            }
        case list():
            return [_without_logical_types(each) for each in schema]
        case _:
            return schema


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
