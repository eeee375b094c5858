"""Objects of the JVM that Python has no more: the JVM is told by a thread of its own.

py4j tells it in the thread in which Python finds the object gone, and waits for the answer. That
may be any thread, with any lock, and a JVM that hangs for a while would let it hang as well.
Source: `GatewayClient.garbage_collect_object` of py4j 0.10.9.9.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol


class ObjectsClient(Protocol):
    """The part of py4j's `GatewayClient` that tells the JVM of an object that is gone."""

    garbage_collect_object: Callable[[str], None]


def give_back_elsewhere(client: ObjectsClient) -> None:
    """Lets the client tell the JVM of objects that are gone in a thread of its own from now on."""
    tell = client.garbage_collect_object
    # Python may collect garbage within `put`, and call it again: this queue allows that.
    gone: SimpleQueue[str] = SimpleQueue()

    def run() -> None:
        while True:
            tell(gone.get())

    threading.Thread(target=run, name="jvm-objects", daemon=True).start()
    client.garbage_collect_object = gone.put
