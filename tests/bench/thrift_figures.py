"""What many clients of a Thrift server get, against a statement of Spark's own in one run."""

from __future__ import annotations

import statistics
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tests.bench.figure import Figure
from tests.bench.index_figures import VALUES
from tests.support.applications.application import Application
from tests.support.applications.class_archive import SHORT_LIVED
from tests.support.applications.spark_servers import server

CLIENTS = 16
ROUNDS = 6
WARM_UP = 1
ROUND_MS = 5000
OBJECTS = 10_000
OBJECTS_AT_ONCE = 1000
COLUMNS = "(k BIGINT, a STRING, b TIMESTAMP, c DOUBLE, d DECIMAL(10, 2), e DATE)"
POINT = "SELECT v FROM slackwater.default.few WHERE k = 1"


@dataclass(frozen=True, slots=True)
class Round:
    """What all clients together got of one statement."""

    answers: int
    p50_us: int
    p99_us: int
    longest_us: int

    @property
    def per_second(self):
        return self.answers * 1000 / ROUND_MS


def thrift_clients(folder):
    """Sixteen clients that read one row by an index, and one of Spark's VALUES, by turns."""
    location = folder / "environment"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE few (k INT, v STRING)")
        application.sql("INSERT INTO few VALUES (1, 'a'), (2, 'b')")
        application.sql("CREATE INDEX ON few (k)")
    with server("thriftserver", location, folder) as served:
        ours, plain = (rounds[WARM_UP:] for rounds in asked(served.port, POINT, VALUES))
    rates = [statistics.median(each.per_second for each in rounds) for rounds in (ours, plain)]
    yield Figure(
        "thrift_reads_ratio",
        f"{CLIENTS} Thrift clients: reads of Spark's VALUES a second, against reads by an index",
        "x",
        1 / 0.75,
        rates[1] / rates[0],
    )
    yield Figure(
        "thrift_longest",
        "the longest that one of them waited, against the median",
        "x",
        10,
        statistics.median(each.longest_us / each.p50_us for each in ours),
    )
    p99_ms = statistics.median(each.p99_us for each in ours) / 1000
    what = f"99 of 100 of their reads, of which there are {rates[0]:.0f} a second"
    yield Figure("thrift_p99", what, "ms", 100, p99_ms)


def metadata(folder):
    """A tool that reads all tables, and all columns, of ten thousand tables by JDBC."""
    location = folder / "environment"
    with Application(location, master="local[2]") as application:
        application.sql("USE slackwater.default")
        for first in range(0, OBJECTS, OBJECTS_AT_ONCE):
            tables = ", ".join(
                f"t{number} {COLUMNS} KEY (k)" for number in range(first, first + OBJECTS_AT_ONCE)
            )
            application.sql(
                f"CREATE SOURCE s{first} FROM CHANGEFEED (FORMAT COCKROACH, FEEDS ('a'))"
                f" FOR TABLES ({tables})"
            )
    with server("thriftserver", location, folder) as served:
        rounds = drawn(served.port)[WARM_UP:]
    for name, at in (("tables", 0), ("columns", 1)):
        rows = rounds[0][at + 2]
        took_ms = statistics.median(each[at] for each in rounds) / 1000
        yield Figure(f"thrift_metadata_{name}", f"{rows} {name} by JDBC", "ms", 1000, took_ms)


def drawn(port):
    """For each round: microseconds for tables and for columns, and how many these were."""
    lines = java("MetadataClient.java", port, WARM_UP + ROUNDS)
    return [tuple(map(int, line.split())) for line in lines]


def asked(port, *statements):
    """For each statement what each round of the clients got."""
    found = defaultdict(list)
    numbers = [CLIENTS, WARM_UP + ROUNDS, ROUND_MS]
    for line in java("ThriftClients.java", port, *numbers, *statements):
        statement, *values = map(int, line.split())
        found[statement].append(Round(*values))
    return [found[number] for number in range(len(statements))]


def java(source, port, *arguments):
    """The lines that a program beside this file prints, about the server at `port`."""
    jars = Path(str(resources.files("pyspark"))) / "jars"
    path = Path(__file__).with_name(source)
    url = f"jdbc:hive2://127.0.0.1:{port}"
    done = subprocess.run(
        ["java", *SHORT_LIVED.split(), "-cp", f"{jars}/*", str(path), url, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
