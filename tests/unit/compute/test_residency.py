"""When a program that found no memory asks for it again."""

from __future__ import annotations

from slackwater.compute.maintained_program import LONGEST_PAUSE_TICKS, Residency
from slackwater.repr.errors import SlackwaterError

ERROR = SlackwaterError("SLACKWATER_INDEX_MEMORY", "53200", "no room", {})


def ticks_until_asked(residency):
    """How many ticks go by until a program that keeps nothing is opened anew."""
    count = 1
    while not residency.begin_tick():
        count += 1
        assert residency.is_paused or count <= LONGEST_PAUSE_TICKS + 1
    return count


def test_each_refusal_doubles_the_pause_up_to_a_limit():
    residency, pauses = Residency(), []
    for _ in range(8):
        residency.refused(ERROR)
        residency.is_resident = False
        assert residency.is_paused
        pauses.append(ticks_until_asked(residency))
        assert not residency.is_paused
    assert pauses == [min(2**n, LONGEST_PAUSE_TICKS) + 1 for n in range(1, 9)]
    assert residency.out_of_memory is ERROR


def test_a_grant_ends_it():
    residency = Residency()
    residency.refused(ERROR)
    residency.granted()
    residency.is_resident = True
    assert residency.out_of_memory is None
    residency.refused(ERROR)
    residency.is_resident = False
    assert ticks_until_asked(residency) == 3


def test_a_resident_program_stays_open():
    assert not Residency().begin_tick()
