"""The room in which the tests of the compute controller are."""

from __future__ import annotations

import pytest
from tests.support.compute.controller_room import ComputeRoom


@pytest.fixture
def room():
    made = ComputeRoom()
    yield made
    made.run()


@pytest.fixture
def core(room):
    return room.core
