"""The file of parameters of an application, and ALTER SYSTEM from another session."""

from __future__ import annotations

import pytest
from tests.support.applications.application import Application, wait_until

pytestmark = pytest.mark.spark

NAME = "persist_blob_target_size"


def source(application):
    query = f"SELECT value, source FROM mz_internal.mz_system_parameters WHERE name = '{NAME}'"
    ((value, found),) = application.rows(query)
    return value, found


def test_a_file_counts_when_an_application_begins_and_while_it_runs(tmp_path):
    file = tmp_path / "parameters.conf"
    file.write_text(f"{NAME} = 64MB\nstatement_timeout = '2 min'\n")
    conf = {"spark.slackwater.parameters.file": str(file)}
    with Application(tmp_path / "environment", conf=conf) as application:
        application.sql("USE slackwater")
        assert source(application) == ("67108864 B", "file")
        assert application.rows("SHOW statement_timeout") == [["120000 ms"]]
        file.write_text(f"{NAME} = 32MB\n")
        wait_until(lambda: source(application) == ("33554432 B", "file"))
        file.write_text(f"{NAME} = 16MB\nno_such = 1\n")
        notices = "SHOW NOTICES"
        wait_until(lambda: any("no_such" in row[2] for row in application.rows(notices)))
        assert source(application) == ("33554432 B", "file")
        application.sql(f"ALTER SYSTEM SET {NAME} = '8MB'", session="main")
        assert source(application) == ("8388608 B", "system")
    with Application(tmp_path / "environment") as application:
        application.sql("USE slackwater")
        assert source(application) == ("8388608 B", "system")
        application.sql(f"ALTER SYSTEM RESET {NAME}")
        assert source(application) == ("134217728 B", "default")
