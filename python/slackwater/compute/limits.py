"""The sizes and times from which on a view is ticked or computed in another way."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.compute.cost_model import INCREMENTAL_BELOW_ROWS


@dataclass(frozen=True, slots=True)
class Limits:
    """The sizes and times at which one way of computing a view gives way to another.

    A tick takes about `tick_rows` of input and `tick_bytes` of stored parts, to bound its memory,
    but at least what changes at its first time; one that follows no more than
    `quick_rows` is quick, unless it takes more than `quick_ms`. Out of fewer than `few_rows` of
    input contents are computed as one task and collected; else by executors, and up to
    `inline_rows` that these wrote become an inline part. Fewer changes than
    `incremental_below_rows` are always followed by a program. The order of its lookups is thought
    about again after `ordered_rows`, and as many as are looked up. A view that need not be
    recomputed may be for `whole_ms`, or for twice what is expected.
    """

    tick_rows: int = 2_000_000
    tick_bytes: int = 128 << 20
    quick_rows: int = 10_000
    quick_ms: int = 100
    few_rows: int = 50_000
    inline_rows: int = 10_000
    incremental_below_rows: int = INCREMENTAL_BELOW_ROWS
    ordered_rows: int = 1000
    whole_ms: int = 5_000
