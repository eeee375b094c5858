"""Metrics: families out of a snapshot, and what a coordinator says when it is scraped."""

import threading
from dataclasses import replace
from itertools import count

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import NoSpark, Place
from tests.support.waiting import PATIENCE

from slackwater.adapter.catalog.details import MaterializedViewDetails, SinkDetails, TableDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.controllers.dataflows import OfReplica
from slackwater.adapter.sessions.statement_counts import StatementCounts, StatementTotals
from slackwater.adapter.sources.changefeed_sources import CheckpointProgress
from slackwater.adapter.sources.checkpoint_counts import CheckpointTotals
from slackwater.adapter.system.exposition import Kind
from slackwater.adapter.system.metric_families import (
    FAMILIES,
    MetricsSnapshot,
    Totals,
    metrics_text,
)
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.adapter.system.snapshot import ObjectFrontiers, SystemSnapshot
from slackwater.adapter.time.watch import Cancellation, FrontierWatch
from slackwater.adapter.writing.group_commit import CommitTotals
from slackwater.compute.logs import records_of, rows_of
from slackwater.compute.records import (
    ArrangementMemory,
    FailureCount,
    TickRecord,
    TickRecords,
    TickTimes,
    TickTotals,
)
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.persist.usage import ShardUsage
from slackwater.repr.durations import Durations
from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.hlc import Time
from slackwater.repr.ids import user_id
from slackwater.storage.ingestion import (
    PartitionOffsets,
    SourceStatistics,
    SourceStatus,
    StatusChange,
)
from slackwater.storage.sink_files import SinkConfig
from slackwater.storage.sink_statistics import SinkStatistics

T, S, MV, OUT, GONE = (user_id(number) for number in (10, 11, 13, 15, 99))
NAME = '<b>"\\\n' + "x" * 200
VIEW = MaterializedViewDetails("SELECT 1", "slackwater", ("default",), errors=7)
ONE = Durations().and_one(0.02)


def entry(global_id, name, kind, *uses, **rest):
    return CatalogItem(global_id, kind, "default", name, "CREATE", depends_on=uses, **rest)


@pytest.fixture
def snapshot():
    items = [
        entry(T, NAME, ItemKind.TABLE, details=TableDetails(), shard_id=6),
        entry(S, "s", ItemKind.SOURCE),
        entry(MV, "mv", ItemKind.MATERIALIZED_VIEW, T, S, details=VIEW),
        entry(OUT, "out", ItemKind.SINK, MV, details=SinkDetails(SinkConfig("/", "JSON"), 0)),
    ]
    uppers = {T: Frontier(5001), S: Frontier(4001), MV: Frontier(3001), OUT: Frontier(2000)}
    everywhere = dict.fromkeys((S, OUT, GONE), ONE)
    system = SystemSnapshot(
        CatalogState.of(
            [SchemaEntry(user_id(1), "default", ""), *system_schemas()], [*items, *system_items()]
        ),
        6001,
        frontiers={each: ObjectFrontiers(Frontier(0), upper) for each, upper in uppers.items()},
        hydrated={MV: {"r1": False, "r2": True}},
        statuses={
            S: StatusChange(1, S, SourceStatus("stalled", "bad row")),
            OUT: StatusChange(1, OUT, SourceStatus("running")),
        },
        source_partitions=dict.fromkeys((S, GONE), (PartitionOffsets(0, 9, 12),)),
        source_statistics=dict.fromkeys((S, GONE), SourceStatistics(7, 70, dead_letters=2)),
        sink_statistics=dict.fromkeys((OUT, GONE), SinkStatistics(3, 2, 30, 20, 4, 1)),
        read_holds=(
            ReadHold(1, frozenset({T, S}), Timestamp(0), Holder(HoldKind.VIEW, MV)),
            ReadHold(2, frozenset({T, GONE}), Timestamp(0), Holder(HoldKind.STATEMENT, "x")),
        ),
        usage=(
            ShardUsage(6, False, False, 2, 20, 400, 3),
            ShardUsage(7, False, False, 1, 1, 50, 0),
            ShardUsage(8, True, False, 1, 1, 10, 5),
        ),
    )
    ticks = tuple(
        OfReplica(
            "r2", TickTotals(each, ONE, Durations(), 5, 6, 7, (FailureCount("SLACKWATER_X", 2),))
        )
        for each in (MV, GONE)
    )
    progress = CheckpointProgress(Time(3 * 10**9), Time(5 * 10**9), 1)
    return MetricsSnapshot(
        system,
        epoch=4,
        totals=Totals(
            StatementTotals({("select", "success"): 3}, {"select": ONE}, {"select": ONE}),
            CommitTotals(ONE, {"SLACKWATER_X": 1}),
            CheckpointTotals(
                {(w, each): ONE for w in ("advance", "commit", "refresh") for each in everywhere},
                dict.fromkeys(everywhere, 1),
                dict.fromkeys(everywhere, 2),
            ),
            ticks,
            everywhere,
        ),
        answers={"metastore": True, "driver": False},
        failing=frozenset({MV, GONE}),
        shards={T: (6,), MV: (7,)},
        memory=(OfReplica("r2", ArrangementMemory("memory", 90, 100)),),
        checkpoints=dict.fromkeys((S, GONE), progress),
        retained_bytes=dict.fromkeys((S, GONE), 11 * 10**9),
    )


def series(text):
    """The value of each series, by its name and its labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def values(text, name, /, **labels):
    """The values of the series with this name and these labels among theirs."""
    found = series(text).items()
    return [v for (n, own), v in found if n == name and labels.items() <= dict(own).items()]


def test_each_family_keeps_to_the_rules_of_names():
    names = [each.name for each in FAMILIES]
    assert len(set(names)) == len(names)
    for each in FAMILIES:
        assert each.name.startswith("slackwater_")
        assert each.name.endswith("_total") == (each.kind is Kind.COUNTER), each.name
        if each.kind is Kind.HISTOGRAM:
            assert each.name.endswith("_seconds")
        assert each.help.endswith((".", "1.")), each.name
        assert not {"name", "schema"} & {*each.labels} or each.name == "slackwater_object_info"


def test_each_family_says_something_and_nothing_of_what_is_gone(snapshot):
    text = metrics_text(snapshot)
    families = {each.name: each for each in text_string_to_metric_families(text.decode())}
    assert set(families) == {each.name.removesuffix("_total") for each in FAMILIES}
    for each in FAMILIES:
        found = families[each.name.removesuffix("_total")]
        assert (found.type, found.documentation) == (each.kind.value, each.help)
        for sample in found.samples:
            assert {*sample.labels} - {"le"} == {*each.labels}, each.name
    assert f'"{GONE}"' not in text.decode()


def test_without_objects_there_is_nothing_of_them(snapshot):
    empty = replace(snapshot.system, catalog=CatalogState.of(system_schemas(), system_items()))
    assert b"object_id" not in metrics_text(replace(snapshot, system=empty))


def test_names_are_data(snapshot):
    (value,) = values(
        metrics_text(snapshot),
        "slackwater_object_info",
        object_id=T,
        name=NAME,
        schema="default",
        type="table",
    )
    assert value == 1


@pytest.mark.parametrize(
    ("name", "labels", "wanted"),
    [
        ("leader", {"epoch": "4"}, 1),
        ("wallclock_lag_seconds", {"object_id": S}, 2),
        ("materialization_lag_seconds", {"object_id": MV}, 1),
        ("hydrated", {"object_id": MV}, 1),
        ("read_holds", {"object_id": T}, 2),
        ("view_failing", {"object_id": MV}, 1),
        ("view_failures_total", {"object_id": MV, "condition": "SLACKWATER_X"}, 2),
        ("tick_duration_seconds_count", {"object_id": MV, "mode": "follow"}, 1),
        ("tick_duration_seconds_bucket", {"object_id": MV, "le": "0.005"}, 0),
        ("tick_duration_seconds_bucket", {"object_id": MV, "le": "0.025"}, 1),
        ("tick_rows_total", {"object_id": MV, "kind": "scanned"}, 5),
        ("tick_rows_total", {"object_id": MV, "kind": "looked_up"}, 6),
        ("tick_rows_total", {"object_id": MV, "kind": "emitted"}, 7),
        ("arrangement_bytes", {"where": "memory"}, 90),
        ("statements_total", {"statement_type": "select", "status": "success"}, 3),
        ("shard_bytes", {"object_id": MV}, 50),
        ("garbage_bytes", {"object_id": T}, 3),
        ("dropped_bytes", {}, 15),
        ("source_dead_letters_total", {"object_id": S}, 3),
        ("source_partition_offset_committed", {"object_id": S, "partition": "0"}, 9),
        ("source_partition_offset_known", {"object_id": S, "partition": "0"}, 12),
        ("source_status", {"object_id": S, "status": "stalled"}, 1),
        ("postgres_slot_retained_bytes", {"object_id": S}, 11 * 10**9),
        ("checkpoint_committed_age_seconds", {"object_id": S}, 3.001),
        ("checkpoint_proposed_timestamp_seconds", {"object_id": S}, 5),
        ("sink_messages_total", {"object_id": OUT}, 2),
        ("sink_frontier_timestamp_seconds", {"object_id": OUT}, 2),
        ("kafka_transactions_total", {"object_id": OUT, "outcome": "aborted"}, 1),
        ("scrape_part_answers", {"part": "driver"}, 0),
    ],
)
def test_values(snapshot, name, labels, wanted):
    (found,) = values(metrics_text(snapshot), f"slackwater_{name}", **labels)
    assert found == pytest.approx(wanted)


def test_what_is_complete_for_ever_is_not_behind(snapshot):
    frontiers = {OUT: ObjectFrontiers(None, EMPTY_FRONTIER)}
    text = metrics_text(replace(snapshot, system=replace(snapshot.system, frontiers=frontiers)))
    assert values(text, "slackwater_wallclock_lag_seconds") == [0]
    assert values(text, "slackwater_sink_frontier_timestamp_seconds") == []


def test_ticks_are_totalled_until_they_are_forgotten():
    records = TickRecords()
    tick = TickRecord(MV, 0, 1, 0, True, 3, 2, TickTimes(0, 0, 20_000, 0, 0))
    records.add(tick)
    records.add(replace(tick, by_program=False))
    records.failed(MV, "A")
    records.failed(MV, "A")
    (total,) = records.totals()
    assert (total.followed, total.recomputed) == (ONE, ONE)
    assert (total.scanned, total.looked_up, total.emitted) == (6, 0, 4)
    assert total.failures == (FailureCount("A", 2),)
    records.add(replace(tick, global_id=T))
    found = records.totals()
    # As a replica says them, with failures and without.
    assert records_of(rows_of(found), TickTotals) == found
    for each in (MV, T):
        records.forget(each)
    assert records.totals() == []


def test_waits_of_a_statement_are_summed():
    seconds = count()
    watch, ends = FrontierWatch(lambda: next(seconds)), Cancellation()
    for _ in range(2):
        assert watch.wait_until(lambda: True, 10, ends)
    assert ends.waited_s == 0
    looks = iter([False, False, True])
    assert watch.wait_until(lambda: next(looks), 10, ends)
    # From its beginning to its end the clock is read twice more.
    assert ends.waited_s == 3


def test_a_statement_that_is_canceled_is_no_error():
    counts = StatementCounts(lambda: 0)
    for error in (user_error("SLACKWATER_CANCELED"), ValueError()):
        with pytest.raises(type(error)), counts.counted("select", Cancellation()):
            raise error
    with pytest.raises(ValueError, match="inside"), counts.counted(None, Cancellation()):
        raise ValueError("inside")
    assert counts.totals().ended == {("select", "canceled"): 1, ("select", "error"): 1}


def test_transactions_of_kafka_are_summed_over_writers():
    one = SinkStatistics(1, 1, 2, 2).and_transaction(committed=True)
    both = one.and_more(SinkStatistics().and_transaction(committed=False))
    assert (both.transactions_committed, both.transactions_aborted) == (1, 1)
    assert both.messages_committed == 1


# A coordinator without Spark


class Driver(NoSpark):
    """Has no arrangements; hangs while `answers` is not set."""

    def __init__(self):
        self.answers = threading.Event()
        self.answers.set()

    def arrangement_memory(self):
        assert self.answers.wait(PATIENCE)
        return (ArrangementMemory("memory", 1, 2), ArrangementMemory("files", 0, 8))


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def place(env, driver, monkeypatch):
    # A busy machine may let nobody answer for seconds.
    monkeypatch.setattr("slackwater.adapter.system.metrics.ANSWER_S", PATIENCE)
    driver.place = None
    place = Place(env, spark=driver)
    yield place
    driver.answers.set()
    place.close()


def scraped(place):
    return place.coordinator.metrics()


def statements(place, **labels):
    return sum(values(scraped(place), "slackwater_statements_total", **labels))


def test_statements_are_counted_as_they_end(place):
    place.table("t", k="integer")
    place.write("t", {"k": 1}, sql="INSERT INTO t VALUES (1)")
    place.write("t", {"k": 2})
    place.read("t")
    place.sql("SHOW VIEWS")
    with pytest.raises(SlackwaterError):
        place.sql("DROP VIEW nothing")
    for kind in ("create_table", "insert", "dataframe_write", "dataframe", "show"):
        assert statements(place, statement_type=kind, status="success") == 1
    assert statements(place, statement_type="drop_view", status="error") == 1
    assert statements(place) == 6
    (took,) = values(scraped(place), "slackwater_statement_seconds_sum", statement_type="dataframe")
    (waited,) = values(
        scraped(place), "slackwater_statement_wait_seconds_sum", statement_type="dataframe"
    )
    assert 0 <= waited <= took


def test_the_shim_gets_the_same(place):
    place.table("t", k="integer")
    text = calls_of(place.coordinator)["/v1/metrics"]({}).text
    named = {name for name, _ in series(text)}
    assert named == {name for name, _ in series(scraped(place))}


def test_nothing_stays_of_what_was_dropped(place):
    place.table("t", k="integer")
    place.write("t", {"k": 1})
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    ids = [place.item(name).id for name in ("t", "c", "c_progress")]
    place.wait(lambda: values(scraped(place), "slackwater_source_status", status="running") == [1])
    before = scraped(place).decode()
    assert all(f'"{each}"' in before for each in ids)
    place.drop("t")
    place.sql("DROP SOURCE c")
    after = scraped(place).decode()
    assert not any(f'"{each}"' in after for each in ids)


def test_a_driver_that_hangs_leaves_only_its_own_out(place, driver, monkeypatch):
    monkeypatch.setattr("slackwater.adapter.system.metrics.ANSWER_S", 0.01)
    place.table("t", k="integer")
    driver.answers.clear()
    text = scraped(place)
    assert values(text, "slackwater_scrape_part_answers", part="driver") == [0]
    assert values(text, "slackwater_arrangement_bytes") == []
    assert len(values(text, "slackwater_shard_bytes")) == 1
    driver.answers.set()
    place.wait(lambda: values(scraped(place), "slackwater_arrangement_bytes", where="files") == [0])


def test_a_metastore_that_is_away_leaves_only_its_own_out(place, monkeypatch):
    place.table("t", k="integer")

    def away(_):
        raise user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="1", reason="gone")

    monkeypatch.setattr("slackwater.adapter.system.metrics.usage", away)
    text = scraped(place)
    assert values(text, "slackwater_scrape_part_answers", part="metastore") == [0]
    assert values(text, "slackwater_shard_bytes") == []
    assert len(values(text, "slackwater_wallclock_lag_seconds")) == 1
