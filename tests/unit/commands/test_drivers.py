"""Which processes of applications tests use again."""

from __future__ import annotations

from tests.support.applications.drivers import Drivers


class Process:
    def __init__(self):
        self.ended = False
        self.served = set()

    def end(self):
        self.ended = True


def test_a_process_serves_each_environment_once():
    drivers, process = Drivers(2), Process()
    assert drivers.take("a") is None
    drivers.give(process, "a")
    assert drivers.take("a") is None
    assert drivers.take("b") is process
    assert drivers.take("c") is None
    drivers.give(process, "b")
    assert drivers.take("a") is None
    assert drivers.take("b") is None
    assert drivers.take("c") is process


def test_what_one_process_has_served_another_one_may_serve():
    drivers, first, second = Drivers(2), Process(), Process()
    drivers.give(first, "a")
    drivers.give(second, "b")
    assert drivers.take("a") is second
    assert drivers.take("b") is first


def test_those_above_the_limit_end():
    drivers, processes = Drivers(2), [Process() for _ in range(3)]
    for process in processes:
        drivers.give(process, "a")
    assert [process.ended for process in processes] == [True, False, False]
    drivers.close()
    assert all(process.ended for process in processes)
    late = Process()
    drivers.give(late, "a")
    assert late.ended
    assert drivers.take("b") is None
