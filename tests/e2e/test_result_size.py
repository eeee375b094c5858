"""`max_query_result_size`: a query ends before the driver has more rows than the session wants."""

import pytest
from tests.support.applications.application import SqlError

pytestmark = pytest.mark.spark

ROWS = 20_000
LIMIT = 200_000
"""In bytes: more than what one of eight files has, and less than half of all rows."""

TOO_MUCH = {
    "all rows": "SELECT * FROM wide",
    "a sorted result": "SELECT * FROM wide ORDER BY g, k",
    "a join": "SELECT a.k, b.g FROM wide a JOIN wide b ON a.k = b.k",
    "a LIMIT": f"SELECT * FROM wide LIMIT {ROWS - 1}",
    "an ordered LIMIT": f"SELECT * FROM wide ORDER BY g, k LIMIT {ROWS - 1}",
    "rows of one task": "SELECT /*+ COALESCE(1) */ * FROM wide",
    "groups": "SELECT k, count(*) FROM wide GROUP BY k",
}

FRAMES = f"""
wide = spark.table("slackwater.{{schema}}.wide")
narrow = spark.table("slackwater.{{schema}}.narrow")
actions = dict(
    collect=lambda frame: frame.collect(),
    head=lambda frame: frame.head({ROWS}),
    tail=lambda frame: frame.tail({ROWS}),
    pandas=lambda frame: frame.toPandas(),
    arrow=lambda frame: frame.toArrow(),
)
result = []
for name, action in actions.items():
    spark.sql("SET slackwater.max_query_result_size = '{LIMIT} B'").collect()
    frame = wide.select("*")
    try:
        refused = str(len(action(frame)))
    except Exception as error:
        refused = str(error)
    few = len(action(narrow))
    spark.sql("SET slackwater.max_query_result_size = '1 GB'").collect()
    result.append([name, refused, few, len(action(frame))])
"""
"""Each action on a frame of too many rows, on few rows, and on that frame under another limit."""

OUTSIDE = f"""
import tempfile
spark.sql("SET slackwater.max_query_result_size = '{LIMIT} B'").collect()
wide = spark.table("slackwater.{{schema}}.wide")
wide.write.parquet(tempfile.mkdtemp() + "/written")
cached = spark.table("slackwater.{{schema}}.wide").cache()
result = [
    sum(1 for _ in wide.toLocalIterator()),
    wide.rdd.count(),
    cached.count(),
    wide.localCheckpoint().count(),
    wide.selectExpr("max(k) + 1").collect()[0][0],
]
cached.unpersist()
spark.sql("RESET slackwater.max_query_result_size").collect()
"""


@pytest.fixture(scope="module")
def place(workplace_of_file):
    place = workplace_of_file
    place.sql(f"CREATE TABLE wide AS SELECT id AS k, id % 7 AS g FROM range(0, {ROWS}, 1, 8)")
    place.sql("CREATE TABLE narrow AS SELECT * FROM range(100)")
    return place


@pytest.mark.parametrize("query", TOO_MUCH.values(), ids=TOO_MUCH)
def test_more_rows_than_the_session_wants_are_an_error(place, query):
    place.sql(f"SET slackwater.max_query_result_size = '{LIMIT} B'")
    try:
        with pytest.raises(SqlError) as refused:
            place.sql(query)
    finally:
        place.sql("RESET slackwater.max_query_result_size")
    assert (refused.value.condition, refused.value.sqlstate) == ("SLACKWATER_RESULT_SIZE", "53200")
    assert f"more than {LIMIT} bytes" in str(refused.value)
    assert len(place.rows(query)) >= ROWS - 1


def test_each_way_to_the_driver_is_limited(place):
    seen = place.application.python(FRAMES.format(schema=place.schema))
    for action, refused, few, all_rows in seen:
        assert "SLACKWATER_RESULT_SIZE" in refused, (action, refused)
        assert (few, all_rows) == (100, ROWS), action


def test_what_does_not_come_to_the_driver_is_not_limited(place):
    assert place.application.python(OUTSIDE.format(schema=place.schema)) == [ROWS] * 5
    place.sql(f"SET slackwater.max_query_result_size = '{LIMIT} B'")
    place.sql("CREATE TABLE again AS SELECT * FROM wide")
    place.sql("INSERT INTO again SELECT k + 1000000, g FROM wide")
    place.sql("RESET slackwater.max_query_result_size")
    assert place.value("SELECT count(*) FROM again") == 2 * ROWS
