"""The partition specs of an Iceberg table, as a sink writes rows of them.

Source: docs/decisions 0084.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from slackwater.storage.iceberg.partitions import PartitionColumn
from slackwater.storage.iceberg.schema import DECIMAL, Misfit

_PLAIN = frozenset({"identity", "void", "year", "month", "day", "hour"})
_COUNTED = ("bucket[", "truncate[")
_INEXACT = frozenset({"float", "double"})


@dataclass(frozen=True, slots=True)
class WrittenSpec:
    """A partition spec of pyiceberg's, and how the partition of a row is told."""

    spec: Any
    columns: tuple[PartitionColumn, ...]

    @property
    def spec_id(self) -> int:
        """The id of the spec in its table."""
        found: int = self.spec.spec_id
        return found


def written_spec(library: Any, metadata: Any) -> WrittenSpec:
    """The spec by which a table is written now. Raises `Misfit`."""
    spec, schema = metadata.spec(), metadata.schema()
    return WrittenSpec(spec, tuple(_column(library, schema, each) for each in spec.fields))


def whole_spec(metadata: Any) -> WrittenSpec | None:
    """A spec of the table without partitions; None: it has none."""
    found = (each for each in metadata.partition_specs if each.is_unpartitioned())
    return next((WrittenSpec(each, ()) for each in found), None)


def _column(library: Any, schema: Any, field: Any) -> PartitionColumn:
    transform = str(field.transform)
    if transform == "void":
        return PartitionColumn(transform, field.source_id)
    source = schema.find_field(field.source_id)
    if transform not in _PLAIN and not transform.startswith(_COUNTED):
        raise Misfit(f"it is partitioned by {transform} of {source.name}")
    if str(source.field_type) in _INEXACT:
        # Engines differ in which of these numbers are the same.
        raise Misfit(f"it is partitioned by {source.name}, which is {source.field_type}")
    if not transform.startswith(_COUNTED):
        return PartitionColumn(transform, field.source_id)
    if DECIMAL.fullmatch(str(source.field_type)) is None:
        of = field.transform.transform(source.field_type)
        return PartitionColumn(transform, field.source_id, of)
    if transform.startswith("truncate["):
        # The value may have more digits than the type.
        raise Misfit(f"it is partitioned by {transform} of {source.name}, a decimal")
    bucket = field.transform.transform(library.types.BinaryType())
    return PartitionColumn(
        transform, field.source_id, lambda value: None if value is None else bucket(_bytes(value))
    )


def _bytes(value: Decimal) -> bytes:
    """The least bytes of the unscaled number: for -128 pyiceberg has one more than Iceberg."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    number = -number if sign else number
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)
