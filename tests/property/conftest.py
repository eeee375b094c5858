"""Runs each property as often as its plan says, and counts the histories that were tried."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest
from hypothesis.statistics import collector
from tests.property.histories import PLANS, SHARES, TRIED, asked_for, total

STARTED = pytest.StashKey[float]()


@pytest.fixture
def run_of_a_property(request):
    """Which of several runs of one property this is."""
    return request.param


def pytest_generate_tests(metafunc):
    plan = PLANS.get(metafunc.function.__name__)
    if plan is not None and plan.runs > 1:
        metafunc.fixturenames.append("run_of_a_property")
        metafunc.parametrize("run_of_a_property", range(plan.runs), indirect=True)


def pytest_configure(config):
    config.stash[STARTED] = time.monotonic()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    tried = 0
    outer = collector.value

    def count(statistics):
        nonlocal tried
        for phase in ("reuse-phase", "generate-phase"):
            cases = statistics.get(phase, {}).get("test-cases", ())
            tried += sum(case["status"] == "valid" for case in cases)
        if outer is not None:
            outer(statistics)

    try:
        with collector.with_value(count):
            return (yield)
    finally:
        if tried:
            item.user_properties.append((TRIED, tried))


def pytest_terminal_summary(terminalreporter, config):
    tried, seconds = defaultdict(int), defaultdict(float)
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        name = report.location[2].split("[")[0]
        if report.when == "call" and (count := dict(report.user_properties).get(TRIED)):
            tried[name] += count
            seconds[name] += report.duration
    if asked_for() is None or not tried:
        return
    terminalreporter.section("histories of each property")
    for name in sorted(tried, key=seconds.__getitem__, reverse=True):
        terminalreporter.write_line(f"{tried[name]:8} {seconds[name]:9.1f} s  {name}")
    took = time.monotonic() - config.stash[STARTED]
    asked = total(SHARES, PLANS)
    terminalreporter.write_line(
        f"{sum(tried.values())} histories tried of {asked} asked for, in {took:.0f} s"
    )
