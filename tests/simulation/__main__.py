"""Runs simulations: `make simulation`, `make simulation SEED=1234`.

Each run has a process of its own, forked from this one, in which threads and clock are those of the
simulation. The hash seed is fixed: the order of sets is part of what a seed decides.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator

from tests.support.waiting import PATIENCE

TAIL = 60


def main() -> int:
    arguments = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":
        module = ["-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, [sys.executable, *module], {**os.environ, "PYTHONHASHSEED": "0"})
    real_time = time.perf_counter
    from tests.simulation.threads import Scheduler, install

    scheduler = Scheduler()
    install(scheduler)
    # What comes from here on gets the simulated threads and clock.
    from tests.simulation.run import STUCK, Outcome, simulate, simulate_kill

    def apart(run: Callable[[], Outcome]) -> Outcome:
        found = _forked(lambda: pickle.dumps(run()))
        return pickle.loads(found) if found else STUCK

    # What is loaded and compiled at its first use is so for all runs then.
    whole = simulate_kill(scheduler, 0, None)

    def kills(step: int) -> Iterator[tuple[str, Outcome]]:
        yield "KILL=0", whole
        for number in range(1, whole.boundaries + 1, step):
            yield f"KILL={number}", apart(lambda n=number: simulate_kill(scheduler, 0, n))

    def outcomes() -> Iterator[tuple[str, Outcome]]:
        if arguments.kill is not None:
            yield (
                f"KILL={arguments.kill}",
                apart(lambda: simulate_kill(scheduler, 0, arguments.kill or None)),
            )
            return
        if arguments.kill_step:
            yield from kills(arguments.kill_step)
        for seed in arguments.seeds:
            yield f"SEED={seed}", apart(lambda s=seed: simulate(scheduler, s))

    failed = 0
    began = real_time()
    for name, outcome in outcomes():
        print(
            f"{name} {'ok' if outcome.failure is None else 'FAILED'} trace {outcome.digest}"
            f" {outcome.turns} turns {outcome.boundaries} boundaries {outcome.inserts} inserts"
            f" {outcome.servers} servers {outcome.simulated_s:.0f} s simulated",
            flush=True,
        )
        if arguments.trace:
            print("\n".join(outcome.log))
        if outcome.failure is not None:
            failed += 1
            print("\n".join(outcome.log[-TAIL:]))
            print(f"{outcome.failure}\nmake simulation {name}", flush=True)
    print(f"{failed} failed, {real_time() - began:.1f} s")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="*", type=int, help="which runs")
    parser.add_argument("--count", type=int, default=0, help="the seeds from 1 on, so many")
    parser.add_argument("--kill", type=int, help="end the server at this boundary; 0: at none")
    parser.add_argument("--kill-step", type=int, default=0, help="at each so-manieth boundary")
    parser.add_argument("--trace", action="store_true", help="show all events")
    arguments = parser.parse_args()
    arguments.seeds = [*arguments.seeds, *range(1, arguments.count + 1)]
    return arguments


def _forked(action: Callable[[], bytes]) -> bytes:
    """What the action returns in a process that begins as this one and ends afterwards."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _answer(writer, action)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        found = answer.read()
    os.waitpid(child, 0)
    return found


def _answer(writer: int, action: Callable[[], bytes]) -> None:
    import faulthandler
    import gc

    # When objects are collected must not depend on what was there before.
    gc.disable()
    # A run that takes longer waits for something that is not simulated.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(action())
    finally:
        os._exit(0)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # An interpreter that ends in order tells of each object of native code that is left.
    os._exit(status)
