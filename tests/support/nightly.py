"""What `make test` leaves to `make nightly`: tests that have the mark `nightly`, and these.

* Of a test with the mark `sampled(n)`, each parameter but the first of `n`.
* Of a test that runs with either metastore and is of what is above `persist`, that with PostgreSQL:
  metastores differ below, and the tests of `persist` take both of them each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

ABOVE_PERSIST = (("tests", "unit", "adapter"), ("tests", "chaos"))


# Before `-m` chooses.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    forms: Counter[tuple[object, ...]] = Counter()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            name = (item.path, item.originalname)
            if forms[name] % sampled.args[0]:
                item.add_marker(pytest.mark.nightly)
            forms[name] += 1
        place = item.path.relative_to(config.rootpath).parts
        if any(place[: len(each)] == each for each in ABOVE_PERSIST) and _is_one_of_two(item):
            item.add_marker(pytest.mark.nightly)


def _is_one_of_two(item: pytest.Function) -> bool:
    """Whether the same test runs with SQLite as well."""
    return hasattr(item, "callspec") and "postgres" in item.callspec.params.values()
