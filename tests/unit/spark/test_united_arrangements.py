"""When a driver is asked whether arrangements of a replica have the same rows."""

from __future__ import annotations

from slackwater.spark.driver import Driver


def test_a_replica_that_has_loaded_a_program_is_asked_until_none_are_apart():
    driver = Driver(jvm=object())
    assert driver.is_united("r1")
    driver.loaded("r1")
    driver.loaded("r2")
    driver.united("r2", driver.programs_loaded("r2"))
    assert driver.is_united("r2")
    assert not driver.is_united("r1")
    asked = driver.programs_loaded("r1")
    driver.loaded("r1")
    driver.united("r1", asked)
    assert not driver.is_united("r1"), "the second one was not looked at"
    driver.united("r1", driver.programs_loaded("r1"))
    assert driver.is_united("r1")
    driver.loaded("r1")
    driver.forget_replica("r1")
    assert driver.is_united("r1")
