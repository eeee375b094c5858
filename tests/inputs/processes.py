"""Shares of the work are done by several processes, each with a Spark of its own."""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Protocol

from tests.inputs.twin import Found
from tests.support.compute.declared import Declared


class Share(Protocol):
    @property
    def name(self) -> str: ...

    def examine(self, declared: Declared, folder: Path) -> Found: ...


def examined(shares: Sequence[Share], processes: int) -> Iterator[tuple[str, Found]]:
    """What the shares come to, as they are done."""
    context = multiprocessing.get_context("spawn")
    waiting: Queue = context.Queue()
    done: Queue = context.Queue()
    for share in shares:
        waiting.put(share)
    workers = [context.Process(target=_work, args=(waiting, done)) for _ in range(processes)]
    for worker in workers:
        waiting.put(None)
        worker.start()
    for _ in shares:
        yield done.get()
    for worker in workers:
        worker.join()


def _work(waiting: Queue, done: Queue) -> None:
    # What Spark refuses is counted.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        declared = Declared(Path(folder) / "environment")
        number = 0
        while (share := waiting.get()) is not None:
            number += 1
            try:
                place = Path(folder) / str(number)
                place.mkdir()
                found = share.examine(declared, place)
            except Exception as error:
                found = Found.broken(repr(error))
            done.put((share.name, found))
        declared.close()
