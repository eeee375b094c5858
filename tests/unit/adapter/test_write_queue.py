"""Write locks: who waits for whom."""

import gc
import time

import pytest

from slackwater.adapter.writing.write_queue import WriteQueue
from slackwater.repr.errors import FatalError

FAR = 10**9


def ids(*numbers):
    return frozenset(numbers)


@pytest.fixture
def queue():
    made = WriteQueue()
    yield made
    made.validate()


def test_a_lock_keeps_others_out_and_lets_its_owner_write(queue):
    lock = queue.offer_lock(ids(1, 2), "a", FAR)
    assert queue.grant_locks() == (lock,)
    other, elsewhere = queue.offer_write(ids(2), None, FAR), queue.offer_write(ids(3), None, FAR)
    own = queue.offer_write(ids(1), "a", FAR)
    assert queue.take_writes() == (elsewhere, own)
    queue.finish_writes()
    queue.release("a")
    assert queue.take_writes() == (other,)


def test_a_lock_waits_for_writes_in_flight_and_ahead_of_it(queue):
    first = queue.offer_write(ids(1), None, FAR)
    assert queue.take_writes() == (first,)
    lock = queue.offer_lock(ids(1), "a", FAR)
    assert queue.grant_locks() == ()
    queue.finish_writes()
    assert queue.grant_locks() == (lock,)
    queue.release("a")
    ahead = queue.offer_write(ids(1), None, FAR)
    lock = queue.offer_lock(ids(1), "a", FAR)
    assert queue.grant_locks() == ()
    assert queue.take_writes() == (ahead,)
    queue.finish_writes()
    assert queue.grant_locks() == (lock,)


def test_a_waiting_lock_is_not_overtaken(queue):
    queue.offer_lock(ids(1), "a", FAR)
    queue.grant_locks()
    second = queue.offer_lock(ids(1, 2), "b", FAR)
    behind = queue.offer_write(ids(2), None, FAR)
    third = queue.offer_lock(ids(2), "c", FAR)
    assert queue.grant_locks() == ()
    assert queue.take_writes() == ()
    queue.release("a")
    assert queue.grant_locks() == (second,)
    queue.release("b")
    assert queue.take_writes() == (behind,)
    queue.finish_writes()
    assert queue.grant_locks() == (third,)


def test_only_what_a_lock_keeps_waiting_expires(queue):
    queue.offer_lock(ids(1), "a", FAR)
    queue.grant_locks()
    blocked, free = queue.offer_write(ids(1), None, 5), queue.offer_write(ids(2), None, 5)
    lock = queue.offer_lock(ids(1), "b", 9)
    assert queue.expire(4) == ()
    assert queue.expire(5) == (blocked,)
    assert queue.expire(9) == (lock,)
    assert queue.take_writes() == (free,)


def test_what_could_deadlock_is_a_defect(queue):
    queue.offer_lock(ids(1), "a", FAR)
    with pytest.raises(FatalError):
        queue.offer_lock(ids(2), "a", FAR)
    queue.grant_locks()
    with pytest.raises(FatalError):
        queue.offer_write(ids(1, 2), "a", FAR)


def test_a_wait_can_be_given_up(queue):
    queue.offer_lock(ids(1), "a", FAR)
    queue.grant_locks()
    queue.offer_lock(ids(1), "b", FAR)
    behind = queue.offer_write(ids(1), None, FAR)
    queue.release("b")
    queue.release("nobody")
    queue.release("a")
    assert queue.withdraw(behind)
    assert not queue.withdraw(behind)
    assert queue.take_writes() == ()


def test_nothing_is_quadratic_in_the_number_of_waiting_writes():
    """What the committing thread does for each that comes, while a lock keeps them all waiting.

    In time of the processor, the best of three, without the collector of garbage: its pauses grow
    with what the tests before this one have left.
    """

    def seconds(count):
        queue = WriteQueue()
        queue.offer_lock(ids(1), "a", FAR)
        queue.grant_locks()
        queue.offer_lock(ids(1), "b", FAR)
        began = time.process_time()
        for now in range(count):
            queue.offer_write(ids(1), None, FAR)
            queue.expire(now)
            queue.grant_locks()
            assert queue.ready_writes() == ()
            assert queue.next_deadline_ms() == FAR
        queue.release("a")
        queue.release("b")
        assert len(queue.take_writes()) == count
        return time.process_time() - began

    gc.disable()
    try:
        few = max(min(seconds(500) for _ in range(3)), 0.005)
        many = min(seconds(4_000) for _ in range(3))
    finally:
        gc.enable()
    assert many < 8 * 4 * few


DAMAGES = {
    "line of a shard": lambda queue: queue._line.setdefault(9, {}).update({77: None}),
    "was counted": lambda queue: queue._wanted.update({1: 5}),
    "one that has no lock": lambda queue: queue._holder.update({8: "nobody"}),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_what_contradicts_itself_is_found(told):
    queue = WriteQueue()
    queue.offer_lock(ids(1), "a", FAR)
    queue.grant_locks()
    queue.offer_lock(ids(1, 2), "b", FAR)
    queue.offer_write(ids(3), None, FAR)
    queue.validate()
    DAMAGES[told](queue)
    with pytest.raises(FatalError, match=told):
        queue.validate()
