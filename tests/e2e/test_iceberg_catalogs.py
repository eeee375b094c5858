"""Catalogs of Iceberg that are a metastore of Hive, or a service of AWS: sinks and sources."""

from __future__ import annotations

from contextlib import contextmanager

import pyarrow as pa
import pytest
from tests.support.applications.application import SqlError
from tests.support.iceberg.lakes import insisting
from tests.support.iceberg.signed import signed_server
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY
from tests.support.waiting import wait_until

from slackwater.adapter.external import libraries
from slackwater.adapter.external.iceberg_catalogs import opened
from slackwater.storage.access import IcebergAccess

pytestmark = pytest.mark.spark

BUCKET_OF_TABLES = "arn:aws:s3tables:us-east-1:123456789012:bucket/shop"
INTERVAL = "WITH (COMMIT INTERVAL '200 ms')"


@contextmanager
def hive(java, s3):
    yield IcebergAccess("hive", java.metastore, None)


@contextmanager
def glue(java, s3):
    warehouse = f"s3://{s3.new_bucket()}/tables"
    yield IcebergAccess("glue", s3.endpoint, warehouse, aws=s3.access)


@contextmanager
def s3tablesrest(java, s3):
    with signed_server(java.url, ACCESS_KEY, SECRET_KEY) as server:
        yield IcebergAccess("s3tablesrest", server.url, BUCKET_OF_TABLES, aws=s3.access)
        assert server.refused == 0


@pytest.fixture(
    params=[pytest.param(hive, marks=pytest.mark.nightly), glue, s3tablesrest],
    ids=lambda each: each.__name__,
)
def access(request, iceberg_java, s3):
    with request.param(iceberg_java, s3) as found:
        yield found


def connect(place, access, s3):
    """Makes and tries the connection `lake`."""
    options = [f"CATALOG TYPE {access.catalog_type}", f"URL '{access.url}'"]
    if access.warehouse is not None:
        options.append(f"WAREHOUSE '{access.warehouse}'")
    if access.aws is not None:
        place.sql(f"CREATE SECRET key AS '{SECRET_KEY}'")
        place.sql(
            f"CREATE CONNECTION aws TO AWS (REGION 'us-east-1', ENDPOINT '{s3.endpoint}', "
            f"ACCESS KEY ID '{ACCESS_KEY}', SECRET ACCESS KEY SECRET key)"
        )
        options.append("AWS CONNECTION aws")
    place.sql(f"CREATE CONNECTION lake TO ICEBERG CATALOG ({', '.join(options)})")


def test_a_table_is_written_beside_others_and_read(workplace, access, s3):
    place = workplace
    connect(place, access, s3)
    catalog = opened(libraries.pyiceberg(), access, None)
    namespace = place.schema.lower().replace("-", "_")

    def named(table, within=""):
        place = f"NAMESPACE '{within}{namespace}', TABLE '{table}'"
        return f"ICEBERG CATALOG CONNECTION lake ({place})"

    def follows(*expected):
        def has_rows():
            found = catalog.load_table((namespace, "t")).scan().to_arrow().to_pylist()
            rows = [(row["k"], row["v"], row["_mz_diff"]) for row in found]
            return sorted(rows, key=str) == sorted(expected, key=str)

        wait_until(has_rows, what="the table has the rows")

    def append(table, rows):
        insisting(lambda: catalog.load_table((namespace, table)).append(rows))

    place.sql("CREATE TABLE t (k INT NOT NULL, v STRING)")
    place.sql("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    place.sql(f"CREATE SINK s FROM t INTO {named('t')} MODE APPEND {INTERVAL}")
    first = ((1, "a", 1), (2, None, 1))
    follows(*first)
    place.sql("UPDATE t SET v = 'b' WHERE k = 2")
    changed = ((2, None, -1), (2, "b", 1))
    follows(*first, *changed)
    schema = catalog.load_table((namespace, "t")).schema().as_arrow()
    append("t", pa.Table.from_pylist([{"k": 9, "v": "theirs"}], schema))
    place.sql("DELETE FROM t WHERE k = 1")
    follows(*first, *changed, (1, "a", -1), (9, "theirs", None))

    made = pa.table({"k": pa.array([1, 2], pa.int64())})
    catalog.create_table((namespace, "other"), made.schema)
    append("other", made)
    place.sql(f"CREATE SOURCE o FROM {named('other')} WITH (TIMESTAMP INTERVAL '100 ms')")
    place.sql("CREATE MATERIALIZED VIEW total AS SELECT sum(k) AS n FROM o")
    assert place.value("SELECT n FROM total") == 3
    append("other", made)
    wait_until(lambda: place.value("SELECT n FROM total") == 6, what="the source follows")
    with pytest.raises(SqlError, match=r"SLACKWATER_INVALID_OPTION.*have one part"):
        place.sql(f"CREATE SINK x FROM t INTO {named('t', 'a.')} MODE APPEND")


def test_requests_have_to_be_signed_by_the_right_key(workplace, iceberg_java, s3):
    with signed_server(iceberg_java.url, ACCESS_KEY, "another") as server:
        access = IcebergAccess("s3tablesrest", server.url, BUCKET_OF_TABLES, aws=s3.access)
        with pytest.raises(SqlError, match=r"SLACKWATER_CONNECTION_FAILED.*permission") as caught:
            connect(workplace, access, s3)
        assert SECRET_KEY not in str(caught.value)
        assert server.refused > 0
