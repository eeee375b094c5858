"""What the history of statements costs them, by turns with sessions that are left out of it."""

from __future__ import annotations

import statistics

from tests.bench.figure import Figure
from tests.support.applications.application import Application

WARM_UP = 400
ROUNDS = 600


def history(folder):
    """Point reads and INSERTs, each text another one, in two sessions by turns."""
    with Application(folder / "environment", master="local[2]") as application:
        for session, rate in (("kept", 1), ("left_out", 0)):
            application.sql("USE slackwater.default", session=session)
            application.sql(f"SET statement_logging_sample_rate = {rate}", session=session)
        sql = application.sql
        sql("CREATE TABLE few (k INT, v STRING)", session="kept")
        sql("INSERT INTO few VALUES (1, 'a'), (2, 'b')", session="kept")
        sql("CREATE INDEX ON few (k)", session="kept")
        for name, text, what in (
            ("history_read_ratio", "SELECT v FROM few WHERE k = {}", "point read"),
            ("history_insert_ratio", "INSERT INTO few VALUES ({}, 'c')", "INSERT of a row"),
        ):
            kept, left_out = by_turns(application, text)
            yield Figure(f"{name}_ms", f"{what}, in the history, p50", "ms", 20, kept)
            yield Figure(name, "the same against one that is left out", "x", 1.03, kept / left_out)


def by_turns(application, text):
    """The medians of both sessions, in milliseconds; who is first alternates."""
    times = {"kept": [], "left_out": []}
    for number in range(WARM_UP + ROUNDS):
        order = list(times) if number % 2 else list(reversed(times))
        for place, session in enumerate(order):
            ms = application.sql(text.format(2 * number + place), session=session).ms
            times[session].append(ms)
    return [statistics.median(each[WARM_UP:]) for each in times.values()]
