"""What becomes of the queries of each file, as it was counted last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

Counts = Mapping[str, Counter[str]]


def read(path: Path) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            file, label, count = line.rsplit(" | ", 2)
            found.setdefault(file, Counter())[label] = int(count)
    return found


def write(path: Path, counts: Counts) -> None:
    total: Counter[str] = Counter()
    for each in counts.values():
        total += each
    lines = [f"# {count} {label}" for label, count in total.most_common()]
    for file in sorted(counts):
        lines += [f"{file} | {label} | {n}" for label, n in sorted(counts[file].items())]
    path.write_text("\n".join(lines) + "\n")


def difference(known: Counts, found: Counts) -> list[str]:
    """What is not as it was counted last, of these files."""
    return [
        f"{file}: {dict(counts)}, and it was {dict(known.get(file, {}))}"
        for file, counts in found.items()
        if counts != known.get(file)
    ]
