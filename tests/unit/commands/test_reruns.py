"""Which failures of tests are forgiven once, and how they are told: tests/support/reruns.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.support.applications.application import ROOT
from tests.support.waiting import PATIENCE

FAILS_ONCE = """
import pathlib

def test_it(tmp_path_factory):
    seen = pathlib.Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError("lost a race")
"""
USES_ITS_MODULE = """
import pytest

@pytest.fixture(scope="session")
def application():
    return []

@pytest.fixture(scope="module")
def place(application):
    application.append("begins")
    yield []
    application.append("ends")

def test_it(place, application):
    place.append(1)
    assert place == [1]
    assert application == ["begins"] or application == ["begins", "ends", "begins"]
    assert len(application) > 1, "lost a race"

def test_next(place):
    assert place == [1]
"""
FAILS = "def test_it():\n    raise AssertionError('is wrong')\n"
OTHERS = ("unit/clients", "engine", "property", "slt")
PASSES = "def test_it():\n    pass\n"


PLUGINS = ("xdist.plugin", "pytest_rerunfailures", "tests.support.reruns")


@pytest.fixture
def run(tmp_path):
    """Runs files of tests, by their paths; the exit status and what was told."""

    def ran(files, *options):
        for name, text in files.items():
            path = tmp_path / "tests" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
        plugins = [word for each in PLUGINS for word in ("-p", each)]
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", *plugins, *options, "tests"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                # Those that the tests of the product need take seconds to load.
                "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
                # Those are of the run that this test belongs to.
                "PYTEST_ADDOPTS": "",
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return ended.returncode, ended.stdout + ended.stderr

    return ran


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "in workers"])
def test_what_fails_once_passes_and_is_told(run, options):
    folders = ("clients", "e2e", "chaos")
    fail = {f"{folder}/test_{folder}.py": FAILS_ONCE for folder in folders}
    status, told = run({**fail, "e2e/test_other.py": PASSES}, *options)
    assert status == 0, told
    table = told.partition("tests that were run once more")[2]
    for folder in folders:
        assert f"passed then   tests/{folder}/test_{folder}.py::test_it (call)" in table
    assert table.count("AssertionError: lost a race") == len(folders)
    assert "test_other.py" not in table


def test_what_is_run_once_more_has_new_fixtures_of_its_module(run):
    status, told = run({"e2e/test_it.py": USES_ITS_MODULE})
    assert status == 0, told
    assert "passed then   tests/e2e/test_it.py::test_it (call)" in told


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "in workers"])
def test_more_than_three_fail_the_run(run, options):
    status, told = run({f"clients/test_{n}.py": FAILS_ONCE for n in range(4)}, *options)
    assert status == 1, told
    assert told.count("passed then") == 4
    assert "These are 4; the run fails when more than 3 are" in told


def test_what_fails_again_and_other_tests_fail(run):
    others = {f"{folder}/test_{n}.py": FAILS_ONCE for n, folder in enumerate(OTHERS)}
    status, told = run({"e2e/test_it.py": FAILS, **others})
    assert status == 1, told
    assert f"{len(others) + 1} failed" in told
    table = told.partition("tests that were run once more")[2]
    assert "failed again  tests/e2e/test_it.py::test_it (call)" in table
    assert table.count("(call)") == 1
    assert "short test summary info" not in table


def test_who_says_how_often_is_heard(run):
    status, told = run({"e2e/test_it.py": FAILS_ONCE}, "--reruns", "0")
    assert status == 1, told
    assert "1 failed" in told
