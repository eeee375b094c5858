"""The maintained views of the simulation: their queries, and what these mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support.adapter.coordination import Place

from slackwater.repr.frontier import Timestamp

Contents = Counter[tuple]


@dataclass(frozen=True, slots=True)
class View:
    """A query and what its answer is, by the contents of what it names."""

    query: str
    names: tuple[str, ...]
    answer: Callable[..., Contents]


def _even(table: Contents) -> Contents:
    return Counter({row: count for row, count in table.items() if row[0] % 2 == 0})


def _sizes(even: Contents) -> Contents:
    found: Counter[str] = Counter()
    for (_, value), count in even.items():
        found[value] += count
    return Counter(found.items())


VIEWS = {
    "even": View("SELECT k, v FROM t1 WHERE k % 2 = 0", ("t1",), _even),
    "sizes": View("SELECT v, count(*) AS n FROM even GROUP BY v", ("even",), _sizes),
    "both": View(
        "SELECT k, v FROM t1 UNION ALL SELECT k, v FROM t2",
        ("t1", "t2"),
        lambda one, other: one + other,
    ),
}

CHOSEN = "chosen"
"""A view whose query is replaced by one of those of `choice`."""


def choice(number: int) -> View:
    """The query of this number of `CHOSEN`."""
    return _CHOICES[number % len(_CHOICES)]


def _of_some(rest: int) -> View:
    def answer(table: Contents) -> Contents:
        return Counter({row: count for row, count in table.items() if row[0] % 3 != rest})

    return View(f"SELECT k, v FROM t1 WHERE k % 3 <> {rest}", ("t1",), answer)


_CHOICES = (*(_of_some(rest) for rest in range(3)), View("SELECT k, v FROM t1", ("t1",), Counter))

REFRESHED = "lately"
"""A view that is `even` as it was at the last refresh."""
REFRESH = "REFRESH AT CREATION, REFRESH EVERY '700 ms'"


def contents(place: Place, name: str, at: int) -> Contents:
    """The rows of a stored collection at a time."""
    shard = place.item(name).shard_id
    rows = place.env.persist.reads.snapshot(shard, Timestamp(at)).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def refreshed_at(place: Place, at: int) -> int | None:
    """The last refresh of the view `REFRESHED` that is not after `at`; None: it has begun later."""
    item = place.item(REFRESHED)
    last = item.refresh.before(Timestamp(at + 1))
    return None if last is None or last < item.details.as_of else last


def wrong(found: Mapping[str, Contents]) -> list[str]:
    """The views that are not what their queries answer over the same contents."""
    return [
        name
        for name, view in VIEWS.items()
        if name in found
        and found.keys() >= set(view.names)
        and found[name] != view.answer(*(found[each] for each in view.names))
    ]
