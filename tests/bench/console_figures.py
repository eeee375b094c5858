"""What the console costs beside an environment of many objects."""

from __future__ import annotations

import os
import statistics
import time
import urllib.request
from pathlib import Path

from tests.bench.figure import Figure
from tests.support.applications.application import Application, only_coordinator, stat
from tests.support.console.browser import console

from slackwater.console.watch import LOOKED_S

TABLES, VIEWS, MAINTAINED = 700, 200, 100
SCREENS = 7
WATCHED_S = 30

MAKE = f"""
for n in range({TABLES}):
    spark.sql(f"CREATE TABLE slackwater.s{{n % 7}}.t{{n}} (k INT, v INT)")
for n in range({VIEWS}):
    table = f"slackwater.s{{n % 7}}.t{{n}}"
    spark.sql(f"CREATE VIEW slackwater.s{{n % 7}}.v{{n}} AS SELECT k FROM {{table}}")
for n in range({MAINTAINED}):
    table = f"slackwater.s{{n % 7}}.t{{n}}"
    spark.sql(f"CREATE MATERIALIZED VIEW slackwater.s{{n % 7}}.m{{n}} AS SELECT k FROM {{table}}")
result = 0
"""


def console_of_many(folder):
    """The first screen of 1 000 objects, and what one viewer, and none, cost the leader."""
    with Application(folder / "environment", master="local[2]", alone=True) as application:
        for n in range(7):
            application.sql(f"CREATE SCHEMA slackwater.s{n}")
        application.python(MAKE, timeout_s=900)
        pid = only_coordinator(application.location)
        time.sleep(5)
        alone = _busy(pid, lambda: None)
        with console(application.location, folder) as made:
            screens = [_screen(made.address) for _ in range(SCREENS)]
            time.sleep(2 * LOOKED_S)
            unwatched = _busy(pid, lambda: None)
            watched = _busy(pid, lambda: _get(made.address, {"HX-Request": "true"}))
    objects = TABLES + VIEWS + MAINTAINED
    what = f"first screen of {objects} objects, nobody had looked before, p50"
    yield Figure("console_first_screen", what, "ms", 300, statistics.median(screens))
    what = f"leader of {objects} objects, one viewer, above idle"
    yield Figure("console_viewer", what, "% of a core", 3, 100 * (watched - alone))
    what = f"leader of {objects} objects, a console that nobody looks at, above idle"
    yield Figure("console_unwatched", what, "% of a core", 0.5, 100 * (unwatched - alone))


def _screen(address):
    """Milliseconds until the first screen is there, for the first who looks."""
    time.sleep(2 * LOOKED_S)
    began = time.perf_counter()
    _get(address, {})
    return (time.perf_counter() - began) * 1000


def _get(address, headers):
    request = urllib.request.Request(f"{address}/", headers=headers)
    with urllib.request.urlopen(request) as response:
        return response.read()


def _busy(pid, look):
    """The share of a core that a process takes while `look` is called each second."""
    began, before = time.perf_counter(), _seconds(pid)
    while time.perf_counter() - began < WATCHED_S:
        second = time.perf_counter()
        look()
        time.sleep(max(0.0, 1 - (time.perf_counter() - second)))
    return (_seconds(pid) - before) / (time.perf_counter() - began)


def _seconds(pid):
    """The processor time that a process has taken."""
    fields = stat(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
