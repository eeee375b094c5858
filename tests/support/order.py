"""The order in which files of tests run: what takes long begins early.

Several processes take one file after the other. So they end at about the same time when small
files come last, however long the longest ones are.
"""

from __future__ import annotations

import pytest

FOLDERS = (
    "e2e",
    "engine",
    "chaos",
    "clients",
    "fuzz",
    "inputs",
    "simulation",
    "property",
    "slt",
    "soak",
    "unit",
)
"""Of `tests`, by how long their longest files take."""


# After `-k` and the like have chosen.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        place = item.path.relative_to(config.rootpath).parts
        known = place[0] == "tests" and place[1] in FOLDERS
        return FOLDERS.index(place[1]) if known else len(FOLDERS)

    items.sort(key=rank)
