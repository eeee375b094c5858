"""Makes views of the queries with which Spark tests itself, and of its functions: `make inputs`.

What becomes of them is counted by file in ``counts.txt``; `WRITE=1` counts anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
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
        mismatches += len(found.mismatches)
        for each in found.mismatches:
            print(f"-- {name}, {each.step}: {each.text}\n{each.query};\n")
        total = sum(found.counts.values(), Counter())
        print(f"{name}: {dict(total)}, {time.monotonic() - began:.0f} s", flush=True)
    if arguments.write:
        write(COUNTS, {**read(COUNTS), **counts})
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
    """Those with these names; none: all."""
    shares: list[Share] = [FileShare(each) for each in input_files()]
    shares += [FunctionShare(number, FUNCTION_SHARES) for number in range(FUNCTION_SHARES)]
    known = {each.name: each for each in shares}
    return [known[name] for name in names] if names else shares


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.inputs", description=__doc__)
    parser.add_argument("files", nargs="*", help="which of the files; 'functions 3 of 12'")
    parser.add_argument("--write", action="store_true", help="write the counts anew")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
