"""A test of other processes, signals or networks that fails is run once more, and is told of.

What needed that is in a table at the end of the run, with how it failed: each is a defect, of the
test or of the product. More than `MOST` of them fail the run.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

FOLDERS = frozenset({"clients", "e2e", "chaos"})
"""Of `tests`. What runs in the test's own process has no excuse."""

MOST = 3


def pytest_collection_modifyitems(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(config.rootpath).parts
        if place[0] == "tests" and place[1] in FOLDERS:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if len(_failures(session.config)) > MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    failures = _failures(config)
    if not failures:
        return
    terminalreporter.section("tests that were run once more")
    for failure in failures.values():
        terminalreporter.section(failure.nodeid, "_")
        terminalreporter.line(failure.longreprtext)
    terminalreporter.line("")
    passed = {report.nodeid for report in terminalreporter.getreports("passed")}
    for name, failure in failures.items():
        outcome = "passed then" if name in passed else "failed again"
        terminalreporter.line(f"{outcome:<13} {name} ({failure.when})")
    if len(failures) > MOST:
        terminalreporter.line(f"These are {len(failures)}; the run fails when more than {MOST} are")


def _failures(config: pytest.Config) -> dict[str, pytest.TestReport]:
    """The failures after which tests were run again, by their names; none in a worker."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return {}
    return {report.nodeid: report for report in reporter.stats.get("rerun", ())}
