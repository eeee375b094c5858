"""Sources from their statement to their collections, across restarts, without Spark."""

import os
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.details import FilesDetails
from slackwater.adapter.reading.health import Health
from slackwater.adapter.sources.checkpoint_counts import CheckpointCounts
from slackwater.adapter.sources.source_states import HISTORY_KEPT, SourceStates
from slackwater.adapter.sources.source_steps import SourceSteps
from slackwater.adapter.writing.group_commit import Write
from slackwater.persist.parts import Uniform
from slackwater.persist.tables import source_states, source_status_history
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.ingestion import Reached, SourceStatistics, SourceStatus, StatusChange


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


def counted(place, name="ticks"):
    return sorted(row["counter"] for row in place.rows(name))


def test_i51_a_source_goes_on_after_a_restart_where_its_collections_end(place):
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms')")
    for _ in range(3):
        reached = len(counted(place))
        place.wait(lambda reached=reached: len(counted(place)) > reached + 3)
        place.restart()
    values = counted(place)
    assert values == list(range(1, len(values) + 1))


def test_i49_the_progress_says_at_each_time_how_far_the_source_was_read(place):
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms')")
    place.wait(lambda: len(counted(place)) > 8)
    place.restart()
    times = sorted({row["__time"] for row in place.updates("ticks")})
    assert len(times) > 1
    for time in times:
        (progress,) = place.rows("ticks_progress", time)
        assert progress == {"offset": len(place.rows("ticks", time))}
    bound = {row["__time"] for row in place.updates("ticks_progress")}
    assert set(times) <= bound


def test_i52_the_remap_can_be_read_behind_the_upper_of_its_exports(place):
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms')")
    place.wait(lambda: len(counted(place)) > 3)
    for _ in range(3):
        # The exports' upper first: it only moves on.
        upper = place.env.relations.upper(place.item("ticks"))
        assert place.env.relations.since(place.item("ticks_progress")) < upper
        place.env.committer.flush()


def test_exposed_progress_is_an_object_of_its_own_name(place):
    place.table("market_progress", k="long")
    place.sql("CREATE SOURCE market FROM LOAD GENERATOR AUCTION FOR ALL TABLES")
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR CLOCK EXPOSE PROGRESS AS clock_position")
    sources = {row["name"]: row["type"] for row in place.system("mz_sources")}
    assert sources["market_progress_1"] == sources["clock_position"] == "progress"
    assert (sources["market"], sources["bids"]) == ("load-generator", "subsource")
    shown = {row["name"]: row["type"] for row in place.sql("SHOW SOURCES")}
    assert shown["clock_position"] == "progress"
    edges = [
        (r["object_id"], r["referenced_object_id"]) for r in place.system("mz_object_dependencies")
    ]
    assert (place.item("c").id, place.item("clock_position").id) in edges
    with pytest.raises(SlackwaterError) as refused:
        place.sql("CREATE SOURCE d FROM LOAD GENERATOR CLOCK EXPOSE PROGRESS AS clock_position")
    assert refused.value.condition == "SLACKWATER_TABLE_ALREADY_EXISTS"
    with pytest.raises(SlackwaterError) as refused:
        place.sql("DROP SOURCE clock_position")
    assert refused.value.condition == "SLACKWATER_DEPENDENT_OBJECTS"
    place.sql("DROP SOURCE c")
    assert place.env.state.find("default", "clock_position") is None
    statuses = {row["name"]: row["status"] for row in place.system("mz_source_statuses")}
    assert statuses["bids"] == statuses["market_progress_1"] == statuses["market"] == "running"


def test_key_value_goes_on_after_a_restart_and_shows_each_partition(place):
    place.sql(
        "CREATE SOURCE kv FROM LOAD GENERATOR KEY VALUE (KEYS 12, PARTITIONS 3, SNAPSHOT ROUNDS 2,"
        " VALUE SIZE 5, BATCH SIZE 2, SEED 1, TICK INTERVAL '5ms')"
    )
    for _ in range(2):
        reached = sum(row["offset"] for row in place.rows("kv_progress"))
        place.wait(
            lambda reached=reached: (
                sum(row["offset"] for row in place.rows("kv_progress")) > reached + 20
            )
        )
        place.restart()
    upper = place.env.persist.reads.tables_upper() - 1
    progress = {row["partition"]: row["offset"] for row in place.rows("kv_progress", upper)}
    assert len(set(progress.values())) == 1
    rows = place.rows("kv", upper)
    assert sorted(row["key"] for row in rows) == list(range(12))
    for row in rows:
        # The last message of each key is one of the last round.
        assert progress[row["partition"]] - 4 <= row["offset"] < progress[row["partition"]]
        assert (row["key"] % 3, row["batch"]) == (row["partition"], row["offset"] // 2)


def test_tpch_has_its_tables_beside_it_and_goes_on_after_a_restart(place):
    place.sql(
        "CREATE SOURCE shop FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.0001, TICK INTERVAL '5ms')"
        " FOR ALL TABLES"
    )
    first = place.rows("orders")
    place.wait(lambda: place.rows("shop_progress")[0]["offset"] > 10)
    place.restart()
    upper = place.env.persist.reads.tables_upper() - 1
    keys = {row["o_orderkey"] for row in place.rows("orders", upper)}
    assert keys == {row["o_orderkey"] for row in first} == set(range(1, 151))
    assert {row["l_orderkey"] for row in place.rows("lineitem", upper)} == keys
    assert place.rows("orders", upper) != first


def test_a_large_snapshot_is_in_files_that_the_commit_only_registers(place):
    place.sql("CREATE SOURCE shop FROM LOAD GENERATOR TPCH (SCALE FACTOR 0.01) FOR ALL TABLES")
    shard = place.item("lineitem").shard_id
    (part,) = place.env.persist.reads.parts_at(shard, place.env.persist.reads.tables_upper() - 1)
    (row,) = place.rows("shop_progress")
    assert row == {"offset": 1}
    (bound,) = place.updates("shop_progress")
    assert part.body.uniform == Uniform(bound["__time"], 1)
    assert part.rows == len(place.rows("lineitem")) > 50_000


def test_statistics_and_history_outlive_the_process(place):
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms', UP TO 4)")
    source = place.item("ticks").id

    def last():
        return place.env.ingestion.status(source).status.status

    place.wait(lambda: last() == "ceased")
    place.wait(
        lambda: [r["status"] for r in place.system("mz_source_status_history")][-1] == "ceased"
    )
    (statistics,) = place.system("mz_source_statistics")
    assert (statistics["updates_committed"], statistics["offset_committed"]) == (4, 4)
    place.restart()
    place.wait(lambda: last() == "ceased")
    (again,) = place.system("mz_source_statistics")
    assert again == statistics
    place.wait(
        lambda: [r["status"] for r in place.system("mz_source_status_history")].count("ceased") > 1
    )
    history = [r["status"] for r in place.system("mz_source_status_history")]
    assert history.count("starting") == 2


def put(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{line}\n" for line in lines))
    os.utime(folder / name, (1000, 1000))


def refused(action):
    with pytest.raises(SlackwaterError) as error:
        action()
    return error.value


def test_errors_are_data_a_read_at_their_time_fails_as_a_whole(place, tmp_path):
    """Errors come and go at their times; before them and after them the rows can be read."""
    put(tmp_path / "in", "1.csv", "k", "1")
    place.sql(
        f"CREATE SOURCE f FROM FILES (PATH '{tmp_path}/in', FORMAT CSV, HEADER,"
        " ON ERROR PROPAGATE) WITH (TIMESTAMP INTERVAL '20ms')"
    )
    before = place.env.oracle.read_ts()
    assert place.read("f") == [{"k": 1}]
    put(tmp_path / "in", "2.csv", "k", "2", "bad", "4")
    place.wait(lambda: len(place.rows("f")) == 3)
    error = refused(lambda: place.read("f"))
    assert (error.condition, error.is_data_error) == ("SLACKWATER_SOURCE_ERROR", True)
    assert "2.csv, line 3" in error.message
    assert place.read("f", before) == [{"k": 1}]
    status = lambda: next(r for r in place.system("mz_source_statuses") if r["name"] == "f")  # noqa: E731
    place.wait(lambda: status()["status"] == "stalled")
    assert "2.csv, line 3" in status()["error"]
    # It goes on, across a restart too.
    place.restart()
    put(tmp_path / "in", "3.csv", "k", "5")
    place.wait(lambda: len(place.rows("f")) == 4)
    assert refused(lambda: place.read("f")).condition == "SLACKWATER_SOURCE_ERROR"
    place.wait(lambda: status()["status"] == "stalled")
    place.sql(f"CREATE SINK s FROM f INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    failed = lambda: {r["name"]: r["error"] for r in place.system("mz_sink_statuses")}["s"]  # noqa: E731
    place.wait(lambda: "2.csv, line 3" in (failed() or ""))
    # Retracted, they are gone from that time on, and only from then on.
    errors = place.item("f").errors_shard
    held = place.env.persist.reads.snapshot(errors, place.env.persist.reads.tables_upper() - 1)
    gone = held.append_column("__diff", pa.array([-1] * held.num_rows, pa.int64()))
    with_errors = place.env.oracle.read_ts()
    place.env.committer.submit(Write("retract", {errors: gone})).result()
    assert sorted(row["k"] for row in place.read("f")) == [1, 2, 4, 5]
    assert refused(lambda: place.read("f", with_errors)).condition == "SLACKWATER_SOURCE_ERROR"
    shards = set(place.env.persist.reads.shard_ids())
    place.sql("DROP SOURCE f CASCADE")
    assert errors in shards - set(place.env.persist.reads.shard_ids())


def changes(source, *errors):
    return [
        StatusChange(1000 + n, source, SourceStatus("stalled", error, {"n": n}))
        for n, error in enumerate(errors)
    ]


def test_the_history_is_bounded_and_late_messages_bring_nothing_back(place):
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR CLOCK")
    source = place.item("c").id
    sources = SourceStates(place.env.persist.transactions, place.env.committer)
    for start in range(0, HISTORY_KEPT + 40, 20):
        sources.record(changes(source, *(f"e{start + n}" for n in range(20))))
    kept = [c.status.error for c in sources.history() if c.source_id == source]
    assert len(kept) == HISTORY_KEPT
    assert f"e{HISTORY_KEPT + 39}" in kept
    assert "e0" not in kept
    place.sql("DROP SOURCE c")
    sources.record(changes(source, "late"))
    with pytest.raises(SlackwaterError, match="dropped"):
        SourceSteps(
            place.env.persist,
            place.env.catalog,
            sources,
            place.env.clock_ms,
            CheckpointCounts(),
            lambda ids, at: None,
            lambda: None,
        ).commit(source, Reached(), None)
    for table in (source_states, source_status_history):
        assert (
            place.env.persist.transactions.query(
                lambda conn, t=table: conn.execute(t.select()).all()
            )
            == []
        )


def test_reads_tell_once_of_a_source_that_has_stopped(place, tmp_path):
    put(tmp_path / "in", "1.csv", "k", "1")
    place.sql(
        f"CREATE SOURCE f FROM FILES (PATH '{tmp_path}/in', FORMAT CSV, HEADER)"
        " WITH (TIMESTAMP INTERVAL '20ms')"
    )
    place.table("apart", k="long")

    def told(*names):
        bind = calls_of(place.coordinator)["/v1/bind"]
        relations = [{"id": place.item(name).id} for name in names]
        bound = bind({"session": "app/1", "relations": relations})
        calls_of(place.coordinator)["/v1/release"]({"holds": [bound["hold"]]})
        return [notice["message"] for notice in bound["notices"]]

    assert told("f", "apart") == []
    put(tmp_path / "in", "2.csv", "k", "bad")
    source = place.item("f").id
    place.wait(lambda: place.env.ingestion.status(source).status.status == "stalled")
    assert told("apart") == []
    (message,) = told("f")
    assert "slackwater.default.f has stopped" in message
    assert "2.csv, line 2" in message
    assert told("f") == []
    put(tmp_path / "in", "2.csv", "k", "2")
    place.wait(lambda: len(place.rows("f")) == 2)
    assert told("f") == []


class Reading:
    """Has read so much of a source."""

    def __init__(self, source_id, **counts):
        self.counts = {source_id: SourceStatistics(**counts)}

    def status(self, source_id):
        return None

    def statistics(self):
        return self.counts


def test_who_waits_for_files_is_told_how_far_they_are(place):
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '5ms')")
    made = place.item("ticks")
    details = FilesDetails(FilesConfig("/in", Format("CSV")))
    item = replace(made, details=details)

    def told(**counts):
        webhooks = place.coordinator.parts.webhooks
        health = Health(Reading(item.id, **counts), webhooks, None, lambda: place.env.state, None)
        return health.waits_for(item)

    files = {"offset_committed": 3, "offset_known": 1200}
    assert told(**files) == "It has just begun."
    assert told(snapshot_records_staged=40, **files) == "It has read 3 of 1,200 files."
    known = {"snapshot_records_staged": 40, "snapshot_records_known": 5000}
    assert told(**known, **files) == "It has read 40 of 5,000 rows."
