"""Runs every ``.slt`` file of this folder, and checks that every error condition has a case."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.fixtures import Workplace
from tests.support.slt import parse, run

from slackwater.repr.errors import conditions

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.slt"))


@pytest.mark.spark
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path, shared_application, tmp_path):
    place = Workplace(shared_application, f"slt_{path.stem}", tmp_path)
    try:
        run(place, parse(path.read_text()))
    finally:
        shared_application.sql(f"DROP SCHEMA IF EXISTS slackwater.slt_{path.stem} CASCADE")


WITHOUT_CASE = {
    "SLACKWATER_CANCELED": "needs a statement that is cancelled while it runs: tests/clients",
    "SLACKWATER_CONCURRENT_CHANGE": "needs two statements at the same moment",
    "SLACKWATER_COORDINATOR_START": "needs an interpreter that does not start: tests/clients",
    "SLACKWATER_COORDINATOR_UNAVAILABLE": "needs a coordinator that is gone: tests/clients",
    "SLACKWATER_DEPENDENCY_DROPPED": "needs a DROP while a SUBSCRIBE runs: tests/e2e",
    "SLACKWATER_DUPLICATE_MANAGED_WRITE": "needs two statements at the same moment",
    "SLACKWATER_ENVIRONMENT_VERSION": "needs a newer environment: tests/unit",
    "SLACKWATER_FENCED": "needs a second application: tests/clients",
    "SLACKWATER_FOREIGN_FILE": "no statement names a file of a write: tests/unit",
    "SLACKWATER_INTERNAL": "a defect: no statement may cause it",
    "SLACKWATER_LEADER_UNREACHABLE": "needs an application on another host: tests/clients",
    "SLACKWATER_LOCATION_NOT_SHARED": "needs executors elsewhere: tests/e2e",
    "SLACKWATER_LOCK_LOST": "needs an application that hangs: tests/e2e, tests/unit",
    "SLACKWATER_LOCK_TIMEOUT": "needs a statement that holds a table for long: tests/unit",
    "SLACKWATER_METASTORE_UNAVAILABLE": "needs a metastore that is gone: tests/e2e",
    "SLACKWATER_METASTORE_REQUIRED": "needs a location in S3: tests/unit",
    "SLACKWATER_NO_SPACE": "needs a full disk: tests/e2e",
    "SLACKWATER_S3_SUPPORT_MISSING": "needs a location in S3: tests/clients",
    "SLACKWATER_SCHEMA_ALREADY_EXISTS": "Spark's own condition comes first: tests/unit",
    "SLACKWATER_SOURCE_BAD_ROW": "is told in mz_source_statuses: sources.slt, tests/e2e",
    "SLACKWATER_SOURCE_FILE_CHANGED": "is told in mz_source_statuses: tests/e2e",
    "SLACKWATER_SOURCE_FILE_UNREADABLE": "is told in mz_source_statuses: tests/unit",
    "SLACKWATER_STATEMENT_INTERRUPTED": "needs a coordinator that ends meanwhile: tests/clients",
    "SLACKWATER_STATEMENT_TIMEOUT": "needs a statement that waits: tests/unit, tests/clients",
    "SLACKWATER_STORAGE_UNAVAILABLE": "needs a location that cannot be written: tests/unit",
    "SLACKWATER_STORAGE_UNREADABLE": "needs a store that does not answer: tests/unit",
    "SLACKWATER_TOO_LARGE": "needs more rows than fit into memory: tests/unit",
    "SLACKWATER_TOO_MANY_REQUESTS": "needs more statements than threads: tests/unit",
    "SLACKWATER_TRANSACTION_LOST": "needs a coordinator that ends inside a block: tests/chaos",
    "SLACKWATER_UNBOUND_RELATION": "a defect: no statement may cause it",
    "SLACKWATER_WAIT_TIMEOUT": "needs a view that lags: tests/e2e",
}


def test_every_condition_has_a_case_or_a_reason():
    cases = set()
    for path in FILES:
        for record in parse(path.read_text()):
            if record.head[:2] == ["statement", "error"]:
                cases.add(record.head[2])
    ours = {name for name in cases if name.startswith("SLACKWATER_")}
    assert ours <= set(conditions())
    assert set(WITHOUT_CASE) <= set(conditions())
    assert sorted(set(conditions()) - ours - set(WITHOUT_CASE)) == []
    assert sorted(ours & set(WITHOUT_CASE)) == []


# A view that fails for a row has the state of that row's own error.
STATE_OF_THE_CAUSE = ("SLACKWATER_DATA_ERROR",)


def test_states_of_cases_are_those_of_the_catalogue():
    for path in FILES:
        for record in parse(path.read_text()):
            if record.head[:2] != ["statement", "error"] or record.head[2] not in conditions():
                continue
            condition, state = record.head[2:4]
            wanted = conditions()[condition]["sqlState"]
            if condition in STATE_OF_THE_CAUSE:
                assert state[:2] == wanted[:2]
            else:
                assert state == wanted, (path.name, record.line)
