"""What requests of one row take on their way into a source, and how many there can be."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from tests.bench.figure import Figure
from tests.support.applications.application import Application
from tests.support.server.ingress import held_port

SECONDS = 10
SENDERS = 16
MANY = 64
WARM_UP_S = 5


def _conf(port):
    return {"spark.slackwater.ingress.address": f"127.0.0.1:{port}"}


def webhooks(folder):
    """One sender after the other, and many at once, without a condition and with a signature."""
    with (
        held_port() as port,
        Application(folder / "environment", conf=_conf(port), master="local[2]") as application,
    ):
        application.sql("USE slackwater.default")
        application.sql("CREATE SECRET key AS 'key'")
        application.sql("CREATE SOURCE plain FROM WEBHOOK (BODY FORMAT JSON)")
        application.sql(
            "CREATE SOURCE signed FROM WEBHOOK (BODY FORMAT JSON, CHECK (WITH (HEADERS, BODY,"
            " SECRET key) constant_time_eq(unhex(headers['sig']), hmac(body, key, 'sha256'))))"
        )
        for name, what in (("plain", ""), ("signed", ", signed")):
            _load(port, name, SENDERS, WARM_UP_S)
            alone, _ = _load(port, name, 1, SECONDS)
            yield Figure(
                f"webhook_{name}_p50",
                f"webhook request of one row{what}, p50",
                "ms",
                10,
                statistics.median(alone),
            )
            some, _ = _load(port, name, SENDERS, SECONDS)
            before = application.value(f"SELECT count(*) FROM {name}")
            took, per_second = _load(port, name, MANY, SECONDS)
            after = application.value(f"SELECT count(*) FROM {name}")
            assert after - before == len(took)
            yield Figure(
                f"webhook_{name}_busy_p50",
                f"webhook request of one row{what}, {SENDERS} senders, p50",
                "ms",
                10,
                statistics.median(some),
            )
            yield Figure(
                f"webhook_{name}_throughput",
                f"time for each of {per_second:.0f} requests in a second{what}, {MANY} at once",
                "ms",
                1000 / 2000,
                1000 / per_second,
            )


def _load(port, name, senders, seconds):
    """What each request took, in ms, and how many were answered in a second."""
    command = [sys.executable, "-m", "tests.bench.webhook_senders"]
    command += [str(port), name, str(senders), str(seconds)]
    began = time.monotonic()
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    assert time.monotonic() - began < seconds + 30
    found = json.loads(told.stdout)
    return found["took_ms"], len(found["took_ms"]) / found["seconds"]
