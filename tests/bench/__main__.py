"""The product's figures: ``python -m tests.bench [name ...]``.

Each figure is measured in one run against a target, printed, and stored as JSON below
bench-results/. The exit status is 1 if a target was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.bench.figures import FIGURES
from tests.support.applications.application import ROOT


def main():
    arguments = argparse.ArgumentParser(prog="python -m tests.bench")
    arguments.add_argument("names", nargs="*", help=f"of {', '.join(FIGURES)}; default: all")
    chosen = arguments.parse_args().names or list(FIGURES)
    unknown = set(chosen) - set(FIGURES)
    if unknown:
        arguments.error(f"unknown: {', '.join(sorted(unknown))}")
    console = Console()
    results = []
    for name in chosen:
        with tempfile.TemporaryDirectory(
            prefix="slackwater-bench-", ignore_cleanup_errors=True
        ) as folder:
            began = time.monotonic()
            for result in FIGURES[name](Path(folder)):
                results.append(result)
                console.print(_sentence(result), highlight=False)
            console.print(f"  ({name} took {time.monotonic() - began:.0f} s)", highlight=False)
    console.print(_table(results))
    console.print(_machine_text(machine()), highlight=False)
    console.print(f"stored as {_store(results)}", highlight=False)
    return 0 if all(result.passed for result in results) else 1


def _sentence(result):
    verdict = "passed" if result.passed else "missed"
    measured = f"{result.measured:.4g} {result.unit}"
    return f"{result.what}: {measured}, target <= {result.target:g}: {verdict}"


def _table(results):
    table = Table("figure", "target", "measured", "", title="slackwater bench")
    for result in results:
        table.add_row(
            result.what,
            f"<= {result.target:g} {result.unit}",
            f"{result.measured:.4g} {result.unit}",
            "[green]passed[/green]" if result.passed else "[red]missed[/red]",
        )
    return table


def machine():
    """What the figures were measured on; no names of hosts or users."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _machine_text(described):
    return ", ".join(f"{key} {value}" for key, value in described.items())


def _store(results):
    folder = ROOT / "bench-results"
    folder.mkdir(exist_ok=True)
    now = datetime.now(timezone.utc)
    path = folder / f"{now:%Y%m%dT%H%M%SZ}.json"
    described = {
        "measured_at": now.isoformat(timespec="seconds"),
        "machine": machine(),
        "figures": [{**asdict(result), "passed": result.passed} for result in results],
    }
    path.write_text(json.dumps(described, indent=2) + "\n")
    return path.relative_to(ROOT)


if __name__ == "__main__":
    sys.exit(main())
