"""A worker over two tables, and what the history they have makes of queries."""

from __future__ import annotations

import time

import pytest
from tests.support.compute.incremental import Bench, Recomputation
from tests.support.compute.worked_history import DUCK, HISTORY, LAST, A, B


@pytest.fixture
def limits():
    """Those of the worker; None: the usual ones."""
    return None


@pytest.fixture
def monotonic():
    """The worker's clock."""
    return time.monotonic


@pytest.fixture
def bench(declared, tmp_path, limits, monotonic):
    made = Bench(tmp_path, declared, limits, monotonic=monotonic)
    made.table("a", A)
    made.table("b", B)
    yield made
    made.close()
    assert made.fatal == []


@pytest.fixture(scope="module")
def expected():
    recomputation = Recomputation(DUCK, HISTORY, LAST)
    yield recomputation.at
    recomputation.close()
