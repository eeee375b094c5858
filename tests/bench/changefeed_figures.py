"""How many rows of changefeeds can land, and how soon what is resolved is seen in a view."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from tests.bench.figure import Figure
from tests.support.applications.application import Application
from tests.support.server.ingress import held_port, request

BATCH = 100
SENDERS = 8
SECONDS = 10
WARM_UP_S = 3
ROUNDS = 40
BEGIN_NANOS = 1_700_000_000_000_000_000
COLUMNS = "(id BIGINT, owner STRING, balance BIGINT) KEY (id)"


def _conf(port):
    return {"spark.slackwater.ingress.address": f"127.0.0.1:{port}"}


def changefeeds(folder):
    """Rows in batches, answered when they are durable; a resolved time, then its row in a view."""
    with (
        held_port() as port,
        Application(folder / "environment", conf=_conf(port), master="local[2]") as application,
    ):
        application.sql("USE slackwater.default")
        for name in ("landing", "seen"):
            application.sql(
                f"CREATE SOURCE {name} FROM CHANGEFEED (FORMAT COCKROACH)"
                f" FOR TABLES ({name}_rows {COLUMNS})"
            )
        application.sql(
            "CREATE MATERIALIZED VIEW balances AS"
            " SELECT owner, sum(balance) AS balance FROM seen_rows GROUP BY owner"
        )
        latencies = [_seen_after_ms(application, port, number) for number in range(ROUNDS)]
        yield Figure(
            "changefeed_resolved_to_view",
            "from a resolved time to its row in a view, p50",
            "ms",
            1000,
            statistics.median(latencies[5:]),
        )
        _land(port, WARM_UP_S)
        per_second = _land(port, SECONDS)
        yield Figure(
            "changefeed_landing",
            f"time for 1000 of {per_second:.0f} rows in a second that land, in batches of {BATCH}",
            "ms",
            1000 / 20,
            1_000_000 / per_second,
        )


def _seen_after_ms(application, port, number):
    """From the resolved time's request on, until a query finds the row."""
    at = f"http://127.0.0.1:{port}/api/changefeed/slackwater/default/seen"
    updated = f"{BEGIN_NANOS + number}.0000000000"
    row = {"id": number, "owner": f"owner {number}", "balance": number}
    change = {"after": row, "key": [number], "topic": "seen_rows", "updated": updated}
    assert request(at, json.dumps({"payload": [change]}).encode()).status == 200
    began = time.perf_counter()
    assert request(at, json.dumps({"resolved": updated}).encode()).status == 200
    wanted = f"SELECT count(*) FROM balances WHERE owner = 'owner {number}'"
    while application.value(wanted) != 1:
        assert time.perf_counter() - began < 60
    return (time.perf_counter() - began) * 1000


def _land(port, seconds):
    """Rows in a second that were answered."""
    command = [sys.executable, "-m", "tests.bench.changefeed_senders"]
    command += [str(port), str(SENDERS), str(BATCH), str(seconds)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(told.stdout)
    return found["rows"] / found["seconds"]
