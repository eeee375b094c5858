"""Packages that libraries import if they are there, and that the coordinator has no use for.

pyarrow imports pandas when it makes its first array of a list, and structlog imports rich for
output at a terminal. Both do without. In the coordinator's process the two are not there: they
would be a sixth of the time that it takes to start, and 60 MB of memory (decision 0110).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

UNUSED = ("pandas", "rich")
"""The packages that the coordinator does without."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A finder of modules, first in `sys.meta_path`: those of `packages` are not found."""

    packages: frozenset[str]

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raises ModuleNotFoundError for the packages; leaves all others to the next finder."""
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"the coordinator does without {name}", name=name)


def leave_out(*packages: str) -> None:
    """Lets no module of the packages be imported in this process from now on."""
    sys.meta_path.insert(0, LeftOut(frozenset(packages)))
