"""What a session is configured with, and what that loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
from slackwater.spark.session import settings
settings(**{arguments})
print(*sorted({{"pyarrow", "sqlalchemy"}} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        ({"location": "/environment"}, []),
        ({"metastore": "postgresql://someone@host/db"}, ["pyarrow", "sqlalchemy"]),
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
