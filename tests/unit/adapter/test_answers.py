"""What statements and system relations say is what is."""

from __future__ import annotations

import pytest
from tests.support.adapter.coordination import Place

from slackwater.repr.errors import SlackwaterError


@pytest.fixture
def place(env):
    opened = Place(env)
    yield opened
    opened.close()


def names(found):
    return [next(iter(row.values())) for row in found]


NAME_A_CLUSTER = (
    "CREATE MATERIALIZED VIEW v IN CLUSTER {} AS SELECT 1",
    "CREATE SOURCE s IN CLUSTER {} FROM LOAD GENERATOR COUNTER",
    "CREATE SINK s IN CLUSTER {} FROM t INTO FILES (PATH 'p', FORMAT JSON)",
    "SHOW SOURCES IN CLUSTER {}",
    "SHOW SINKS IN CLUSTER {} LIKE 's'",
    "SHOW MATERIALIZED VIEWS IN CLUSTER {}",
    "SHOW INDEXES IN CLUSTER {}",
    "SHOW OBJECTS FROM default IN CLUSTER {}",
    "SET cluster = '{}'",
    "SET slackwater.cluster TO '{}'",
)


@pytest.mark.parametrize("cluster", ["big", "default", "`Big`"])
def test_another_cluster_than_the_only_one_is_refused(place, cluster):
    place.table("t", k="long")
    name = cluster.strip("`")
    for statement in NAME_A_CLUSTER:
        with pytest.raises(SlackwaterError) as refused:
            place.sql(statement.format(name if "'{}'" in statement else cluster))
        assert refused.value.condition == "SLACKWATER_UNKNOWN_CLUSTER", statement
        assert name in refused.value.message
        assert "quickstart" in refused.value.message


@pytest.mark.parametrize("cluster", ["quickstart", "`QuickStart`"])
def test_the_only_cluster_filters_what_runs_on_it(place, tmp_path, cluster):
    place.table("t", k="long")
    place.sql(
        f"CREATE SOURCE s IN CLUSTER {cluster} FROM LOAD GENERATOR COUNTER (UP TO 1)"
        " EXPOSE PROGRESS AS p"
    )
    place.sql(
        f"CREATE SINK out IN CLUSTER {cluster} FROM t INTO FILES (PATH '{tmp_path}', FORMAT JSON)"
    )
    assert names(place.sql("SHOW OBJECTS")) == ["out", "p", "s", "t"]
    assert names(place.sql(f"SHOW OBJECTS IN CLUSTER {cluster}")) == ["out", "p", "s"]
    assert names(place.sql(f"SHOW SOURCES IN CLUSTER {cluster}")) == ["p", "s"]
    assert names(place.sql(f"SHOW SINKS IN CLUSTER {cluster}")) == ["out"]
    assert names(place.sql(f"SHOW INDEXES IN CLUSTER {cluster}")) == []
    place.sql(f"SET cluster = {cluster}")
    assert place.sql("SHOW cluster") == [{"cluster": "quickstart"}]


def test_indexes_of_a_relation_that_is_not_there(place):
    place.table("t", k="long")
    assert place.sql("SHOW INDEXES ON t") == []
    with pytest.raises(SlackwaterError, match="nothing") as refused:
        place.sql("SHOW INDEXES ON nothing")
    assert refused.value.condition == "SLACKWATER_UNKNOWN_RELATION"
