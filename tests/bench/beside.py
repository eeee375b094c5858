"""Work that goes on while something is measured."""

from __future__ import annotations

import threading
from contextlib import contextmanager


@contextmanager
def beside(work):
    """Runs `work(ended)` in a thread of its own; the event `ended` is set when the block ends."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
