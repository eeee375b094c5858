"""A short form of `make soak`: what ticks take they give back, also those that fail."""

from __future__ import annotations

import pytest
from tests.soak.running import growth, soak

pytestmark = pytest.mark.spark


@pytest.mark.nightly
def test_memory_is_flat_over_ticks_of_which_some_fail(tmp_path):
    samples = list(soak(tmp_path, ticks=480, samples=8))
    assert samples[-1].ticks >= 480
    assert growth(samples) == []
