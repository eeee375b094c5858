"""What is measured. Each function takes an empty folder and yields results."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import sqlite3
import statistics
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from tests.bench import (
    changefeed_figures,
    checkpoint_figures,
    cluster_figures,
    collection_figures,
    compute_figures,
    console_figures,
    history_figures,
    index_figures,
    kafka_beside_figures,
    kafka_figures,
    kafka_sink_figures,
    lake_sink_figures,
    lake_source_figures,
    large_figures,
    metrics_figures,
    persist_figures,
    postgres_figures,
    thrift_figures,
    tick_figures,
    view_figures,
    webhook_figures,
)
from tests.bench.figure import Figure
from tests.support.applications.application import Application, coordinators, stat

from slackwater.controller.holds import Holder, HoldKind
from slackwater.repr.frontier import Frontier
from slackwater.repr.ids import user_id
from slackwater.repr.read_policy import LagWriteFrontier
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    Table,
)

WARM_UP = 15
ROUNDS = 60
SCAN_ROWS = 10_000_000
IDLE_S = 30
COLLECTIONS = 10_000
HOLDER = Holder(HoldKind.STATEMENT, "bench/1")
MASTER = "local[2]"


class Coordinator:
    """Calls the coordinator directly, as the shim does."""

    def __init__(self, location):
        with sqlite3.connect(location / "metastore.sqlite") as metastore:
            address, token_file = metastore.execute(
                "SELECT address, token_file FROM leaders ORDER BY epoch DESC LIMIT 1"
            ).fetchone()
        self._connection = http.client.HTTPConnection(urlsplit(address).netloc)
        self._token = Path(token_file).read_text()

    def call(self, path, body):
        """The answer, and how long the coordinator says that it took, in milliseconds."""
        answer, took_ms = self.ask(path, body)
        return json.loads(answer), took_ms

    def scrape(self):
        """The metrics as text, and how long the coordinator says that they took."""
        answer, took_ms = self.ask("/v1/metrics", {})
        return answer.decode(), took_ms

    def ask(self, path, body):
        """The bytes of an answer, and the milliseconds."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        self._connection.request("POST", path, json.dumps(body), headers)
        response = self._connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        return answer, float(response.headers["Server-Timing"].partition("dur=")[2])


def inserts(folder):
    """A single row, acknowledged; and the coordinator's part of it, called directly."""
    location = folder / "environment"
    with Application(location, master=MASTER) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t (k INT, v STRING)")
        times = [
            application.sql(f"INSERT INTO t VALUES ({number}, 'value')").ms
            for number in range(WARM_UP + ROUNDS)
        ]
        yield Figure("insert_p50", "acknowledged INSERT of one row, p50", "ms", 60, p50(times))
        coordinator = Coordinator(location)
        (table,) = object_ids(application, "t")
        parts = [
            coordinator.call("/v1/write", write_of_one_row(table, number))[1]
            for number in range(WARM_UP + ROUNDS)
        ]
        yield Figure("write_p50", "of it inside the coordinator, p50", "ms", 10, p50(parts))


def write_of_one_row(table, number):
    rows = pa.table({"k": pa.array([number], pa.int32()), "v": ["value"]})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    return {
        "session": "bench/1",
        "write_id": f"00000000-0000-4000-8000-{number:012d}",
        "hold": None,
        "table": table,
        "mode": "append",
        "inline": [base64.b64encode(stream.getvalue()).decode()],
        "files": [],
    }


def binds(folder):
    """The call that chooses a time for a query over 100 collections."""
    location = folder / "environment"
    with Application(location, master=MASTER) as application:
        application.sql("USE slackwater.default")
        names = [f"t{number}" for number in range(100)]
        for name in names:
            application.sql(f"CREATE TABLE {name} (k INT)")
            application.sql(f"INSERT INTO {name} VALUES (1)")
        coordinator = Coordinator(location)
        relations = [{"id": each, "as_of": None} for each in object_ids(application, *names)]
        times = []
        for number in range(WARM_UP + ROUNDS):
            answer, took = coordinator.call(
                "/v1/bind",
                {
                    "session": "bench/1",
                    "execution": str(number),
                    "relations": relations,
                    "as_of": None,
                    "write_targets": [],
                },
            )
            times.append(took)
            coordinator.call("/v1/release", {"session": "bench/1", "holds": [answer["hold"]]})
        yield Figure(
            "bind_p50", "bind of 100 collections inside the coordinator, p50", "ms", 5, p50(times)
        )


def scans(folder):
    """A full scan of a large collection against Spark's own of the same files."""
    location = folder / "environment"
    with Application(location, master=MASTER) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE big (k BIGINT, v DOUBLE, s STRING, d DATE)")
        application.sql(
            "INSERT INTO big SELECT /*+ COALESCE(1) */ id, id * 0.5D, concat('name ', id % 1000), "
            f"date_add(DATE '2013-01-01', cast(id % 365 AS INT)) FROM range({SCAN_ROWS})",
            timeout_s=300,
        )
        files = [path for path in location.rglob("*.parquet") if path.stat().st_size > 2**20]
        paths = ", ".join(repr(str(path)) for path in files)
        application.python(f"spark.read.parquet({paths}).createOrReplaceTempView('plain')")
        query = "SELECT count(*), sum(k), sum(v), max(s), min(d) FROM {}"
        assert application.rows(query.format("big")) == application.rows(query.format("plain"))
        ours, plain = [], []
        for _ in range(9):
            ours.append(application.sql(query.format("big")).ms)
            plain.append(application.sql(query.format("plain")).ms)
        ratio = statistics.median(ours[2:]) / statistics.median(plain[2:])
        yield Figure(
            "scan_ratio", "full scan of 10 million rows, against plain Parquet", "x", 1.15, ratio
        )


def visible(folder):
    """From the INSERT's beginning to the answer of a read of a view that depends on it."""
    location = folder / "environment"
    with Application(location, master=MASTER) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2))")
        application.sql("CREATE TABLE customers (id INT, country STRING)")
        application.sql("INSERT INTO customers SELECT id, concat('c', id % 50) FROM range(1000)")
        application.sql(
            "INSERT INTO orders SELECT id, id % 1000, cast(id % 77 AS DECIMAL(10,2)) "
            "FROM range(100000)"
        )
        application.sql(
            "CREATE MATERIALIZED VIEW revenue AS SELECT c.country, count(*) AS n, "
            "sum(o.amount) AS amount FROM orders o JOIN customers c ON o.customer = c.id "
            "GROUP BY c.country"
        )
        total = application.value("SELECT sum(n) FROM revenue")
        times = []
        for number in range(WARM_UP + ROUNDS):
            written = application.sql(f"INSERT INTO orders VALUES ({number}, {number}, 1.5)")
            read = application.sql("SELECT sum(n) FROM revenue")
            total += 1
            assert read.rows == [[total]]
            times.append(written.ms + read.ms)
        yield Figure(
            "visible_p50", "INSERT until a view over a join shows it, p50", "ms", 500, p50(times)
        )


def idle(folder):
    """Processor time of an environment in which nothing happens."""
    location = folder / "environment"
    with Application(location, master=MASTER) as application:
        application.sql("USE slackwater.default")
        for number in range(100):
            application.sql(f"CREATE TABLE t{number} (k INT)")
        for number in range(20):
            application.sql(
                f"CREATE MATERIALIZED VIEW v{number} AS "
                f"SELECT k, count(*) AS n FROM t{number} GROUP BY k"
            )
        for number in range(20):
            application.sql(f"SELECT * FROM v{number}")
        pids = [application.jvm(), *coordinators(location)]
        pause = threading.Event()
        pause.wait(5)
        before, began = processor_s(pids), time.monotonic()
        pause.wait(IDLE_S)
        share = (processor_s(pids) - before) / (time.monotonic() - began) * 100
        yield Figure("idle", "idle with 100 tables and 20 views, of one core", "%", 3, share)


def start(folder):
    """The first statement of a session, and plain SQL with the jar."""
    with (
        Application(folder / "with" / "environment", master=MASTER) as ours,
        Application(folder / "without" / "environment", master=MASTER, jar=False) as plain,
    ):
        with_jar, without = [], []
        for _ in range(7):
            with_jar.append(median_of_select(ours))
            without.append(median_of_select(plain))
        yield Figure(
            "plain_ratio",
            "SELECT 1 with the jar, against without",
            "x",
            1.1,
            statistics.median(with_jar) / statistics.median(without),
        )
        first = ours.sql("CREATE TABLE slackwater.default.t (k INT)").ms / 1000
    yield Figure("first_statement", "first statement of a session", "s", 8, first)


def controller_core(folder):
    """The storage controller without its shell: commands, and the tick of many collections."""
    ids = [user_id(number) for number in range(COLLECTIONS)]
    core = StorageController(DurableState(dict(enumerate(ids))), Frontier(5_000))
    core.create_collections(
        [(each, CollectionDescription(Table())) for each in ids],
        {
            each: CollectionMetadata(shard, Frontier(1), Frontier(0), shares_tables_upper=True)
            for shard, each in enumerate(ids)
        },
    )
    core.set_read_policy([(each, LagWriteFrontier(1_001)) for each in ids])
    began, count = time.perf_counter(), 0
    for each in ids:
        core.update_write_frontiers([(each, Frontier(core.capabilities.tables_upper.value + 1))])
        hold = core.capabilities.acquire([each], HOLDER)
        hold = core.capabilities.holds.downgrade(hold, Frontier(hold.since + 5))
        core.set_read_policy([(each, LagWriteFrontier(1_000))])
        core.process()
        core.capabilities.holds.release(hold)
        count += 6
    each_us = (time.perf_counter() - began) * 1e6 / count
    yield Figure("controller_core", "controller core, one command", "us", 50, each_us)
    ticks = []
    for _ in range(WARM_UP + ROUNDS):
        began = time.perf_counter()
        core.capabilities.advance_tables(Frontier(core.capabilities.tables_upper.value + 1_000))
        core.process()
        ticks.append((time.perf_counter() - began) * 1000)
    yield Figure("core_tick", f"tick of {COLLECTIONS} idle collections", "ms", 100, p50(ticks))


FIGURES = {
    "inserts": inserts,
    "binds": binds,
    "scans": scans,
    "index_reads": index_figures.index_reads,
    "history": history_figures.history,
    "hundred_million": large_figures.hundred_million,
    "clusters": cluster_figures.clusters,
    "sustained": cluster_figures.sustained,
    "thrift_clients": thrift_figures.thrift_clients,
    "thrift_metadata": thrift_figures.metadata,
    "visible": visible,
    "idle": idle,
    "start": start,
    "commits": persist_figures.commits,
    "appends": persist_figures.appends,
    "compaction": persist_figures.compaction,
    "controller_core": controller_core,
    "compute_core": compute_figures.compute_core,
    "collections": collection_figures.collections,
    "console": console_figures.console_of_many,
    "attention": console_figures.attention,
    "checkpoints": checkpoint_figures.refreshes,
    "webhooks": webhook_figures.webhooks,
    "changefeeds": changefeed_figures.changefeeds,
    "kafka": kafka_figures.kafka,
    "kafka_beside": kafka_beside_figures.kafka_beside,
    "kafka_sink": kafka_sink_figures.kafka_sink,
    "delta_sink": lake_sink_figures.delta_sink,
    "iceberg_sink": lake_sink_figures.iceberg_sink,
    "delta_source": lake_source_figures.delta_source,
    "iceberg_source": lake_source_figures.iceberg_source,
    "postgres": postgres_figures.postgres,
    "many_views": view_figures.many_views,
    "hydration": view_figures.hydration,
    "retracted": view_figures.retracted,
    "chains": view_figures.chains,
    "small_ticks": tick_figures.small_ticks,
    "ticks": tick_figures.ticks,
    "scrape": lambda folder: metrics_figures.scrape(folder, lambda at: Coordinator(at).scrape),
    "counting": metrics_figures.counting,
}


def p50(times):
    return statistics.median(times[WARM_UP:])


def median_of_select(application):
    return statistics.median(application.sql("SELECT 1").ms for _ in range(ROUNDS))


def object_ids(application, *names):
    rows = application.rows("SELECT name, id FROM mz_catalog.mz_tables")
    ids = dict(rows)
    return [ids[name] for name in names]


def processor_s(pids):
    """Seconds of processor time that the processes have used."""
    ticks = 0
    for pid in pids:
        fields = stat(Path(f"/proc/{pid}"))
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
