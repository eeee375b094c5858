"""``FROM KAFKA`` as values: which topic, and how its messages become rows.

Source: surface 4; docs/decisions 0069.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slackwater.planner.parser.names import QualifiedName

PayloadKind = Literal["TEXT", "BYTES", "JSON", "CSV"]


@dataclass(frozen=True, slots=True)
class Payload:
    """The format of keys or of values. All but `kind` belongs to CSV.

    Columns are counted (`columns`) or named (`header`); one of both is given.
    """

    kind: PayloadKind
    columns: int | None = None
    header: tuple[str, ...] | None = None
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class Included:
    """INCLUDE: a column for what a message has beside its value, under the name `column`.

    `header` is the name of the one header that a HEADER is.
    """

    what: Literal["KEY", "PARTITION", "OFFSET", "TIMESTAMP", "HEADERS", "HEADER"]
    column: str
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
    envelope: Literal["NONE", "UPSERT"] = "NONE"
    inline_errors: str | None = None
    on_error: Literal["PROPAGATE", "SKIP", "DEAD LETTER"] = "PROPAGATE"


@dataclass(frozen=True, slots=True)
class SkipLost:
    """ALTER SOURCE ... SKIP LOST: a source goes on behind messages that are not there any more."""

    name: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A topic. It is read from `start_offsets` of its partitions on, of others from the beginning.

    `start_timestamp_ms`: from the messages sent then on; a negative one counts from now.
    """

    connection: QualifiedName
    topic: str
    decoding: Decoding
    start_offsets: tuple[int, ...] = ()
    start_timestamp_ms: int | None = None
    group_id_prefix: str | None = None
