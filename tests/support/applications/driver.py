"""Runs SQL for tests in Spark applications, one after the other: lines of JSON come and go.

Run as ``python -m tests.support.applications.driver``. ``{"id", "start": settings}`` starts an
application, ``{"id", "stop": true}`` ends it; each is answered with ``{"id"}``. In between each
request ``{"id", "session", "sql", "args"}`` is answered with ``{"id", "columns", "rows", "ms"}`` or
``{"id", "error", "ms"}``. Requests of one session run in order, those of several at once.
"""

from __future__ import annotations

import datetime
import json
import os
import queue
import sys
import threading
import time
import traceback
from decimal import Decimal

STOP_AFTER_S = 20


class Running:
    """An application, and a thread for each of its sessions."""

    def __init__(self, settings, say):
        self._settings = settings
        self._say = say
        self._root = _root_session(settings)
        self._queues = {}
        self._threads = []

    def ask(self, request):
        name = request["session"]
        if name not in self._queues:
            self._queues[name] = queue.Queue()
            session = self._root if name == "main" else _new_session(self._root, self._settings)
            arguments = (session, self._queues[name], self._say)
            self._threads.append(threading.Thread(target=_serve, args=arguments, daemon=True))
            self._threads[-1].start()
        self._queues[name].put(request)

    def stop(self):
        """Ends it and leaves nothing behind. Raises TimeoutError when a statement goes on."""
        jvm = self._root._jvm
        for requests in self._queues.values():
            requests.put(None)
        self._root.stop()
        deadline = time.monotonic() + STOP_AFTER_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                raise TimeoutError("a statement goes on")
        # Each new configuration begins with them: what the JVM was started with is no default.
        for name in list(jvm.System.getProperties().stringPropertyNames()):
            if name.startswith("spark."):
                jvm.System.clearProperty(name)


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def say(message):
        with lock:
            answers.write(json.dumps(message) + "\n")

    running = None
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            running = Running(request["start"], say)
            say({"id": request["id"]})
        elif "stop" in request:
            running.stop()
            say({"id": request["id"]})
        else:
            running.ask(request)
    os._exit(0)


def _root_session(settings):
    from pyspark.sql import SparkSession

    if settings.get("remote"):
        return SparkSession.builder.remote(settings["remote"]).getOrCreate()
    builder = SparkSession.builder.master(settings["master"]).appName("slackwater test")
    for key, value in settings["conf"].items():
        builder = builder.config(key, value)
    if settings["jar"]:
        import slackwater

        ours = "spark.slackwater."
        builder = slackwater.configure(
            builder,
            location=settings["location"],
            metastore=settings["metastore"],
            **{k.removeprefix(ours): v for k, v in settings["conf"].items() if k.startswith(ours)},
        )
    return builder.getOrCreate()


def _new_session(root, settings):
    if settings.get("remote"):
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(settings["remote"]).create()
    return root.newSession()


def _serve(session, requests, say):
    while (request := requests.get()) is not None:
        began = time.perf_counter()
        try:
            answer = _run(session, request)
        except Exception as error:
            answer = {"error": describe(error)}
        say({"id": request["id"], "ms": (time.perf_counter() - began) * 1000, **answer})


def _run(session, request):
    if "python" in request:
        return {"columns": [], "rows": [[plain(_evaluate(session, request["python"]))]]}
    arguments = {"args": request["args"]} if request.get("args") else {}
    frame = session.sql(request["sql"], **arguments)
    rows = [[plain(value) for value in row] for row in frame.collect()]
    return {"columns": frame.columns, "rows": rows}


def _evaluate(session, text):
    """The value of the variable `result` after Python code that may use `spark`."""
    names = {"spark": session}
    exec(text, names)
    return names.get("result")


def plain(value):
    """A value of a row as JSON; equal values of two front ends become equal JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if hasattr(value, "asDict"):
        return {name: plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, dict):
        return sorted([plain(key), plain(inner)] for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value)


def describe(error):
    """Type, condition, SQLSTATE and message of an exception."""
    condition = getattr(error, "getCondition", lambda: None)()
    state = getattr(error, "getSqlState", lambda: None)()
    return {
        "type": type(error).__name__,
        "condition": condition,
        "sqlstate": state,
        "message": str(error),
    }


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        traceback.print_exc()
        # Whoever asked is told so by the end of this process, whatever else still runs in it.
        os._exit(1)
