"""Which moves a wait has links to: random moves and waits, against the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.external.moving import KEPT, KNOWN_AT_MOST, LINKS_AT_MOST, RecentMoves
from slackwater.repr.spans import Moves

IDS = ("u1", "u2", "s3")
ids = st.sampled_from(IDS)
times = st.integers(0, 9)
ranges = st.tuples(times, st.integers(1, 5)).map(lambda each: (each[0], each[0] + each[1]))
moves = st.one_of(
    st.builds(Moves, ids), st.builds(lambda i, bounds: Moves(i, *bounds), ids, ranges)
)
lasting = st.none() | st.integers(0, 6)


@histories()
@given(
    st.lists(st.tuples(moves, lasting), max_size=30),
    st.sets(ids),
    st.none() | times,
    st.integers(0, 30),
)
def test_a_wait_has_what_moved_its_uppers_and_nothing_else(taken, wanted, time, began):
    recent, expected = RecentMoves(), []
    for now, (move, lasts) in enumerate(taken):
        moving = recent.begin(move, now, now)
        moving.ended = None if lasts is None else now + lasts
        overlaps = moving.ended is None or moving.ended >= began
        starts_in_time = None in (time, move.lower) or move.lower <= time
        covers = None not in (time, move.upper) and move.lower <= time < move.upper
        if move.global_id in wanted and starts_in_time and (covers or overlaps):
            expected.append(now)
    assert list(recent.that_served(wanted, time, began)) == expected


def test_little_is_kept():
    recent = RecentMoves()
    for number in range(2 * KEPT):
        recent.begin(Moves("u1"), number, number)
    assert recent.that_served(["u1"], None, 0) == tuple(range(KEPT, 2 * KEPT))
    many = [f"u{number}" for number in range(KNOWN_AT_MOST + 1)]
    for now, global_id in enumerate(many, 100):
        recent.begin(Moves(global_id), global_id, now)
    assert recent.that_served(many[:1], None, 0) == ()
    assert recent.that_served(many, None, 0) == tuple(many[-LINKS_AT_MOST:])
