"""Messages of a topic, made of a range of updates.

The messages of a range have one order, by time, key, value and headers, which depends on nothing
but the updates: a range whose first part is out goes on with the same message after a restart.

Source: docs/decisions 0070.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.repr.errors import FatalError, SlackwaterError, invalid_option, user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import TIME_COLUMN, RelationDesc, arrow_type, stored_column
from slackwater.storage.json_lines import json_lines, text_values
from slackwater.storage.kafka.avro_writing import NoAvro
from slackwater.storage.kafka.protobuf_writing import NoProtobuf
from slackwater.storage.kafka.sink_avro import (
    SchemaIds,
    SinkSchema,
    key_form,
    value_form,
)
from slackwater.storage.kafka.sink_protobuf import protobuf_key, protobuf_value
from slackwater.storage.kafka.topic import Header
from slackwater.storage.sink_rows import SinkKey, changes_of, greatest_last, structs, unpaired

TIMESTAMP_HEADER = "slackwater-timestamp"
"""The header with the time of a message's update, in milliseconds since the epoch."""

_WHOLE = ("JSON", "AVRO", "PROTOBUF")
"""The formats that have all columns of a row."""
SinkFormat = Literal["JSON", "TEXT", "BYTES", "AVRO", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class KafkaSinkConfig:
    """A sink that writes `topic`. A topic that is not there is made as some fields say.

    `key_schema` and `value_schema` are there where the formats are AVRO or PROTOBUF.
    """

    topic: str
    key_format: SinkFormat
    value_format: SinkFormat
    envelope: Literal["UPSERT", "DEBEZIUM"]
    key: tuple[str, ...] = ()
    is_enforced: bool = True
    headers: str | None = None
    partition_by: str | None = None
    snapshot: bool = True
    transactional_id_prefix: str = ""
    compression: str = "lz4"
    partitions: int | None = None
    replication_factor: int | None = None
    topic_config: tuple[tuple[str, str], ...] = ()
    key_schema: SinkSchema | None = None
    value_schema: SinkSchema | None = None

    @property
    def registries(self) -> tuple[GlobalId, ...]:
        """The connections to registries, each once."""
        schemas = (self.key_schema, self.value_schema)
        return tuple(dict.fromkeys(each.registry for each in schemas if each is not None))

    @property
    def format(self) -> SinkFormat | None:
        """The one format of keys and values; None: they have two."""
        return self.value_format if self.key_format == self.value_format else None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages by columns, in their order.

    `places` are numbers of which the remainder by the number of partitions is the partition; None:
    the hash of the key decides.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[Header]]
    places: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(len(each) for part in (self.keys, self.values) for each in part if each)

    def piece(self, start: int, end: int) -> Outgoing:
        """The messages from `start` to before `end`."""
        places = None if self.places is None else self.places[start:end]
        return Outgoing(
            self.keys[start:end], self.values[start:end], self.headers[start:end], places
        )


def check_kafka_sink(config: KafkaSinkConfig, desc: RelationDesc, object_name: str) -> None:
    """Raises SLACKWATER_SINK_KEY and SLACKWATER_INVALID_OPTION when the sink cannot write it."""
    key = SinkKey(config.key, object_name)
    if config.envelope == "UPSERT" and not config.key:
        raise key.refused("ENVELOPE UPSERT needs KEY (columns)")
    key.check(desc)
    types = {column.name: arrow_type(column.spark_type) for column in desc.columns}
    if config.headers is not None:
        _check_headers(config.headers, types.get(config.headers))
    if config.partition_by is not None:
        kind = types.get(config.partition_by)
        if kind is None or not pa.types.is_integer(kind):
            raise _refused("PARTITION BY", config.partition_by, "it is no column of whole numbers")
        if config.key and config.partition_by not in config.key:
            raise _refused(
                "PARTITION BY",
                config.partition_by,
                "all messages of a key belong into one partition, so it has to be in KEY",
            )
    if config.envelope == "DEBEZIUM" and config.value_format not in _WHOLE:
        raise _refused("VALUE FORMAT", config.value_format, "ENVELOPE DEBEZIUM has two rows")
    for option, form, columns in (
        ("KEY FORMAT", config.key_format, config.key),
        ("VALUE FORMAT", config.value_format, value_columns(config, desc)),
    ):
        if form in _WHOLE or not columns:
            continue
        if len(columns) > 1:
            raise _refused(option, form, f"it takes one column, and not {', '.join(columns)}")
        kind = types[columns[0]]
        if form == "BYTES" and not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            raise _refused(option, form, f"{columns[0]} is neither BINARY nor STRING")
    message_forms(config, desc)


def check_numbers(
    config: KafkaSinkConfig, before: RelationDesc, after: RelationDesc, object_name: str
) -> None:
    """Raises SLACKWATER_COLUMN_MISMATCH when values of a column would get another number.

    Readers know fields of Protobuf by their numbers, which are the places of columns.
    """
    was, now = value_columns(config, before), value_columns(config, after)
    if config.value_format == "PROTOBUF" and now[: len(was)] != was:
        raise user_error(
            "SLACKWATER_COLUMN_MISMATCH",
            objectName=object_name,
            details=f"values in Protobuf have fields by their places, so {', '.join(was)} come "
            "first, in this order",
        )


class MessageForm(Protocol):
    """The form of keys, or of values, that have a schema, whose text is `schema`."""

    @property
    def schema(self) -> str: ...

    def begin(self, schema: int) -> bytes:
        """The bytes with which a message begins, if a registry has given that id to the schema."""
        ...

    def alone(self, rows: pa.Table) -> list[bytes]:
        """The bytes of each row."""
        ...

    def pairs(self, rows: pa.Table, before: pa.Array, after: pa.Array) -> list[bytes]:
        """The bytes of pairs of rows, which are at positions that may be NULL."""
        ...


@dataclass(frozen=True, slots=True)
class MessageForms:
    """The forms of keys and of values that have a schema; None: they have none."""

    key: MessageForm | None = None
    value: MessageForm | None = None


def message_forms(config: KafkaSinkConfig, desc: RelationDesc) -> MessageForms:
    """The forms of a sink's messages. Raises SLACKWATER_INVALID_OPTION for columns without one."""
    named = {column.name: column for column in desc.columns}
    key: MessageForm | None = None
    value: MessageForm | None = None
    try:
        if config.key_schema is not None and config.key:
            of_key = protobuf_key if config.key_format == "PROTOBUF" else key_form
            key = of_key(config.key_schema, [named[name] for name in config.key])
        if config.value_schema is not None:
            shown = [named[name] for name in value_columns(config, desc)]
            of_value = protobuf_value if config.value_format == "PROTOBUF" else value_form
            value = of_value(config.value_schema, shown, is_pair=config.envelope == "DEBEZIUM")
    except NoAvro as error:
        raise _refused("FORMAT", "AVRO", str(error)) from None
    except NoProtobuf as error:
        raise _refused("FORMAT", "PROTOBUF", str(error)) from None
    return MessageForms(key, value)


def value_columns(config: KafkaSinkConfig, desc: RelationDesc) -> tuple[str, ...]:
    """The columns that are in values: all but headers in JSON, AVRO and PROTOBUF, in the others
    what is left beside the key and the partition, or the key if nothing is."""
    shown = tuple(name for name in desc.names if name != config.headers)
    if config.value_format in _WHOLE:
        return shown
    beside = tuple(name for name in shown if name not in (*config.key, config.partition_by))
    return beside or config.key


def _check_headers(name: str, kind: pa.DataType | None) -> None:
    if kind is None or not pa.types.is_map(kind) or not pa.types.is_string(kind.key_type):
        raise _refused("HEADERS", name, "it is no column of type MAP<STRING, STRING or BINARY>")
    if not (pa.types.is_string(kind.item_type) or pa.types.is_binary(kind.item_type)):
        raise _refused("HEADERS", name, "values of headers are STRING or BINARY")


def _refused(option: str, value: str, reason: str) -> SlackwaterError:
    return invalid_option(option, "CREATE SINK", value, reason)


class Encoder:
    """Makes messages of rows as a sink's configuration says."""

    def __init__(
        self,
        config: KafkaSinkConfig,
        desc: RelationDesc,
        object_name: str,
        ids: SchemaIds | None = None,
    ) -> None:
        """`ids` are those of the schemas of what has one. Raises what `check_kafka_sink` raises."""
        check_kafka_sink(config, desc, object_name)
        forms, ids = message_forms(config, desc), ids or SchemaIds()
        self._key_payload = _Payload(config.key, config.key_format, forms.key, ids.key)
        self._value_payload = _Payload(
            value_columns(config, desc), config.value_format, forms.value, ids.value
        )
        self._config = config
        self._desc = desc
        self._key = SinkKey(config.key, object_name, config.is_enforced)

    @property
    def desc(self) -> RelationDesc:
        """The columns of the relation that is written."""
        return self._desc

    def messages(self, rows: pa.Table) -> Outgoing:
        """The messages of consolidated updates. Raises SLACKWATER_SINK_KEY."""
        if not len(rows):
            return Outgoing([], [], [])
        config = self._config
        if config.key:
            if not config.is_enforced:
                rows = greatest_last(rows, self._desc)
            changes = changes_of(rows, self._key)
            any_row, old, new = changes.any_row, changes.old, changes.new
        else:
            any_row, old, new = unpaired(rows)
        times = rows.column(TIME_COLUMN).take(any_row).to_pylist()
        # What a message has beside its value is that of the row that comes, else of the one that
        # goes.
        shown = pc.coalesce(new, old)
        found = Outgoing(
            self._keys(rows, any_row),
            self._contents(rows, old, new),
            self._headers(rows, times, shown),
            self._places(rows, shown),
        )
        return _ordered(times, found, has_headers=config.headers is not None)

    def _keys(self, rows: pa.Table, any_row: pa.Array) -> Sequence[bytes | None]:
        config = self._config
        if not config.key:
            return [None] * len(any_row)
        return self._key_payload.of(rows, any_row)

    def _contents(self, rows: pa.Table, old: pa.Array, new: pa.Array) -> Sequence[bytes | None]:
        if self._config.envelope == "DEBEZIUM":
            return self._value_payload.of_pairs(rows, old, new)
        found = iter(self._value_payload.of(rows, new.drop_null()))
        return [next(found) if there else None for there in pc.is_valid(new).to_pylist()]

    def _headers(
        self, rows: pa.Table, times: Sequence[int], shown: pa.Array
    ) -> Sequence[Sequence[Header]]:
        # Most messages of a large range have one time.
        of_times = {time: (TIMESTAMP_HEADER, str(time).encode()) for time in set(times)}
        if self._config.headers is None:
            alone = {time: [header] for time, header in of_times.items()}
            return [alone[time] for time in times]
        own = [of_times[time] for time in times]
        column = rows.column(stored_column(self._config.headers)).take(shown).to_pylist()
        return [[each, *_user_headers(found)] for each, found in zip(own, column, strict=True)]

    def _places(self, rows: pa.Table, shown: pa.Array) -> Sequence[int] | None:
        if self._config.partition_by is None:
            return None
        column = rows.column(stored_column(self._config.partition_by)).take(shown)
        return [0 if each is None else each for each in column.to_pylist()]


def _user_headers(found: Iterable[tuple[str, Any]] | None) -> list[Header]:
    headers: list[Header] = []
    for name, value in found or ():
        if name != TIMESTAMP_HEADER:
            headers.append((name, value.encode() if isinstance(value, str) else value))
    return sorted(headers, key=lambda each: (each[0], each[1] or b""))


@dataclass(frozen=True, slots=True)
class _Payload:
    """The keys, or the values, of messages: these columns in that format.

    `form` is that of a format with a schema, and `schema` the id that a registry has given to it.
    """

    names: Sequence[str]
    format: SinkFormat
    form: MessageForm | None = None
    schema: int | None = None

    def of(self, rows: pa.Table, positions: pa.Array) -> Sequence[bytes]:
        """Those of the rows at these positions. TEXT and BYTES have empty bytes for NULL."""
        columns = self._columns(rows).take(positions)
        if self.form is not None:
            return self._headed(self.form, self.form.alone(columns))
        if self.format == "BYTES":
            return [
                each.encode() if isinstance(each, str) else each or b""
                for each in columns.column(0).to_pylist()
            ]
        if self.format == "JSON":
            return _lines(columns)
        return [(each or "").encode() for each in text_values(columns.column(0))]

    def of_pairs(self, rows: pa.Table, old: pa.Array, new: pa.Array) -> Sequence[bytes]:
        """Those of the rows before and after changes, at positions that may be NULL."""
        if self.form is not None:
            return self._headed(self.form, self.form.pairs(self._columns(rows), old, new))
        before, after = (structs(rows, self.names, each) for each in (old, new))
        return _lines(pa.table([before, after], names=["before", "after"]))

    def _columns(self, rows: pa.Table) -> pa.Table:
        stored = [stored_column(name) for name in self.names]
        return rows.select(stored).rename_columns(list(self.names))

    def _headed(self, form: MessageForm, found: Sequence[bytes]) -> Sequence[bytes]:
        if self.schema is None:
            raise FatalError("a sink has to have the ids of its schemas")
        begin = form.begin(self.schema)
        return [begin + each for each in found]


def _lines(table: pa.Table) -> list[bytes]:
    return json_lines(table).split(b"\n")[:-1]


def _ordered(times: Sequence[int], found: Outgoing, *, has_headers: bool) -> Outgoing:
    """The messages by time, key, value, and the headers that are the user's."""
    columns = {
        "time": pa.array(times, pa.int64()),
        "key": pa.array(found.keys, pa.binary()),
        "value": pa.array(found.values, pa.binary()),
    }
    if has_headers:
        texts = [repr(each).encode() for each in found.headers]
        columns["headers"] = pa.array(texts, pa.binary())
    table = pa.table(columns)
    order = [(name, "ascending") for name in table.column_names]
    positions = pc.sort_indices(table, sort_keys=order).to_pylist()
    places = None if found.places is None else [found.places[each] for each in positions]
    return Outgoing(
        [found.keys[each] for each in positions],
        [found.values[each] for each in positions],
        [found.headers[each] for each in positions],
        places,
    )
