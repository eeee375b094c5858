"""Maintains random views and compares them with DuckDB: `make fuzz SECONDS=3600`.

Each case comes out of a seed; `make fuzz SEED=1234` repeats one. What fails is made smaller, as
long as that takes no more than SHRINK_S, and printed as a test to be pasted.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import structlog
from tests.fuzz.cases import script
from tests.fuzz.drafts import Draft, draft, shrunk
from tests.fuzz.running import Failure, outcome_of
from tests.support.compute.declared import Declared

SHRINK_S = 180
TELL_S = 60


def main() -> int:
    arguments = _arguments()
    # That a view is recomputed for lack of memory is what some cases are about.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        declared = Declared(Path(folder))
        try:
            return _search(declared, arguments)
        finally:
            declared.close()


def _search(declared: Declared, arguments: argparse.Namespace) -> int:
    began = told = time.monotonic()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failed: list[int] = []
    for seed in _seeds(arguments, began):
        made = replace(draft(seed), runs=()) if arguments.reads else draft(seed)
        outcome = outcome_of(declared, made.case())
        counts += Counter(
            cases=1,
            views=outcome.views,
            programs=outcome.programs,
            short=outcome.short,
            looked_up=outcome.looked_up,
            served=outcome.served,
            read=outcome.read,
        )
        refused += Counter(outcome.refused.values())
        if outcome.failure is not None:
            failed.append(seed)
            print(f"SEED={seed} {_text(outcome.failure)}", flush=True)
            if arguments.shrink:
                print(_smallest(declared, made, seed, outcome.failure), flush=True)
        if time.monotonic() - told > TELL_S:
            told = time.monotonic()
            print(f"{dict(counts)}, {len(failed)} failed, {told - began:.0f} s", flush=True)
    print(f"{dict(counts)}, {time.monotonic() - began:.0f} s, seeds that failed: {failed}")
    print(f"refused: {dict(refused)}")
    return 1 if failed else 0


def _seeds(arguments: argparse.Namespace, began: float) -> Iterator[int]:
    if arguments.seeds:
        yield from arguments.seeds
        return
    seed = arguments.start
    while time.monotonic() - began < arguments.seconds:
        yield seed
        seed += 1


def _text(failure: Failure) -> str:
    return f"{failure.kind} {failure.view}: {failure.text}"


def _smallest(declared: Declared, made: Draft, seed: int, failure: Failure) -> str:
    deadline = time.monotonic() + SHRINK_S
    last = failure

    def fails(smaller: Draft) -> bool:
        nonlocal last
        if time.monotonic() > deadline:
            return False
        found = outcome_of(declared, smaller.case()).failure
        if found is None or found.kind != failure.kind:
            return False
        last = found
        return True

    found = shrunk(made, fails)
    return f"{script(found.case(), f'seed_{seed}')}\n# {_text(last)}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="which cases")
    parser.add_argument("--seconds", type=float, default=120, help="search for so long")
    parser.add_argument("--start", type=int, default=None, help="the first seed of the search")
    parser.add_argument("--reads", action="store_true", help="maintain nothing, read alone")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    arguments = parser.parse_args()
    if arguments.start is None:
        # Each search looks at cases of its own.
        arguments.start = time.time_ns() // 1_000_000_000 * 10_000
    return arguments


if __name__ == "__main__":
    sys.exit(main())
