"""What a driver keeps of a coordinator that was replaced, and where jobs of ticks run."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from slackwater.spark.bridge import SparkBridge
from slackwater.spark.driver import Driver

pytestmark = pytest.mark.spark

QUERY = "SELECT 1 AS one"


def coordinator(declared, environment):
    return SparkBridge(Driver(environment, declared.session._jvm)).under({})


def plan(engine):
    return engine.plan(QUERY, "slackwater", ("default",))


def knows(engine, kept):
    try:
        engine._bridge().planned(kept.plan_id)
    except Py4JJavaError as error:
        return "there is no" not in str(error.java_exception)
    return True


def test_plans_of_a_replaced_coordinator_are_forgotten(declared):
    before, elsewhere = coordinator(declared, "here"), coordinator(declared, "elsewhere")
    replaced, others = plan(before), plan(elsewhere)
    after = coordinator(declared, "here")
    assert knows(after, replaced)
    first, second = plan(after), plan(after)
    assert not knows(after, replaced)
    assert knows(after, first)
    assert knows(after, second)
    assert knows(after, others)
