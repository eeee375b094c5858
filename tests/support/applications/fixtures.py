"""Fixtures that give tests an application of the whole product. See tests/conftest.py."""

from __future__ import annotations

import itertools

import pytest
from tests.support.applications.application import Application


class Workplace:
    """A schema of its own in the shared application, current in the session `main`."""

    def __init__(self, application, schema, folder):
        self.application = application
        self.schema = schema
        self.folder = folder
        self.sql(f"CREATE SCHEMA slackwater.{schema}")
        self.use("main")

    def use(self, session):
        self.application.sql(f"USE slackwater.{self.schema}", session=session)

    def sql(self, text, **options):
        return self.application.sql(text, **options)

    def rows(self, text, **options):
        return self.application.rows(text, **options)

    def value(self, text, **options):
        return self.application.value(text, **options)

    def python(self, code, **options):
        return self.application.python(code, **options)

    def drop(self):
        # Of a test that has failed in a block, so that the next ones do not fail for it.
        self.sql("ROLLBACK")
        self.sql(f"DROP SCHEMA slackwater.{self.schema} CASCADE")


@pytest.fixture(scope="session")
def shared_application(tmp_path_factory):
    """One application on one environment for all tests that do not break it."""
    application = Application(tmp_path_factory.mktemp("product") / "environment", master="local[2]")
    yield application
    application.close()


_numbers = itertools.count(1)


@pytest.fixture
def workplace(shared_application, tmp_path):
    """A fresh schema in the shared application; dropped at the end."""
    place = Workplace(shared_application, f"place_{next(_numbers)}", tmp_path)
    yield place
    place.drop()


@pytest.fixture(scope="module")
def workplace_of_file(shared_application, tmp_path_factory):
    """As `workplace`, one for all tests of a file, of which none uses `workplace`."""
    folder = tmp_path_factory.mktemp("workplace")
    place = Workplace(shared_application, f"place_{next(_numbers)}", folder)
    yield place
    place.drop()


@pytest.fixture
def cluster(workplace):
    """The name of a cluster with one replica, in the shared application; it goes with the test."""
    name = f"cluster_{next(_numbers)}"
    workplace.sql(f"CREATE CLUSTER {name} (SIZE = '25cc', REPLICATION FACTOR = 1)")
    yield name
    workplace.sql("ROLLBACK")
    workplace.sql("RESET cluster")
    workplace.sql(f"DROP CLUSTER IF EXISTS {name} CASCADE")
