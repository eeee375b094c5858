"""Whether the state of a shard holds together. No I/O.

Since and upper are in no order: a since may be ahead of its upper, and then nothing can be read
yet. The intervals of parts need not touch each other, as an append without rows has no part, and
may overlap, as a merge takes parts from anywhere before the since. But no part reaches past the
upper, at which the next append begins; and of all that is present just before the upper, no file is
counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from slackwater.persist.cache import ShardCache
from slackwater.persist.inspection import ShardRecord
from slackwater.persist.part_index import PartIndex
from slackwater.persist.parts import FileBody, Part, Uniform
from slackwater.persist.rows import ShardState
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MAX, TIMESTAMP_MIN, Timestamp

SHOWN = 3
"""So many of several are shown."""


def shard_problems(shard: ShardRecord) -> tuple[str, ...]:
    """All that is wrong with the state of the shard and its parts; nothing for a sound one."""
    if shard.state is None:
        count = len(shard.parts) + len(shard.bodiless)
        if shard.undecodable is not None:
            return (f"its columns do not decode: {shard.undecodable}",)
        return (f"{count} parts are on record, and no such shard",) if count else ()
    return tuple(_problems(shard, shard.state))


def present_parts(shard: ShardRecord) -> tuple[Part, ...]:
    """The parts that are needed for the contents at the last complete time."""
    if shard.state is None or shard.state.upper == TIMESTAMP_MIN:
        return ()
    return PartIndex.of(shard.parts).at(_last_complete(shard.state))


def listed(what: Iterable[object]) -> str:
    """The first of several, as text."""
    found = [str(each) for each in what]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _problems(shard: ShardRecord, state: ShardState) -> Iterator[str]:
    for name, time in (("since", state.since), ("upper", state.upper)):
        if not TIMESTAMP_MIN <= time <= TIMESTAMP_MAX:
            yield f"its {name} {time} is no time"
    if shard.bodiless:
        yield f"parts have neither rows nor a file: {listed(shard.bodiless)}"
    rules: tuple[tuple[str, Callable[[Part], bool]], ...] = (
        ("have bounds or times in the wrong order", _is_reversed),
        ("have times that are not within their bounds", lambda part: _is_outside(part, state)),
        (
            f"overlap with the next append, which begins at the upper {state.upper}",
            lambda part: part.upper > state.upper,
        ),
        ("have no rows", lambda part: part.rows < 1),
        ("have another time than their rows", _is_wrongly_uniform),
    )
    for what, is_broken in rules:
        broken = [part.part_id for part in shard.parts if is_broken(part)]
        if broken:
            yield f"parts {what}: {listed(broken)}"
    try:
        _cache(shard, state).validate()
    except FatalError as error:
        yield str(error)
    bodies = [part.body for part in present_parts(shard)]
    counted = Counter(body.uri for body in bodies if isinstance(body, FileBody))
    if twice := [uri for uri, times in counted.items() if times > 1]:
        yield f"files are counted twice: {listed(twice)}"


def _last_complete(state: ShardState) -> Timestamp:
    return TIMESTAMP_MAX if state.upper == TIMESTAMP_MAX else Timestamp(state.upper - 1)


def _is_reversed(part: Part) -> bool:
    return not (
        TIMESTAMP_MIN <= part.lower <= part.upper <= TIMESTAMP_MAX
        and part.min_time <= part.max_time
    )


def _is_outside(part: Part, state: ShardState) -> bool:
    """A merge moves times to the since, which may be past the bounds of what it merges."""
    return part.min_time < part.lower or not (
        part.max_time < part.upper or part.max_time <= state.since
    )


def _is_wrongly_uniform(part: Part) -> bool:
    match part.body:
        case FileBody(uniform=Uniform(time, _)):
            return not part.min_time == time == part.max_time
        case _:
            return False


def _cache(shard: ShardRecord, state: ShardState) -> ShardCache:
    """The shard as a leader would have it in memory, whose rules hold for it too."""
    shard_id = shard.shard_id
    has_parts = bool(shard.parts or shard.bodiless)
    is_unfinalized = shard.is_dropped and (state.since < TIMESTAMP_MAX or has_parts)
    return ShardCache(
        tables_upper=state.upper,
        next_shard_id=shard.next_shard_id,
        next_part_id=shard.next_part_id,
        states={shard_id: replace(state, shares_tables_upper=False)},
        dropped={shard_id} if shard.is_dropped else set(),
        unfinalized={shard_id} if is_unfinalized else set(),
        indexes={shard_id: PartIndex.of(shard.parts)},
    )
