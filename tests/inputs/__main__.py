"""Makes views of the queries with which Spark tests itself, and of its functions: `make inputs`.

What becomes of them is counted by file in ``counts.txt``; `WRITE=1` counts anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from tests.inputs.counts import difference, read, write
from tests.inputs.examine import FileShare
from tests.inputs.files import input_files
from tests.inputs.functions import FunctionShare
from tests.inputs.processes import Share, examined

COUNTS = Path(__file__).parent / "counts.txt"
FUNCTION_SHARES = 12


def main() -> int:
    arguments = _arguments()
    counts: dict[str, Counter[str]] = {}
    mismatches = 0
    began = time.monotonic()
    for name, found in examined(_shares(arguments.files), arguments.processes):
        counts |= found.counts
        if arguments.write and not found.mismatches:
            write(COUNTS, {**read(COUNTS), **found.counts})
        mismatches += len(found.mismatches)
        for each in found.mismatches:
            print(f"-- {name}, {each.step}: {each.text}\n{each.query};\n")
        total = sum(found.counts.values(), Counter())
        print(f"{name}: {dict(total)}, {time.monotonic() - began:.0f} s", flush=True)
    other = difference(read(COUNTS), counts)
    total = sum(counts.values(), Counter())
    print(
        "\n".join(other),
        f"{total.total()} counted: {dict(total)}",
        f"{mismatches} mismatches",
        sep="\n",
    )
    return 1 if mismatches or other else 0


def _shares(names: list[str]) -> list[Share]:
    """Those whose names match one of these, each once, in their order; none: all."""
    shares: list[Share] = [FileShare(each) for each in input_files()]
    shares += [FunctionShare(number, FUNCTION_SHARES) for number in range(FUNCTION_SHARES)]
    chosen = {each.name: each for name in names or ["*"] for each in _matching(shares, name)}
    return list(chosen.values())


def _matching(shares: list[Share], pattern: str) -> list[Share]:
    found = [each for each in shares if fnmatchcase(each.name, pattern)]
    if not found:
        raise SystemExit(f"no file, and no share of the functions, is called {pattern}")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.inputs", description=__doc__)
    parser.add_argument("files", nargs="*", help="which files: cte.sql, 'group*', 'functions-*'")
    parser.add_argument("--write", action="store_true", help="write the counts anew")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
