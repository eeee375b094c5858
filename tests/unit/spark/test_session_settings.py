"""What a session is configured with, and what that loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slackwater.spark import session

LOADED = """
import sys
from slackwater.spark.session import settings
settings(**{arguments})
print(*sorted({{"pyarrow", "sqlalchemy"}} & set(sys.modules)))
"""


@pytest.mark.parametrize("folder", ["b[1]", "a,b", "c d%20#"])
def test_a_jar_that_spark_would_not_find_is_refused(folder, tmp_path, monkeypatch):
    jars = tmp_path / folder / "jars"
    jars.mkdir(parents=True)
    jar = jars / f"slackwater-spark_{session.spark_minor()}_2.13-0.1.0.jar"
    jar.touch()
    monkeypatch.setattr(session.resources, "files", lambda _: tmp_path / folder)
    if folder == "c d%20#":
        assert session.jar_path() == jar
        return
    with pytest.raises(FileNotFoundError, match="for a pattern or a list"):
        session.jar_path()


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ({"location": "/environment"}, []),
        ({"metastore": "postgresql://someone@host/db"}, ["sqlalchemy"]),
    ],
)
def test_a_session_without_a_metastore_loads_nothing_for_one(arguments, loaded):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == loaded
