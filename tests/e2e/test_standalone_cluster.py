"""A cluster of Spark's own: a master, two workers, executors in processes of their own."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
from importlib import resources
from pathlib import Path

import pytest
from tests.support.applications.application import Application, SqlError, coordinators, descendants
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

SPARK = Path(str(resources.files("pyspark")))
ROWS = 60_000
CONF = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Both executors are there before the first statement.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "90s",
    "spark.driver.maxResultSize": "1m",
}


class Daemon:
    """A process of the cluster. `said` waits for a line of its log."""

    def __init__(self, folder, name, *arguments):
        self._log = folder / f"{name}.log"
        environment = {
            **os.environ,
            "SPARK_HOME": str(SPARK),
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                ["bash", str(SPARK / "bin" / "spark-class"), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )

    def said(self, pattern):
        def found():
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            return re.search(pattern, self._log.read_text())

        return wait_until(found, what=pattern)

    def close(self):
        for pid in [self._process.pid, *descendants(self._process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """The URL of a master that two workers have joined."""
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as running:

        def start(name, main, *arguments):
            daemon = Daemon(
                folder,
                name,
                f"org.apache.spark.deploy.{main}",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                *arguments,
            )
            running.callback(daemon.close)
            return daemon

        url = start("master", "master.Master").said(r"spark://127\.0\.0\.1:\d+")[0]
        workers = [
            start(
                f"worker-{number}",
                "worker.Worker",
                *("--cores", "2", "--memory", "2g", "--work-dir", str(folder / f"work-{number}")),
                url,
            )
            for number in range(2)
        ]
        for worker in workers:
            worker.said("Successfully registered with master")
        yield url


@pytest.fixture(scope="module")
def application(master, tmp_path_factory):
    location = tmp_path_factory.mktemp("shared") / "environment"
    with Application(location, master=master, conf=CONF) as started:
        started.sql("USE slackwater")
        yield started


@pytest.mark.nightly
def test_a_folder_that_executors_do_not_see_is_refused(master, tmp_path):
    # For each process it is another folder: the one that it runs in.
    location = "/proc/self/cwd/environment"
    with Application(
        location, master=master, conf=CONF, folder=tmp_path / "driver", alone=True
    ) as elsewhere:
        with pytest.raises(SqlError) as refused:
            elsewhere.sql("CREATE TABLE slackwater.default.t (k INT)")
        assert refused.value.condition == "SLACKWATER_LOCATION_NOT_SHARED"
        assert refused.value.sqlstate == "22023"
        assert location in refused.value.message
        assert "s3://" in refused.value.message
        # Each executor was asked.
        assert re.search(r"executor 0 on \S+, 1 on ", refused.value.message)
        assert coordinators(location) == []
        # Nobody has been made the leader, and nothing is left of the search.
        folder = tmp_path / "driver" / "environment"
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
        assert elsewhere.value("SELECT count(*) FROM range(10)") == 10


@pytest.mark.nightly
def test_executors_write_and_read_files(application):
    application.sql("CREATE TABLE written (k BIGINT NOT NULL, g INT, v STRING)")
    application.sql(
        "INSERT INTO written SELECT id, cast(id % 10 AS INT), concat('v', id)"
        f" FROM range(0, {ROWS}, 1, 4)"
    )
    assert application.rows("SELECT count(*), sum(k) FROM written") == [
        [ROWS, ROWS * (ROWS - 1) // 2]
    ]
    application.sql("DELETE FROM written WHERE k < 5")
    application.sql("UPDATE written SET v = 'changed' WHERE k BETWEEN 10 AND 19")
    application.sql("UPDATE written SET g = -1 WHERE g = 9")
    application.sql(
        "MERGE INTO written t USING (SELECT id AS k FROM range(20, 40)) s ON t.k = s.k"
        " WHEN MATCHED THEN DELETE"
    )
    left = [k for k in range(5, ROWS) if not 20 <= k < 40]
    assert application.rows(
        "SELECT count(*), sum(k), count_if(v = 'changed'), count_if(g = -1) FROM written"
    ) == [[len(left), sum(left), 10, sum(k % 10 == 9 for k in left)]]
    assert application.rows("SELECT k FROM written WHERE k < 22 ORDER BY k LIMIT 3") == [
        [5],
        [6],
        [7],
    ]


@pytest.mark.nightly
def test_views_are_maintained_by_executors(application):
    application.sql("CREATE TABLE facts (g INT, n BIGINT)")
    application.sql("CREATE TABLE names (g INT, name STRING)")
    application.sql("INSERT INTO names SELECT id, concat('g', id) FROM range(10)")
    application.sql(
        "CREATE MATERIALIZED VIEW sums AS SELECT name, count(*) AS c, sum(n) AS n"
        " FROM facts JOIN names USING (g) GROUP BY name"
    )
    application.sql(
        f"INSERT INTO facts SELECT cast(id % 10 AS INT), id FROM range(0, {ROWS}, 1, 4)"
    )
    application.sql("INSERT INTO facts VALUES (0, 5), (11, 7)")
    application.sql("DELETE FROM names WHERE g = 3")
    expected = [
        [f"g{g}", ROWS // 10 + (g == 0), sum(range(g, ROWS, 10)) + 5 * (g == 0)]
        for g in range(10)
        if g != 3
    ]
    assert application.rows("SELECT name, c, n FROM sums ORDER BY name") == expected


def test_executors_keep_what_a_view_looks_up_until_the_driver_has_read_it(application):
    """Of a table with three megabytes more than the driver takes of a job."""
    application.sql(
        "CREATE TABLE texts AS SELECT id AS k, sha2(CAST(id AS STRING), 256) AS s"
        f" FROM range(0, {ROWS}, 1, 4)"
    )
    application.sql("CREATE TABLE marks AS SELECT id AS k, 'a' AS m FROM range(10)")
    application.sql(
        "CREATE MATERIALIZED VIEW marked AS SELECT k, s, m FROM texts JOIN marks USING (k)"
    )
    assert application.value("SELECT count(*) FROM marked") == 10
    application.sql(f"INSERT INTO marks VALUES ({ROWS - 1}, 'b')")
    ((text, mark),) = application.rows(f"SELECT s, m FROM marked WHERE k = {ROWS - 1}")
    assert (text, mark) == (hashlib.sha256(str(ROWS - 1).encode()).hexdigest(), "b")
    steps = application.rows("EXPLAIN ANALYZE FOR MATERIALIZED VIEW marked")
    assert "indexed" in {step[7] for step in steps}
