"""What the console costs beside an environment of many objects."""

from __future__ import annotations

import os
import statistics
import time
import urllib.request
from pathlib import Path

from tests.bench.figure import Figure
from tests.support.applications.application import Application, kill, only_coordinator, stat
from tests.support.console.browser import chromium, console, visit

from slackwater.console.watch import LOOKED_S

TABLES, VIEWS, MAINTAINED = 700, 200, 100
SCREENS = 7
ROUNDS = 5
NAMED_S = 3
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


def attention(folder):
    """Seconds from what happens until the first screen in a browser names it."""
    feed = folder / "feed"
    feed.mkdir()
    (feed / "1.csv").write_text("1\n")
    with (
        Application(folder / "environment", master="local[2]", alone=True) as application,
        console(application.location, folder) as made,
        chromium() as browser,
        visit(browser, made.address, folder) as seen,
    ):
        application.sql("USE slackwater.default")
        application.sql(f"CREATE SOURCE feed (k INT) FROM FILES (PATH '{feed}', FORMAT CSV)")
        application.sql("CREATE TABLE orders (k INT, v INT)")
        application.sql("CREATE MATERIALIZED VIEW shares AS SELECT k, 1 / v AS v FROM orders")
        seen.open().sees("default.shares", within=".objects")
        yield _named("a source that stops", [_stopped(seen, feed) for _ in range(ROUNDS)])
        yield _named("a view that fails", [_failing(seen, application) for _ in range(ROUNDS)])
        yield _named("no leader", [_left(seen, application) for _ in range(ROUNDS)])


def _named(what, took):
    name = "console_names_" + what.replace(" ", "_")
    text = f"first screen names {what}, p50 (at most {max(took):.1f})"
    return Figure(name, text, "s", NAMED_S, statistics.median(took))


def _stopped(seen, feed):
    seen.sees("Nothing needs attention.")
    (feed / ".hidden").write_text("x\n")
    began = time.perf_counter()
    (feed / ".hidden").rename(feed / "2.csv")
    seen.needs_attention("default.feed")
    took = time.perf_counter() - began
    (feed / "2.csv").unlink()
    return took


def _failing(seen, application):
    seen.sees("Nothing needs attention.")
    began = time.perf_counter()
    application.sql("INSERT INTO orders VALUES (1, 0)")
    seen.needs_attention("default.shares")
    took = time.perf_counter() - began
    application.sql("DELETE FROM orders")
    return took


def _left(seen, application):
    seen.page.locator("#live:not(.old)").wait_for()
    pid = only_coordinator(application.location)
    began = time.perf_counter()
    kill(pid)
    seen.sees("Nobody leads since", within="[role=status]")
    took = time.perf_counter() - began
    application.rows("SELECT count(*) FROM orders")
    return took


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
