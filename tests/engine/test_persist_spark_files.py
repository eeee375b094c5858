"""Files that Spark's executors wrote are read as the updates they stand for."""

from __future__ import annotations

import datetime
import decimal

import pytest

from slackwater.persist.blobs import LocalBlobs
from slackwater.persist.parts import FileBody, NewPart, Uniform
from slackwater.persist.reading import read
from slackwater.repr.relation import RelationDesc

pytestmark = pytest.mark.spark

QUERY = """
SELECT CAST(1 AS TINYINT) b, CAST(2 AS SMALLINT) s, 3 i, 4L l, 1.5F f, double('NaN') d, true t,
  'text' str, X'00FF' bin, DATE '1500-01-01' day, CAST(12.34 AS DECIMAL(5, 2)) small,
  CAST(-1.5 AS DECIMAL(38, 4)) large, TIMESTAMP '2024-05-01 12:00:00.123456' ts,
  TIMESTAMP_NTZ '2024-05-01 12:00:00.5' ntz, array(1, NULL) arr, map('k', array('v')) m,
  named_struct('x', 1, 'y', named_struct('z', array(map(1, 'q')))) st
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL
"""


@pytest.mark.parametrize("kind", ["INT96", "TIMESTAMP_MICROS"])
def test_all_types(spark, tmp_path, kind):
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    frame = spark.sql(QUERY)
    desc = RelationDesc.from_json(frame.schema.json())
    frame.coalesce(1).write.parquet(f"{tmp_path}/a b")
    (path,) = (tmp_path / "a b").glob("*.parquet")
    body = FileBody(path.as_uri(), path.stat().st_size, 0, Uniform(7, -1))
    part = NewPart(body, 2, 7, 7, True)
    blobs = LocalBlobs(tmp_path)
    updates = read([part], desc, blobs=blobs)
    updates.validate(full=True)
    assert updates.schema == desc.update_schema()
    full, empty = sorted(updates.to_pylist(), key=lambda row: row["i"] is None)
    assert (full["__time"], full["__diff"]) == (7, -1)
    assert full["d"] != full["d"]
    assert full["day"] == datetime.date(1500, 1, 1)
    assert (full["small"], full["large"]) == (decimal.Decimal("12.34"), decimal.Decimal("-1.5"))
    noon = datetime.datetime(2024, 5, 1, 12, 0, 0)
    assert full["ts"] == noon.replace(microsecond=123456, tzinfo=datetime.timezone.utc)
    assert full["ntz"] == noon.replace(microsecond=500000)
    assert full["arr"] == [1, None]
    assert full["m"] == [("k", ["v"])]
    assert full["st"] == {"x": 1, "y": {"z": [[(1, "q")]]}}
    assert {value for key, value in empty.items() if not key.startswith("__")} == {None}
    narrow = read([part], desc, blobs=blobs, columns=["m", "i"])
    assert narrow.column_names == ["m", "i", "__time", "__diff"]
    assert read([part], desc, blobs=blobs, columns=[]).num_rows == 2
    assert read([part], desc, blobs=blobs, upper=7).num_rows == 0
