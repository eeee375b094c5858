"""How many rows of PostgreSQL become durable in a second, how soon a view shows one, and how soon a
source goes on after a restart."""

from __future__ import annotations

import statistics
import time

from tests.bench.figure import Figure
from tests.bench.kafka_figures import Restart, restarted, used_s
from tests.support.applications.application import Application
from tests.support.storage.upstreams import Upstream, running_upstream_server

ROWS = 1_000_000
STREAMED = 400_000
TRANSACTION = 1_000
ROUNDS = 60


def postgres(folder):
    """A table that is full, over one connection and over several, then transactions of many rows,
    then one row after the other, then one that waits for another leader."""
    location = folder / "environment"
    with (
        running_upstream_server() as server,
        Application(location, master="local[2]") as application,
    ):
        upstream = Upstream(server)
        yield from _followed(application, upstream)
        yield restarted_table(application, upstream)
        upstream.connection.close()


def restarted_table(application, upstream):
    what = f"a table of {ROWS} rows by their key, until it has a change"
    asked = Restart("postgres_restart", what, "s", "customer = 'back'", "orders")
    change = "UPDATE orders SET customer = 'back' WHERE id = 1"
    return restarted(application, asked, lambda: upstream.run(change))


def _followed(application, upstream):
    application.sql("USE slackwater.default")
    application.sql("SET slackwater.statement_timeout = '10min'")
    application.sql(f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})")
    upstream.run(
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT, amount NUMERIC(12, 2),"
        " at TIMESTAMPTZ)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        _inserted(0, ROWS),
    )
    for connections in (1, 4):
        if connections > 1:
            application.sql("DROP SOURCE s")
        before_s, began = used_s(application), time.perf_counter()
        application.sql(
            "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p', SNAPSHOT CONNECTIONS"
            f" {connections}) FOR ALL TABLES WITH (TIMESTAMP INTERVAL '100 ms')",
            timeout_s=600,
        )
        took_s = time.perf_counter() - began
        of_processor_s = used_s(application) - before_s
        how = f"copied over {connections} of its connections, {of_processor_s:.1f} s of a processor"
        yield _rate(f"postgres_snapshot_{connections}", how, ROWS, 150_000, took_s)
    application.sql("CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM orders")
    upstream.run("UPDATE orders SET customer = 'x' WHERE id = 0")
    _wait(application, ROWS)
    for start in range(ROWS, ROWS + STREAMED, TRANSACTION):
        upstream.run(_inserted(start, start + TRANSACTION))
        if start == ROWS:
            began = time.perf_counter()
    _wait(application, ROWS + STREAMED)
    took_s = time.perf_counter() - began
    yield _rate("postgres_stream", "followed by a key", STREAMED, 40_000, took_s)
    yield Figure(
        "postgres_to_view",
        "COMMIT of the upstream until a view shows it, p50",
        "ms",
        400,
        statistics.median(_delays_ms(application, upstream)[10:]),
    )


def _delays_ms(application, upstream):
    times = []
    for number in range(ROWS + STREAMED, ROWS + STREAMED + ROUNDS):
        upstream.run(_inserted(number, number + 1))
        began = time.perf_counter()
        _wait(application, number + 1)
        times.append((time.perf_counter() - began) * 1000)
    return times


def _wait(application, count):
    while application.value("SELECT n FROM seen") < count:
        pass


def _inserted(start, end):
    return (
        "INSERT INTO orders SELECT n, 'customer ' || n % 1000, (n % 10000) + 0.25,"
        " '2026-01-01'::timestamptz + n * interval '1 s'"
        f" FROM generate_series({start}, {end - 1}) n"
    )


def _rate(name, how, rows, target, took_s):
    what = f"for 1000 rows that are {how} ({rows} rows of four columns in {took_s:.1f} s)"
    return Figure(name, what, "ms", 1_000_000 / target, took_s * 1_000_000 / rows)
