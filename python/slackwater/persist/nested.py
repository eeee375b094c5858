"""Maps as what they are in memory: lists of entries."""

from __future__ import annotations

import pyarrow as pa


def as_lists(values: pa.Array) -> pa.Array:
    """A map array as a list array of (key, value) structs; any other array unchanged."""
    if not pa.types.is_map(values.type):
        return values
    entry = pa.struct([values.type.key_field, values.type.item_field])
    return values.cast(pa.list_(pa.field("entries", entry, False)))
