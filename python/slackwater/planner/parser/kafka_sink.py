"""``INTO KAFKA`` as values: which topic, and how rows become its messages.

Source: surface 4; docs/decisions 0070.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.planner.parser.names import QualifiedName

SinkPayload = Literal["JSON", "TEXT", "BYTES", "AVRO", "PROTOBUF"]
Compatibility = Literal[
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


Side = Literal["KEY", "VALUE"]


@dataclass(frozen=True, slots=True)
class SinkDoc:
    """DOC ON: what a schema says of the relation that is written, or of one of its columns.

    `side` None: the schemas of keys and of values say it, unless something else is said of one. An
    empty text: they say nothing.
    """

    relation: QualifiedName
    text: str
    column: str | None = None
    side: Side | None = None


@dataclass(frozen=True, slots=True)
class SinkRegistry:
    """USING CONFLUENT SCHEMA REGISTRY: the registry that gets the schemas of keys and values, and
    what they are like."""

    connection: QualifiedName
    key_fullname: str | None = None
    value_fullname: str | None = None
    null_defaults: bool = False
    key_compatibility: Compatibility | None = None
    value_compatibility: Compatibility | None = None
    docs: tuple[SinkDoc, ...] = ()


@dataclass(frozen=True, slots=True)
class KafkaSinkConnector:
    """A topic, which is made if it is not there. The key is that of the statement's envelope.

    `key_format` None: keys have the format of values, and their registry. Not `is_enforced`: of
    several rows of a key one counts.
    """

    connection: QualifiedName
    topic: str
    value_format: SinkPayload
    key_format: SinkPayload | None = None
    is_enforced: bool = True
    headers: str | None = None
    compression: Compression | None = None
    partitions: int | None = None
    replication_factor: int | None = None
    topic_config: tuple[tuple[str, str], ...] = ()
    partition_by: str | None = None
    transactional_id_prefix: str | None = None
    value_registry: SinkRegistry | None = None
    key_registry: SinkRegistry | None = None
