"""A Spark application that runs SQL for a test: requests and answers are lines of JSON.

Run as ``python -m tests.support.applications.driver`` with the settings as JSON in the first line.
Each request
``{"id", "session", "sql", "args"}`` is answered with ``{"id", "columns", "rows", "ms"}`` or
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
from decimal import Decimal


def main():
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline())
    root = _root_session(settings)
    lock = threading.Lock()

    def say(message):
        with lock:
            answers.write(json.dumps(message) + "\n")

    say({"id": 0, "ready": True})
    queues = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["session"]
        if name not in queues:
            queues[name] = queue.Queue()
            session = root if name == "main" else _new_session(root, settings)
            threading.Thread(target=_serve, args=(session, queues[name], say), daemon=True).start()
        queues[name].put(request)
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
    while True:
        request = requests.get()
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
    main()
