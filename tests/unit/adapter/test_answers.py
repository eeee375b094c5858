"""What statements and system relations say is what is."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.planner.planned import Answers

from slackwater.repr.clock import wall_clock_ms
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


def definitions(place, relation):
    """The definition and its redacted form of each object of the user's, by name."""
    return {
        row["name"]: (row["create_sql"], row["redacted_create_sql"])
        for row in place.system(relation)
        if row["id"].startswith("u")
    }


def test_redacted_definitions_have_no_literals(place, tmp_path):
    place.table("t", k="long")
    (tmp_path / "secret").mkdir()
    place.sql("CREATE SOURCE many FROM LOAD GENERATOR AUCTION (SEED 7373) FOR ALL TABLES")
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, INCLUDE HEADER 'secret' AS h)")
    place.sql(f"CREATE SINK out FROM t INTO FILES (PATH '{tmp_path}/secret', FORMAT JSON)")
    seen = {**definitions(place, "mz_sources"), **definitions(place, "mz_sinks")}
    assert {"many", "bids", "w", "out"} <= set(seen)
    for text, hidden in seen.values():
        assert "secret" in text or "7373" in text
        assert "'<REDACTED>'" in hidden
        assert "secret" not in hidden
        assert "7373" not in hidden


def test_definitions_say_what_is_after_a_change(place, tmp_path):
    place.table("t", k="long")
    place.sql("CREATE SOURCE was FROM LOAD GENERATOR AUCTION FOR ALL TABLES EXPOSE PROGRESS AS p")
    place.sql("CREATE SOURCE hook FROM WEBHOOK (BODY FORMAT TEXT)")
    place.sql(f"CREATE SINK out FROM t INTO FILES (PATH '{tmp_path}', FORMAT JSON)")
    place.sql("ALTER SOURCE was RENAME TO now")
    place.sql("ALTER SOURCE now SET (RETAIN HISTORY FOR '5 hours')")
    place.sql("ALTER SINK out RENAME TO put")
    place.sql("ALTER SOURCE hook SET (RETAIN HISTORY FOR '6 hours')")
    for _ in range(2):
        sources = definitions(place, "mz_sources")
        for name in ("now", "bids", "p"):
            assert "`now`" in sources[name][0], name
            assert "'5 hours'" in sources[name][0], name
            shown = place.sql(f"SHOW CREATE SOURCE {name}")[0]["create_sql"]
            assert shown == sources[name][0]
        assert "'6 hours'" in sources["hook"][0]
        assert "`put`" in definitions(place, "mz_sinks")["put"][0]
        place.restart()
    place.sql("ALTER SOURCE now RESET (RETAIN HISTORY)")
    assert "RETAIN" not in definitions(place, "mz_sources")["bids"][0]


def test_notices_have_the_time_and_the_name_that_they_were_given(env):
    passed_ms = [0]
    place = Place(env, clock=lambda: wall_clock_ms() + passed_ms[0])
    place.sql("SHOW ALL")
    for hours in range(1, 103):
        passed_ms[0] = hours * 3_600_000
        place.sql("COMMIT")
        if hours == 2:
            first = place.system("mz_notices")
    begun = place.system("mz_sessions")[0]["connected_at"]
    told = place.system("mz_notices")
    times = [row["created_at"] for row in told]
    assert first[0]["created_at"] - begun >= timedelta(hours=1)
    assert all(timedelta(hours=1) <= b - a < timedelta(hours=2) for a, b in pairwise(times))
    # Old ones go, and the others keep their names.
    assert len(told) == 100
    assert len({row["id"] for row in [*first, *told]}) == 102
    place.close()


def test_a_session_keeps_its_connection(place):
    for session in ("app/1", "app/2", "app/3"):
        place.sql("SHOW ALL", session)
    before = {row["id"]: row["connection_id"] for row in place.system("mz_sessions")}
    assert len(set(before.values())) == 3
    place.env.sessions.close("app/1")
    place.sql("SHOW ALL", "app/4")
    now = {row["id"]: row["connection_id"] for row in place.system("mz_sessions")}
    assert {session: now[session] for session in ("app/2", "app/3")} == {
        session: before[session] for session in ("app/2", "app/3")
    }
    assert len(set(now.values())) == 3
    # The next coordinator calls it the same.
    place.restart()
    place.sql("SHOW ALL", "app/3")
    assert place.system("mz_sessions")[0]["connection_id"] == before["app/3"]


def explained(place):
    """What EXPLAIN TIMESTAMP says of a query over `t`, outside of Spark."""
    text = "EXPLAIN TIMESTAMP AS JSON FOR SELECT k FROM t"
    document = json.loads(place.sql(text)[0]["Timestamp"])
    chosen = document["determination"]["timestamp_context"]["TimelineTimestamp"]["chosen_ts"]
    return chosen, document["determination"]["constraints"]


def bound_time(place, name):
    bound = calls_of(place.coordinator)["/v1/bind"](
        {"session": "app/1", "relations": [{"id": place.item(name).id}]}
    )
    calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})
    return bound["timestamp"]


@pytest.mark.parametrize("level", ["STRICT SERIALIZABLE", "SERIALIZABLE"])
def test_explain_in_a_block_tells_the_time_of_the_block(env, level):
    place = Place(env, spark=Answers())
    place.table("t", k="integer")
    place.sql(f"BEGIN ISOLATION LEVEL {level}")
    time = bound_time(place, "t")
    later = place.write("t", {"k": 1}, session="app/2")
    assert later > time
    chosen, constraints = explained(place)
    assert (chosen, bound_time(place, "t")) == (time, time)
    assert {"bound": [time], "reason": "Transaction"} in constraints["lower"]
    assert constraints["upper"] == [{"bound": [time], "reason": "Transaction"}]
    # A time of its own is that.
    text = f"EXPLAIN TIMESTAMP FOR SELECT k FROM t AS OF {later}"
    assert f"{later}" in place.sql(text)[0]["Timestamp"].splitlines()[0]
    place.sql("COMMIT")
    assert explained(place)[0] >= later
    place.close()


def test_explain_in_a_block_is_refused_as_the_read_would_be(env):
    place = Place(env, spark=Answers())
    place.table("t", k="integer")
    for ask in (explained, lambda place: bound_time(place, "t")):
        place.sql("BEGIN")
        place.write("t", {"k": 1}, mode="append")
        with pytest.raises(SlackwaterError) as refused:
            ask(place)
        assert refused.value.condition == "SLACKWATER_WRITE_ONLY_TRANSACTION"
        place.sql("ROLLBACK")
    place.close()


def statuses(logged, item):
    """What the log says of an object's status, from one line to the next."""
    found = [each for each in logged if each["event"] == "status" and each["object"] == item.id]
    return [each["status"] for each in found]


def test_the_log_says_how_each_object_is(env, tmp_path):
    rows, out = tmp_path / "in", tmp_path / "out"
    rows.mkdir()
    (rows / "1.csv").write_text("k\n1\n")
    with capture_logs() as logged:
        place = Place(env)
        place.table("t", k="integer")
        place.sql(
            f"CREATE SOURCE s FROM FILES (PATH '{rows}', FORMAT CSV, HEADER, ON ERROR STALL)"
            " WITH (TIMESTAMP INTERVAL '10ms')"
        )
        place.sql(f"CREATE SINK o FROM t INTO FILES (PATH '{out}', FORMAT JSON)")
        source, sink = place.item("s"), place.item("o")
        place.wait(lambda: statuses(logged, source) == ["starting", "running"])
        (rows / "2.csv").write_text("k\nx\n")
        place.wait(lambda: statuses(logged, source) == ["starting", "running", "stalled"])
        (rows / "2.csv").unlink()
        place.wait(lambda: statuses(logged, source)[3:] == ["running"])
        place.wait(lambda: statuses(logged, sink) == ["running"])
        place.close()
        del logged[:]
        place.start()
        place.wait(lambda: statuses(logged, source) == ["starting", "running"])
        place.wait(lambda: statuses(logged, sink) == ["running"])
        assert "paused" not in [each.get("status") for each in logged]
        place.close()
