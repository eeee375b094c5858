"""The threads in which the calls of one lane run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class LaneThreads:
    """Runs calls in daemon threads, at most `limit` at once, in the order in which they came.

    `run` is for the thread of one event loop. A thread, once begun, waits for the next call.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._count = 0
        self._idle = threading.Semaphore(0)
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def run(self, action: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """The result of `action`, or what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                result = action(*arguments)
            except BaseException as error:
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, result)

        self._calls.put(call)
        if not self._idle.acquire(blocking=False) and self._count < self._limit:
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            self._calls.get()()
            self._idle.release()


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[Any],
    settle: Callable[[Any], None],
    value: Any,
) -> None:
    def settle_it() -> None:
        if not future.done():
            settle(value)

    try:
        loop.call_soon_threadsafe(settle_it)
    except RuntimeError:
        # The loop has ended: nobody waits any more.
        return
