"""The stage of a tour: statements are shown as they run, and results are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slackwater.demo.data import Day
from slackwater.demo.display import Display
from slackwater.demo.scripts import fill

SINGLE_DAYS = 7
DAYS_AT_ONCE = 14
NEW_NAME = "US Airways (now American)"
RENAMED = 12
"""The renames to and fro that are measured; the first ones run code that is not compiled yet."""
MARK = "Made by slackwater demo"
"""The comment of the schema that the demo makes, and drops when it runs again."""


class NotOursError(Exception):
    """The demo would change a schema that it did not make."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A session whose statements have names, and are shown."""

    spark: Any
    statements: Mapping[str, str]
    display: Display

    def run(self, name: str, /, *, show: bool = True, **values: object) -> Sequence[Any]:
        """Shows and runs the statement of this name; shows and returns its rows."""
        text = fill(self.statements[name], **values)
        self.display.statement(text)
        frame = self.spark.sql(text)
        rows: Sequence[Any] = frame.collect()
        if rows and show:
            self.display.rows(frame.columns, rows)
        return rows

    def clear(self) -> None:
        """Makes the schema of the demo anew, and uses it.

        Raises NotOursError when there is one of its name that no demo has made.
        """
        if self.spark.catalog.databaseExists("slackwater.demo"):
            described = self.spark.sql("DESCRIBE SCHEMA slackwater.demo").collect()
            if MARK not in [row[1] for row in described]:
                raise NotOursError(
                    "This environment has a schema slackwater.demo that was not made by the demo. "
                    "Name another environment with --location, or drop or rename the schema."
                )
        self.run("drop")
        self.run("schema", mark=MARK)
        self.run("use")

    def session(self) -> Any:
        """Another session in the schema of the demo."""
        session = self.spark.newSession()
        session.sql("USE slackwater.demo")
        return session

    def compare(
        self, view: str, kept: Sequence[tuple[Any, ...]], wanted: Sequence[tuple[Any, ...]]
    ) -> None:
        """Checks that the view has the rows that it must have; both are sorted."""
        self.display.check(
            f"{view}: {len(wanted)} rows, all equal", kept == wanted, _difference(kept, wanted)
        )


def in_steps(days: Sequence[Day]) -> Sequence[Sequence[Day]]:
    """The first week day by day, the rest some days at once."""
    single, rest = days[:SINGLE_DAYS], days[SINGLE_DAYS:]
    many = [rest[i : i + DAYS_AT_ONCE] for i in range(0, len(rest), DAYS_AT_ONCE)]
    return [*([day] for day in single), *many]


def ms_since(began: float) -> float:
    """The milliseconds since `began`, by `time.perf_counter`."""
    return (time.perf_counter() - began) * 1000


def spread(values: Sequence[float]) -> list[str]:
    """Median and maximum of times in milliseconds, as they are shown."""
    return [f"{statistics.median(values):.0f} ms", f"{max(values):.0f} ms"]


def _difference(kept: Sequence[Any], wanted: Sequence[Any]) -> str:
    missing = [row for row in wanted if row not in kept][:2]
    extra = [row for row in kept if row not in wanted][:2]
    return f"(missing {missing}, too many {extra})"
