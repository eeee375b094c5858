"""Offers of a replica: each call ends when the leader has said how far the output is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.compute.flows import flow
from tests.support.waiting import PATIENCE, wait_until

from slackwater.compute.offers import Offers
from slackwater.persist.appends import Append, UpperMismatch
from slackwater.repr.frontier import Frontier

VIEW = flow("u7", "u1")
APPENDS = (Append(1, 4, 9, ()), Append(2, 4, 9, ()))


class Leader:
    """Answers each offer with `says`; None: it does not answer."""

    def __init__(self, says=None, error=None):
        self.says, self.error, self.asked = says, error, []
        self.offers = Offers(self.hears)
        self.offers.create("u7")

    def hears(self, responses):
        self.asked += responses
        if self.says is not None:
            self.offers.output_is_at("u7", Frontier(self.says))
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("reached", [9, 12])
def test_what_was_taken_is_durable(reached):
    leader = Leader(reached)
    assert leader.offers.append([(VIEW, APPENDS)]) == [None]
    (offer,) = leader.asked
    assert (offer.id, offer.lower, offer.upper) == ("u7", Frontier(4), Frontier(9))
    assert (offer.rows, offer.errors) == (b"", b"")


@pytest.mark.parametrize("reached", [4, 6])
def test_what_was_not_taken_is_a_mismatch(reached):
    (refusal,) = Leader(reached).offers.append([(VIEW, APPENDS)])
    assert isinstance(refusal, UpperMismatch)
    assert (refusal.expected, refusal.actual) == (4, reached)


def test_several_are_offered_together_and_answered_each():
    leader = Leader()
    other = flow("u8", "u1")
    leader.offers.create("u8")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader.offers.append, [(VIEW, APPENDS), (other, APPENDS)])
        wait_until(lambda: leader.asked)
        leader.offers.output_is_at("u8", Frontier(6))
        assert not waiting.done()
        leader.offers.output_is_at("u7", Frontier(9))
        taken, refused = waiting.result(PATIENCE)
    assert [offer.id for offer in leader.asked] == ["u7", "u8"]
    assert taken is None
    assert (refused.expected, refused.actual) == (4, 6)


def test_an_error_of_the_leader_is_raised():
    with pytest.raises(OSError, match="away"):
        Leader(4, OSError("away")).offers.append([(VIEW, APPENDS)])


@pytest.mark.parametrize("end", ["drop", "close", "answer"])
def test_a_call_waits_until_it_is_answered_or_over(end):
    leader = Leader()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(leader.offers.append, [(VIEW, APPENDS)])
        wait_until(lambda: leader.asked)
        assert not waiting.done()
        match end:
            case "drop":
                leader.offers.drop("u7")
            case "close":
                leader.offers.close()
            case "answer":
                leader.offers.output_is_at("u7", Frontier(9))
        (refusal,) = waiting.result(PATIENCE)
    assert isinstance(refusal, UpperMismatch) == (end != "answer")


def test_nobody_waits_for_a_view_that_is_gone():
    leader = Leader()
    leader.offers.drop("u7")
    (refusal,) = leader.offers.append([(VIEW, APPENDS)])
    assert isinstance(refusal, UpperMismatch)
    leader.offers.output_is_at("u7", Frontier(9))
    leader.offers.advance([(VIEW, 4, 9)])
