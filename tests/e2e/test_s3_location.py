"""An environment whose files are in S3.

Hadoop's file system for S3 is no part of Spark. `make hadoop` fetches it and the few modules of the
AWS SDK that it needs; the variable SLACKWATER_HADOOP_AWS names another folder of jars.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.applications.application import ROOT, Application, SqlError
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

JARS = Path(os.environ.get("SLACKWATER_HADOOP_AWS") or ROOT / ".hadoop-aws")
LARGE = "INSERT INTO t SELECT id, concat('v', id % 7) FROM range(60000)"
VIEW = "SELECT v, count(*) AS n FROM t GROUP BY v"


STORE_SETTINGS = """
hadoop = spark.sparkContext._jsc.hadoopConfiguration()
keys = ("endpoint", "endpoint.region", "access.key", "secret.key", "path.style.access")
result = str([hadoop.get(f"fs.s3a.{key}") for key in keys])
"""
"""What every part of the application is told of stores; Spark takes some from the variables."""


def on_s3(s3, location, metastore, folder, *, by_conf=False, jars=True):
    """An application that is told of the store by variables, or by Spark's settings."""
    conf = {"spark.jars": ",".join(map(str, hadoop_aws()))} if jars else {}
    hidden = dict.fromkeys(s3.environment, "")
    if by_conf:
        conf |= {
            "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
            "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
        }
    variables = {**hidden, **({} if by_conf else s3.environment), "XDG_STATE_HOME": str(folder)}
    return Application(location, metastore, conf=conf, folder=folder, variables=variables)


def hadoop_aws():
    """Hadoop's file system for S3, with what it needs and Spark lacks."""
    jars = sorted(JARS.glob("*.jar"))
    found = any(jar.name.startswith("hadoop-aws-") for jar in jars)
    assert found, f"no hadoop-aws in {JARS}: run make hadoop"
    return jars


def texts(folder):
    """All that was logged or left on the disk."""
    return {path: path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.nightly
def test_tables_and_views_live_there(s3, tmp_path):
    """The first application is told of the store by Spark's settings, the second by variables."""
    bucket = s3.new_bucket()
    location = f"s3://{bucket}/an/environment"
    where = (s3, location, f"sqlite:///{tmp_path}/metastore.sqlite", tmp_path)
    with on_s3(*where, by_conf=True) as application:
        before = application.python(STORE_SETTINGS)
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t (k BIGINT, v STRING)")
        application.sql(f"CREATE MATERIALIZED VIEW m AS {VIEW}")
        application.sql(LARGE)
        application.sql("INSERT INTO t VALUES (-1, 'v0')")
        application.sql("DELETE FROM t WHERE k % 10 = 3")
        shown = application.rows("EXPLAIN EXTENDED SELECT * FROM t")
        shown += application.rows("SET")
        assert ACCESS_KEY not in str(application.rows("EXPLAIN EXTENDED SELECT * FROM t"))
        assert SECRET_KEY not in str(shown)
        assert application.python(STORE_SETTINGS) == before
        expected = sorted(application.rows(VIEW))
        assert sum(row[1] for row in expected) == 54_001
        wait_until(lambda: sorted(application.rows("SELECT * FROM m")) == expected, what="m")
    keys = [info.path for info in s3.files().get_file_info(selector(bucket)) if info.is_file]
    assert any("/an/environment/shards/" in key and "write-" in key for key in keys)
    folders = {key.removeprefix(f"{bucket}/an/environment/").partition("/")[0] for key in keys}
    # Lags are stored when a minute is over, or a leader ends.
    assert (
        {"shards", "history"}
        <= folders
        <= {
            "shards",
            "history",
            "history_of_lags",
            "history_of_dataflows",
        }
    )
    with on_s3(*where) as application:
        application.sql("USE slackwater.default")
        assert sorted(application.rows(VIEW)) == expected
        assert sorted(application.rows("SELECT * FROM m")) == expected
        application.sql("TRUNCATE TABLE t")
        assert application.value("SELECT count(*) FROM t") == 0
    for path, text in texts(tmp_path).items():
        assert SECRET_KEY not in text, path
    assert not any("token" in key or "log" in key for key in keys)


def selector(bucket):
    from pyarrow import fs

    return fs.FileSelector(bucket, recursive=True)


@pytest.mark.nightly
def test_what_is_missing_is_said(s3, tmp_path):
    location = f"s3://{s3.new_bucket()}/environment"
    with on_s3(s3, location, None, tmp_path, jars=False) as application:
        assert application.value("SELECT 1") == 1
        with pytest.raises(SqlError) as caught:
            application.sql("CREATE TABLE slackwater.default.t (k INT)")
        assert caught.value.condition == "SLACKWATER_S3_SUPPORT_MISSING"
        assert "org.apache.hadoop:hadoop-aws:3." in caught.value.message
        assert SECRET_KEY not in caught.value.message


@pytest.mark.nightly
def test_it_needs_a_metastore_elsewhere(s3, tmp_path):
    with (
        on_s3(s3, f"s3://{s3.new_bucket()}/environment", None, tmp_path) as application,
        pytest.raises(SqlError) as caught,
    ):
        application.sql("CREATE TABLE slackwater.default.t (k INT)")
    assert caught.value.condition == "SLACKWATER_METASTORE_REQUIRED"
