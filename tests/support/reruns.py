"""A test of other processes, signals or networks that fails is run once more, and is told of.

What needed that is in a table at the very end of the run, with how it failed first: each is a
defect, of the test or of the product. More than `MOST` of them fail the run. `--reruns` says
otherwise for all tests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pytest

FOLDERS = frozenset({"clients", "e2e", "chaos"})
"""Of `tests`. What runs in the test's own process has no excuse."""

MOST = 3

REASON_LINES = 3
REASON_CHARACTERS = 300


def pytest_collection_modifyitems(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    if config.getoption("reruns") is not None:
        return
    for item in items:
        place = item.path.relative_to(config.rootpath).parts
        if place[0] == "tests" and place[1] in FOLDERS:
            item.add_marker(pytest.mark.flaky(reruns=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Gives a test that is run once more new fixtures of its module, which its first run used."""
    if getattr(item, "execution_count", 1) == 1 or not isinstance(item, pytest.Function):
        return
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            if definition.scope == "module":
                definition.finish(item._request)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if len(_failures(session.config)) > MOST and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


# Around what pytest writes itself: who keeps the end of what a run printed has the table.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> Generator[None]:
    failures = _failures(config)
    for failure in failures.values():
        terminalreporter.section(f"first run of {failure.nodeid}", "_")
        terminalreporter.line(failure.longreprtext)
    yield
    if not failures:
        return
    terminalreporter.section("tests that were run once more")
    passed = {report.nodeid for report in terminalreporter.getreports("passed")}
    for name, failure in failures.items():
        outcome = "passed then" if name in passed else "failed again"
        terminalreporter.line(f"{outcome:<13} {name} ({failure.when})")
        for line in _reason(failure):
            terminalreporter.line(f"{'':<13} {line}")
    if len(failures) > MOST:
        terminalreporter.line(f"These are {len(failures)}; the run fails when more than {MOST} are")


def _reason(failure: pytest.TestReport) -> list[str]:
    """How it failed, in few short lines."""
    crash = getattr(failure.longrepr, "reprcrash", None)
    text = crash.message if crash else failure.longreprtext
    return [line[:REASON_CHARACTERS] for line in text.splitlines()[:REASON_LINES]]


def _failures(config: pytest.Config) -> dict[str, pytest.TestReport]:
    """The failures after which tests were run again, by their names; none in a worker."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return {}
    return {report.nodeid: report for report in reporter.stats.get("rerun", ())}
