"""Objects of the JVM that are gone: whoever drops one waits for nobody."""

import threading
from queue import SimpleQueue
from types import SimpleNamespace

from py4j.java_gateway import JavaObject
from tests.support.waiting import PATIENCE

from slackwater.spark.given_back import give_back_elsewhere


class Client:
    """A client of a JVM that hangs until `answers` is set."""

    def __init__(self):
        self.address, self.port = "127.0.0.1", 1
        self.gateway_property = SimpleNamespace(auto_field=False, enable_memory_management=True)
        self.answers = threading.Event()
        self.told = SimpleQueue()

    def garbage_collect_object(self, target_id):
        assert self.answers.wait(PATIENCE)
        self.told.put((target_id, threading.current_thread().name))


def test_a_jvm_that_hangs_hangs_nobody_who_drops_an_object():
    client = Client()
    give_back_elsewhere(client)
    for number in range(3):
        dropped = JavaObject(f"o{number}", client)
        del dropped
    client.answers.set()
    told = [client.told.get(timeout=PATIENCE) for _ in range(3)]
    assert told == [(f"o{number}", "jvm-objects") for number in range(3)]
