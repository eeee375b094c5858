"""Makes ticks for a long time and says what memory they leave taken: `make soak TICKS=100000`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.soak.running import growth, soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--ticks", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=40)
    arguments = parser.parse_args()
    samples = []
    print("   ticks  seconds  driver's heap  driver  coordinator (MB)")
    with tempfile.TemporaryDirectory() as folder:
        for s in soak(Path(folder), arguments.ticks, arguments.samples):
            samples.append(s)
            print(
                f"{s.ticks:8d} {s.seconds:8.0f} {s.heap_mb:14.1f} {s.driver_mb:7.0f}"
                f" {s.coordinator_mb:12.0f}",
                flush=True,
            )
    found = growth(samples)
    print("\n".join(found) or "flat")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
