"""Binding: the changes that one time takes, and the updates of tables that they make.

A binding moves the frontier of the source from `lower` to `upper`. All changes between these, of
all tables, get the one time of the binding: a transaction of the upstream has one time of its own,
so it is there as a whole or not at all. Of the changes for a key only the newest that its table can
take counts, so a change that was sent again adds nothing, in whatever order it came.

Source: spec checkpoint 5.4, 5.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slackwater.repr.errors import FatalError
from slackwater.storage.changefeed.messages import ChangeRecord
from slackwater.storage.changefeed.tables import Drift, FeedRow

Slot = tuple[str, str]
"""A topic and a key in it."""
Decode = Callable[[ChangeRecord], FeedRow | None]
"""The row that a change leaves, None where it deletes it. Raises `Drift`."""


class LateChange(Exception):
    """A change came below what is bound, and it is not one that was bound."""

    def __init__(self, change: ChangeRecord) -> None:
        super().__init__(f"{change.topic} at {change.updated}")
        self.change = change


@dataclass(frozen=True, slots=True)
class BindingWindow:
    """The changes that a binding takes: those before `upper` of the feeds that are in.

    All of an `admitted` feed before `lower` is bound, so what still comes there is late. A feed
    that is `joining` is complete up to `lower` only now: all of it before `upper` is taken.
    """

    lower: int
    upper: int
    admitted: frozenset[str]
    joining: frozenset[str] = frozenset()

    def takes(self, change: ChangeRecord) -> bool:
        """Whether the change leaves the landing with this binding."""
        is_in = change.feed in self.admitted or change.feed in self.joining
        return is_in and change.updated < self.upper

    def is_late(self, change: ChangeRecord) -> bool:
        """Whether a change that is taken should have come before."""
        return change.feed in self.admitted and change.updated < self.lower


@dataclass(frozen=True, slots=True)
class BindingRules:
    """The rules by which a source takes changes.

    `decode` makes rows of them. With `is_strict` a late change that is newer than what its key has
    ends the binding, unless it `is_dead` already.
    """

    decode: Decode
    is_strict: bool = False
    is_dead: Callable[[ChangeRecord], bool] = lambda _: False


@dataclass(frozen=True, slots=True)
class BoundChanges:
    """The changes that a binding makes.

    `changes` are rows with diffs by topic. `images` are what the keys have now, and `replaced` what
    they had; `taken` are all changes that leave the landing, `left` those that stay. `dead` are
    those that no table takes. `rows` counts what is bound by feed, `late` what came too late, and
    `repeated` what a newer change, or the same one, made superfluous.
    """

    changes: Mapping[str, Sequence[tuple[FeedRow, int]]]
    images: Mapping[Slot, ChangeRecord]
    replaced: Sequence[ChangeRecord]
    taken: Sequence[ChangeRecord]
    left: Sequence[ChangeRecord]
    dead: Sequence[tuple[ChangeRecord, str]]
    rows: Mapping[str, int]
    late: Mapping[str, int]
    repeated: Mapping[str, int]

    def validate(self) -> None:
        """Raises `FatalError` when its parts contradict each other."""
        for slot, image in self.images.items():
            if slot != (image.topic, image.key):
                raise FatalError(f"the image of {slot} is of {image.topic}")
        for image in self.replaced:
            newer = self.images.get((image.topic, image.key))
            if newer is None or newer.updated <= image.updated:
                raise FatalError(f"an image of {image.topic} is replaced by none that is newer")
        diffs = {diff for found in self.changes.values() for _, diff in found}
        if not diffs <= {1, -1} or sum(self.rows.values()) != len(self.images):
            raise FatalError(
                f"{dict(self.rows)} were bound for {len(self.images)} keys, by {diffs}"
            )
        if not set(self.images.values()).isdisjoint(change for change, _ in self.dead):
            raise FatalError("a change is dead and bound")


def bind(
    images: Mapping[Slot, ChangeRecord],
    waiting: Iterable[ChangeRecord],
    window: BindingWindow,
    rules: BindingRules,
    again: Iterable[ChangeRecord] = (),
) -> BoundChanges:
    """Binds what of `waiting` is in `window`, after bindings that left `images`.

    `again` are dead letters, which are taken whatever their times, where nothing newer is. Raises
    `LateChange` as the rules say.
    """
    decode = rules.decode
    taken: list[ChangeRecord] = []
    left: list[ChangeRecord] = []
    late: Counter[str] = Counter()
    candidates: dict[Slot, list[ChangeRecord]] = {}
    for change in waiting:
        if not window.takes(change):
            left.append(change)
            continue
        taken.append(change)
        slot = (change.topic, change.key)
        if not window.is_late(change):
            candidates.setdefault(slot, []).append(change)
            continue
        late[change.feed] += 1
        image = images.get(slot)
        is_news = image is None or image.updated < change.updated
        if rules.is_strict and is_news and not rules.is_dead(change):
            raise LateChange(change)
    for change in again:
        candidates.setdefault((change.topic, change.key), []).append(change)
    chosen: dict[Slot, ChangeRecord] = {}
    dead: list[tuple[ChangeRecord, str]] = []
    rows: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    changes: dict[str, list[tuple[FeedRow, int]]] = {}
    for slot, found in candidates.items():
        newest, row, refused = _newest(images.get(slot), found, decode)
        dead += refused
        repeated.update(each.feed for each in found)
        repeated.subtract(each.feed for each, _ in refused)
        if newest is None:
            continue
        repeated[newest.feed] -= 1
        rows[newest.feed] += 1
        chosen[slot] = newest
        _replace(changes.setdefault(newest.topic, []), _row(images.get(slot), decode), row)
    return BoundChanges(
        changes={topic: found for topic, found in changes.items() if found},
        images=chosen,
        replaced=[images[slot] for slot in chosen if slot in images],
        taken=taken,
        left=left,
        dead=dead,
        rows=rows,
        late=late,
        repeated=+repeated,
    )


def _newest(
    image: ChangeRecord | None, found: Sequence[ChangeRecord], decode: Decode
) -> tuple[ChangeRecord | None, FeedRow | None, list[tuple[ChangeRecord, str]]]:
    """The newest change that its table takes, if it is newer than `image`, and its row.

    Those that are newer still are refused, with the reasons.
    """
    refused: list[tuple[ChangeRecord, str]] = []
    # Two that differ and have one time break the contract; the order of texts decides.
    for change in sorted(set(found), key=_age, reverse=True):
        if image is not None and change.updated <= image.updated:
            break
        try:
            return change, decode(change), refused
        except Drift as drift:
            refused.append((change, drift.reason))
    return None, None, refused


def _age(change: ChangeRecord) -> tuple[int, str, str]:
    return change.updated, change.after or "", change.feed


def _row(image: ChangeRecord | None, decode: Decode) -> FeedRow | None:
    return None if image is None else decode(image)


def _replace(
    changes: list[tuple[FeedRow, int]], before: FeedRow | None, after: FeedRow | None
) -> None:
    if before == after:
        return
    if before is not None:
        changes.append((before, -1))
    if after is not None:
        changes.append((after, 1))
