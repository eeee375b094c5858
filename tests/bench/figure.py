"""One measured number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. The smaller the better."""

    name: str
    what: str
    unit: str
    target: float
    measured: float

    @property
    def passed(self):
        return self.measured <= self.target
