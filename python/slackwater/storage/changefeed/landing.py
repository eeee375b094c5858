"""The landing: what feeds have sent, durable before they are answered.

A row of the collection is a change. `bound` false: it waits to be bound. `bound` true: it is what
its key has now, so that the next change of the key can replace it; a deletion is kept so only where
late changes are to be told from duplicates, or while the key has dead letters, which may be older.
All else is removed in the append that binds it.

Source: spec checkpoint 5.2, docs/decisions 0027.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from slackwater.repr.relation import DIFF_FIELD, Column, RelationDesc
from slackwater.storage.changefeed.encoding import DECIMAL, decimal, place_of
from slackwater.storage.changefeed.messages import ChangeRecord

BOUND = "bound"


def _column(name: str, kind: str, *, nullable: bool = False) -> Column:
    return Column(name, json.dumps(kind), nullable=nullable)


_CHANGE = (
    _column("feed", "string"),
    _column("topic", "string"),
    _column("key", "string"),
    _column("updated", DECIMAL),
    _column("after", "string", nullable=True),
)
LANDING = RelationDesc((*_CHANGE, _column(BOUND, "boolean")))
DEAD_LETTERS = RelationDesc((*_CHANGE, _column("reason", "string")))

_LANDING = LANDING.arrow_schema().append(DIFF_FIELD)
_DEAD_LETTERS = DEAD_LETTERS.arrow_schema().append(DIFF_FIELD)


def landing_rows(changes: Sequence[tuple[ChangeRecord, bool, int]]) -> pa.Table:
    """Changes with whether they are bound and their diffs, as the collection takes them."""
    bound = pa.array([each for _, each, _ in changes], pa.bool_())
    diffs = pa.array([diff for _, _, diff in changes], pa.int64())
    arrays = [*_arrays([each for each, _, _ in changes]), bound, diffs]
    return pa.Table.from_arrays(arrays, schema=_LANDING)


def landed_rows(changes: Sequence[ChangeRecord]) -> pa.Table:
    """Changes that have just come."""
    count = len(changes)
    bound = pa.repeat(pa.scalar(False), count)
    diffs = pa.repeat(pa.scalar(1, pa.int64()), count)
    return pa.Table.from_arrays([*_arrays(changes), bound, diffs], schema=_LANDING)


def dead_letter_rows(letters: Sequence[tuple[ChangeRecord, str, int]]) -> pa.Table:
    """Changes that no table takes, with the reasons and their diffs."""
    reasons = pa.array([reason for _, reason, _ in letters], pa.string())
    diffs = pa.array([diff for _, _, diff in letters], pa.int64())
    arrays = [*_arrays([each for each, _, _ in letters]), reasons, diffs]
    return pa.Table.from_arrays(arrays, schema=_DEAD_LETTERS)


def contents(rows: pa.Table) -> tuple[list[ChangeRecord], list[ChangeRecord]]:
    """The rows of the landing that wait, and those that are bound, each as often as it is there."""
    waiting: list[ChangeRecord] = []
    images: list[ChangeRecord] = []
    for change, bound in zip(_changes(rows), rows.column(BOUND).to_pylist(), strict=True):
        (images if bound else waiting).append(change)
    return waiting, images


def letters(rows: pa.Table) -> list[tuple[ChangeRecord, str]]:
    """The dead letters that the rows of their collection are."""
    return list(zip(_changes(rows), rows.column("reason").to_pylist(), strict=True))


def _changes(rows: pa.Table) -> Iterable[ChangeRecord]:
    columns = [rows.column(each.name).to_pylist() for each in _CHANGE]
    for feed, topic, key, updated, after in zip(*columns, strict=True):
        yield ChangeRecord(feed, topic, key, place_of(updated), after)


def _arrays(changes: Sequence[ChangeRecord]) -> list[pa.Array]:
    # All changes of a transaction have one time, and making a decimal is slow.
    places = {each: number for number, each in enumerate({row.updated for row in changes})}
    kind = _LANDING.field("updated").type
    times = pa.array([decimal(each) for each in places], kind)
    updated = times.take(pa.array([places[each.updated] for each in changes], pa.int32()))
    return [
        pa.array([each.feed for each in changes], pa.string()),
        pa.array([each.topic for each in changes], pa.string()),
        pa.array([each.key for each in changes], pa.string()),
        updated,
        pa.array([each.after for each in changes], pa.string()),
    ]
