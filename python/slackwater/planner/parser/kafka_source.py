"""``FROM KAFKA`` as values: which topic, and how its messages become rows.

Source: surface 4; docs/decisions 0069.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from slackwater.planner.parser.names import QualifiedName

PayloadKind = Literal["TEXT", "BYTES", "JSON", "CSV", "AVRO", "PROTOBUF"]
SourceEnvelope = Literal["NONE", "UPSERT", "DEBEZIUM"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """The schema of a registry in which messages are read: the latest of its subject, the one with
    that `id`, or none of it but this `schema`."""

    id: int | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """USING CONFLUENT SCHEMA REGISTRY: the schemas of keys and of values."""

    connection: QualifiedName
    key: Strategy = Strategy()
    value: Strategy = Strategy()


@dataclass(frozen=True, slots=True)
class GivenSchema:
    """USING SCHEMA: all messages are written in this schema, the text of one of Avro or a
    descriptor set of Protobuf in hexadecimal digits.

    With `has_header` they begin as those do whose schema is in a registry, and the id means
    nothing.
    """

    schema: str
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class Payload:
    """The format of keys or of values. `schema` belongs to AVRO and PROTOBUF, `message` to the
    latter, the rest but `kind` to CSV.

    `message` is the full name of one; None: that of the schema, which has one.
    Columns of CSV are counted (`columns`) or named (`header`); one of both is given. The `schema`
    and the `message` are None in what is kept of a source, which has the reader schemas themselves.
    """

    kind: PayloadKind
    columns: int | None = None
    header: tuple[str, ...] | None = None
    delimiter: str = ","
    schema: Registry | GivenSchema | None = None
    message: str | None = None

    @property
    def has_schema(self) -> bool:
        """Whether its columns are those of a schema."""
        return self.kind in ("AVRO", "PROTOBUF")


@dataclass(frozen=True, slots=True)
class Included:
    """INCLUDE: a column for what a message has beside its value, under the name `column`.

    `header` is the name of the one header that a HEADER is. `column` None: the key has the names
    that its format gives.
    """

    what: Literal["KEY", "PARTITION", "OFFSET", "TIMESTAMP", "HEADERS", "HEADER"]
    column: str | None
    header: str | None = None
    is_bytes: bool = False


@dataclass(frozen=True, slots=True)
class Decoding:
    """The rules by which messages become rows.

    `inline_errors` is the column for what is wrong with a value; None: that is an error.
    """

    value: Payload
    key: Payload | None = None
    included: tuple[Included, ...] = ()
    envelope: SourceEnvelope = "NONE"
    inline_errors: str | None = None
    on_error: Literal["PROPAGATE", "SKIP", "DEAD LETTER"] = "PROPAGATE"

    @property
    def is_by_key(self) -> bool:
        """Whether a key has one row, that of its last message."""
        return self.envelope != "NONE"

    @property
    def needs_columns(self) -> bool:
        """Whether nothing but a declaration says which columns there are."""
        return self.envelope == "DEBEZIUM" and self.value.kind == "JSON"

    @property
    def needs_keys(self) -> bool:
        """Whether rows have columns of the key."""
        return self.is_by_key or any(each.what == "KEY" for each in self.included)

    @property
    def key_format(self) -> Payload | None:
        """The format of keys, where they are read: with a registry FORMAT says both."""
        if self.key is None and self.needs_keys and isinstance(self.value.schema, Registry):
            return replace(self.value, message=None)
        return self.key


@dataclass(frozen=True, slots=True)
class SkipLost:
    """ALTER SOURCE ... SKIP LOST: a source goes on behind messages that are not there any more."""

    name: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ResnapshotSource:
    """ALTER SOURCE ... RESNAPSHOT: everything is read again, and the difference is committed.

    `tables`: these alone.
    """

    name: QualifiedName
    if_exists: bool = False
    tables: tuple[QualifiedName, ...] = ()


@dataclass(frozen=True, slots=True)
class RefreshSchema:
    """ALTER SOURCE ... REFRESH SCHEMA: values are read in the latest schema of their subject.

    `tables`: those of these alone.
    """

    name: QualifiedName
    if_exists: bool = False
    tables: tuple[QualifiedName, ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic. It is read from `start_offsets` of its partitions on, of others from the beginning.

    `decoding` None: it has no rows itself, and tables that say how they read it.
    `start_timestamp_ms`: from the messages sent then on; a negative one counts from now.
    """

    connection: QualifiedName
    topic: str
    decoding: Decoding | None = None
    start_offsets: tuple[int, ...] = ()
    start_timestamp_ms: int | None = None
    group_id_prefix: str | None = None
