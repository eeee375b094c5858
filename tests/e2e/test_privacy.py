"""Who may look into an environment."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_the_folder_of_an_environment_is_its_users_alone(shared_application):
    shared_application.sql("SHOW CLUSTERS")
    location = Path(shared_application.location)
    assert oct(mode(location)) == oct(0o700)
    tokens = list(location.glob("token-*"))
    assert tokens
    assert {oct(mode(token)) for token in tokens} == {oct(0o600)}
