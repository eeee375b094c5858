"""Random cases, each out of a seed, and smaller ones that may fail as well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.fuzz.cases import LAST, Case, LowMemory, Run, Update, View, is_possible
from tests.fuzz.grammar import SHIFTED, Grammar
from tests.fuzz.kinds import KINDS
from tests.fuzz.names import chosen
from tests.fuzz.query import Query, smaller

from slackwater.compute.limits import Limits

SEEDS_WITH_ONE_SCHEMA = 8
"""Declaring tables takes longer than a small case."""

USUAL = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
SETTINGS = (
    USUAL,
    USUAL,
    {**USUAL, "spark.sql.ansi.enabled": "false"},
    {**USUAL, "spark.sql.session.timeZone": SHIFTED},
)


@dataclass(frozen=True, slots=True)
class DraftView:
    name: str
    query: Query
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A case whose views are trees."""

    tables: Mapping[str, Mapping[str, str]]
    histories: Mapping[str, Sequence[Update]]
    views: tuple[DraftView, ...]
    as_of: int
    runs: tuple[Run, ...]

    def case(self) -> Case:
        views = {
            each.name: View(each.query.in_spark(), each.query.in_duck(), dict(each.settings))
            for each in self.views
        }
        return Case(dict(self.tables), dict(self.histories), views, self.as_of, list(self.runs))


def draft(seed: int) -> Draft:
    """The case of a seed."""
    tables = _tables(Random(f"schema {seed // SEEDS_WITH_ONE_SCHEMA}"))
    random = Random(seed)
    relations = [Query(name, columns) for name, columns in tables.items()]
    views: list[DraftView] = []
    for number in range(random.randint(3, 5)):
        settings = random.choice(SETTINGS)
        query = Grammar(random, relations, settings).query(random.choice([0, 1, 1, 2]))
        views.append(DraftView(f"v{number}", query, settings))
        if "same" not in query.columns.values():
            relations.append(Query(f"v{number}", query.columns))
    return Draft(
        tables,
        _histories(random, tables),
        tuple(views),
        random.choice([0, 0, 0, 4]),
        (
            Run(_boundaries(random), workers=random.choice([1, 1, 2])),
            random.choice([_hard_run, _hard_run, _short_run])(random),
        ),
    )


def _tables(random: Random) -> dict[str, dict[str, str]]:
    tables = {}
    for name in ("t0", "t1"):
        known = [name for name, kind in KINDS.items() if kind.values]
        # There is always a column to join by.
        kinds = ["integer", *random.choices(known, k=random.randint(2, 4))]
        tables[name] = dict(zip(chosen(random, len(kinds)), kinds, strict=True))
    return tables


def _boundaries(random: Random) -> tuple[int, ...]:
    inner = random.sample(range(1, LAST + 1), random.randint(0, 3))
    return (*sorted(inner), LAST + 1)


def _hard_run(random: Random) -> Run:
    """By executors, in files, by workers that race and die."""
    limits = Limits(
        few_rows=random.choice([0, 50_000, 50_000]),
        inline_rows=random.choice([0, 10_000]),
        incremental_below_rows=random.choice([1, 3, 100_000]),
        ordered_rows=random.choice([1, 1000]),
    )
    return Run(_boundaries(random), limits, random.choice([1, 2]), _kills(random))


def _short_run(random: Random) -> Run:
    """With so little memory that what some views look up does not fit, for some time or always."""
    low_memory = LowMemory(random.choice([0, 2, 4, 8, 16]), random.randint(3, LAST + 2))
    inner = random.sample(range(1, LAST + 1), random.randint(3, 6))
    kills = random.choice([(), (), _kills(random)])
    return Run((*sorted(inner), LAST + 1), Limits(), random.choice([1, 1, 2]), kills, low_memory)


def _kills(random: Random) -> tuple[int, ...]:
    return tuple(sorted(random.sample(range(1, 24), random.randint(0, 3))))


# Histories


def _histories(
    random: Random, tables: Mapping[str, Mapping[str, str]]
) -> dict[str, tuple[Update, ...]]:
    times = sorted(random.sample(range(1, LAST + 1), random.randint(2, 7)))
    return {name: _history(random, list(kinds.values()), times) for name, kinds in tables.items()}


def _history(random: Random, kinds: Sequence[str], times: Sequence[int]) -> tuple[Update, ...]:
    """At most of the times both tables change."""
    pool = [_row(random, kinds) for _ in range(random.randint(2, 6))]
    present: Counter[str] = Counter()
    rows: dict[str, tuple] = {}
    found: list[Update] = []

    def add(row: tuple, time: int, diff: int) -> None:
        rows[repr(row)] = row
        present[repr(row)] += diff
        found.append((row, time, diff))

    for time in times:
        here = sorted(text for text, count in present.items() if count)
        change = random.choice(["come", "come", "go", "update", "again", "nothing", "all go"])
        if change == "come" or not here:
            for _ in range(random.randint(1, 3)):
                add(random.choice([*pool, _row(random, kinds)]), time, random.choice([1, 1, 1, 2]))
            continue
        row = rows[random.choice(here)]
        match change:
            case "go":
                add(row, time, -1)
            case "update":
                add(row, time, -1)
                add(random.choice(pool), time, 1)
            case "again":
                add(row, time, -1)
                add(row, min(LAST, time + random.randint(0, 1)), 1)
            case "all go":
                for text in here:
                    add(rows[text], time, -present[text])
    return tuple(sorted(found, key=lambda update: update[1]))


def _row(random: Random, kinds: Sequence[str]) -> tuple:
    return tuple(
        None if random.random() < 0.2 else random.choice(KINDS[kind].values) for kind in kinds
    )


# Smaller ones


def shrunk(found: Draft, fails: Callable[[Draft], bool]) -> Draft:
    """A draft that fails, such that none fails of those that are a step smaller.

    `fails` may say False for all, once there is no more time.
    """
    while True:
        better = next((each for each in _smaller_drafts(found) if fails(each)), None)
        if better is None:
            return found
        found = better


def _smaller_drafts(found: Draft) -> Iterator[Draft]:
    for i, view in enumerate(found.views):
        others = found.views[:i] + found.views[i + 1 :]
        if not any(_reads(other.query, view.name) for other in others):
            yield replace(found, views=others)
    yield from _with_simpler_runs(found)
    for i, view in enumerate(found.views):
        for query in smaller(view.query):
            less = replace(view, query=query)
            yield replace(found, views=(*found.views[:i], less, *found.views[i + 1 :]))
    for name, updates in found.histories.items():
        for fewer in _fewer(updates):
            yield replace(found, histories={**found.histories, name: fewer})


def _reads(query: Query, name: str) -> bool:
    return query.text == name or any(_reads(source, name) for source in query.sources)


def _with_simpler_runs(found: Draft) -> Iterator[Draft]:
    for i, run in enumerate(found.runs):
        if len(found.runs) > 1:
            yield replace(found, runs=found.runs[:i] + found.runs[i + 1 :])
        for simpler in (
            Run(),
            Run(run.boundaries),
            replace(run, kills=()),
            replace(run, workers=1),
            replace(run, limits=Limits()),
            replace(run, low_memory=None),
            *(
                replace(run, boundaries=run.boundaries[:k] + run.boundaries[k + 1 :])
                for k in range(len(run.boundaries) - 1)
            ),
        ):
            if simpler != run:
                yield replace(found, runs=(*found.runs[:i], simpler, *found.runs[i + 1 :]))
    if found.as_of:
        yield replace(found, as_of=0)


def _fewer(updates: Sequence[Update]) -> Iterator[tuple[Update, ...]]:
    size = len(updates)
    while size:
        for begin in range(0, len(updates), size):
            fewer = (*updates[:begin], *updates[begin + size :])
            if is_possible(fewer):
                yield fewer
        size //= 2
