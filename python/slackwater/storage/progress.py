"""The progress relation of a source: its remap as a collection that can be read.

A source with one partition has the column ``offset``, any other ``partition`` and ``offset``: the
positions of the frontier up to which the source has been read at each time. Where partitions may be
added, one more row has NULL as its partition, and as its offset the number of the first partition
of which nothing was read. A changefeed has the column ``frontier``, a time of the upstream (see
`changefeed.encoding`).

Source: spec controllers 5.1, 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import pyarrow as pa

from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.changefeed import encoding
from slackwater.storage.reclock import BindingUpdate, Remap, remap_diff
from slackwater.storage.source_time import Element, Position, SourceFrontier, Unread

ONE_PARTITION = RelationDesc.of(offset="long")
PARTITIONED = RelationDesc.of(partition="long", offset="long")
HYBRID_TIME = RelationDesc.of(frontier=encoding.DECIMAL)
"""Of a changefeed: the first time of the upstream that is not bound yet."""

_VALUES: Mapping[str, Callable[[Element], int | Decimal | None]] = {
    "partition": lambda element: None if isinstance(element, Unread) else element.partition,
    "offset": lambda element: _number(element),
    "frontier": lambda element: encoding.decimal(_number(element)),
}


def binding_rows(
    desc: RelationDesc, before: SourceFrontier | None, after: SourceFrontier
) -> pa.Table:
    """The rows, with ``__diff``, that take the relation from `before` (None: empty) to `after`.

    Raises FatalError when that would be a step back.
    """
    values = [_VALUES[name] for name in desc.names]
    return desc.with_diffs(
        ([value(element) for value in values], diff) for element, diff in remap_diff(before, after)
    )


def remap_at(rows: pa.Table, upper: Timestamp, minimum: SourceFrontier) -> Remap:
    """The remap that has these rows just before `upper`, which is where it can be read.

    Raises FatalError when they are no frontier.
    """
    time = Timestamp(upper - 1)
    offsets = (
        [encoding.place_of(each) for each in rows.column("frontier").to_pylist()]
        if "frontier" in rows.column_names
        else rows.column("offset").to_pylist()
    )
    partitions = (
        rows.column("partition").to_pylist()
        if "partition" in rows.column_names
        else [0] * rows.num_rows
    )
    updates = [
        BindingUpdate(Unread(offset) if partition is None else Position(partition, offset), time, 1)
        for partition, offset in zip(partitions, offsets, strict=True)
    ]
    return Remap.of_updates(updates, minimum, Frontier(time), Frontier(upper))


def _number(element: Element) -> int:
    return element.first if isinstance(element, Unread) else element.offset
