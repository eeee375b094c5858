"""Ctrl-C at a command that runs Spark in its own process."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def interruptible(open_session: Callable[[], T]) -> T:
    """The session, after which Ctrl-C raises KeyboardInterrupt wherever the program is.

    Ctrl-C while the session is opened counts when it is there: a JVM that has not yet said where
    it listens outlives a program that ends then (`pyspark.java_gateway.launch_gateway`). The
    handler that Spark's context sets is replaced: it asks the JVM to cancel the jobs of all, on
    the connection at which the program waits, and fails. Stack traces that py4j logs are dropped:
    those of an interrupt, and of what it raises as well.

    Raises KeyboardInterrupt if Ctrl-C came meanwhile. Call it in the main thread.
    """
    came = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: came.set())
    try:
        session = open_session()
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.getLogger().addFilter(_tells_no_interrupt)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    if came.is_set():
        raise KeyboardInterrupt
    return session


def _tells_no_interrupt(record: logging.LogRecord) -> bool:
    return not (record.exc_info and record.exc_info[0] is KeyboardInterrupt)
