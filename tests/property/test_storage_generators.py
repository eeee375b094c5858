"""Load generators: whole references, repeatable, and resumable at any step."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.storage.generators import (
    MAX_MISSED_TICKS,
    GeneratedTables,
    GeneratorConfig,
    GeneratorIngestion,
    exports,
)
from slackwater.storage.ingestion import IngestionProgress

NOW = 1_700_000_000_000
TINY = 0.00001
PAUSES = st.lists(st.integers(0, 4000), min_size=1, max_size=30)


def run(config, pauses, cuts=frozenset()):
    """All updates by export, one list for each step; the process ends after the steps in `cuts`."""
    ingestion, reached, now = GeneratorIngestion(config), (None, None), NOW
    steps = []
    for number, pause in enumerate(pauses):
        now += pause
        if number in cuts:
            ingestion.poll(now)  # a step that is lost before its commit
            ingestion = GeneratorIngestion(config, *reached)
        step = ingestion.poll(now)
        if step is not None:
            ingestion.committed(step)
            reached = (step.frontier, step.state)
            steps.append({name: table.to_pylist() for name, table in step.updates.items()})
    return steps


@histories()
@given(
    st.sampled_from(["COUNTER", "AUCTION", "CLOCK", "TPCH"]),
    st.integers(0, 5),
    PAUSES,
    st.sets(st.integers(0, 30)),
)
def test_cut_and_resumed_equals_uninterrupted(kind, seed, pauses, cuts):
    config = GeneratorConfig(kind, seed=seed, max_cardinality=3, scale_factor=TINY)
    assert run(config, pauses, cuts) == run(config, pauses)


@histories()
@given(st.integers(0, 5), PAUSES)
def test_auction_references_are_whole_after_every_step(seed, pauses):
    ids = {name: set() for name in exports("AUCTION")}
    for step in run(GeneratorConfig("AUCTION", seed=seed), pauses):
        for name, rows in step.items():
            new = [row["id"] for row in rows]
            assert ids[name].isdisjoint(new)
            assert len(set(new)) == len(new)
            ids[name] |= set(new)
        for name, column, target in [
            ("users", "org_id", "organizations"),
            ("accounts", "org_id", "organizations"),
            ("auctions", "seller", "users"),
            ("bids", "buyer", "users"),
            ("bids", "auction_id", "auctions"),
        ]:
            assert {row[column] for row in step.get(name, [])} <= ids[target]


def _count(contents, step):
    """Adds the updates of a step to the contents of its exports."""
    for name, table in step.updates.items():
        for *row, diff in zip(*table.to_pydict().values(), strict=True):
            contents[name][tuple(row)] += diff


@histories()
@given(
    st.sampled_from(["AUCTION", "TPCH"]),
    st.lists(
        st.tuples(
            st.sampled_from(["poll", "poll", "lose", "crash", "add", "drop", "long pause"]),
            st.integers(0, 4000),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_a_generated_table_that_comes_later_has_what_one_from_the_begin_has(kind, history):
    config = GeneratorConfig(kind, scale_factor=TINY)
    names = list(exports(kind))
    wanted = {f"{name}_0": name for name in names}
    everything = {name: Counter() for name in names}
    contents, begun, reached, now = {}, set(), (None, None), NOW

    def resumed():
        tables = GeneratedTables(lambda: dict(wanted), frozenset(begun))
        return GeneratorIngestion(config, *reached, tables)

    ingestion, whole = resumed(), GeneratorIngestion(config)
    for number, (action, pause, place) in enumerate([*history, ("poll", 1000, 0)]):
        now += pause * (100 if action == "long pause" else 1)
        if action == "add":
            wanted[f"t_{number}"] = names[place]
        elif action == "drop":
            wanted.pop(f"{names[place]}_0", None)
        if action == "crash":
            ingestion = resumed()
        step = ingestion.poll(now)
        while isinstance(step, IngestionProgress):
            step = ingestion.poll(now)
        if step is None:
            continue
        if step.frontier != reached[0]:
            same = whole.poll(now)
            assert same.frontier == step.frontier
            _count(everything, same)
            whole.committed(same)
        for name in step.statistics.begun:
            assert name not in begun
            contents[name] = Counter()
        begun.update(step.statistics.begun)
        assert step.updates.keys() <= contents.keys()
        _count(contents, step)
        reached = (step.frontier, step.state)
        if action == "lose":
            ingestion = resumed()  # the answer of the commit was lost
        else:
            ingestion.committed(step)
        for name in begun & wanted.keys():
            assert contents[name] == everything[wanted[name]]
    assert begun >= wanted.keys()


def test_seeds_differ():
    def first(seed):
        return run(GeneratorConfig("AUCTION", seed=seed), [0])

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_bids_come_while_their_auction_is_open():
    config = GeneratorConfig("AUCTION")
    steps = run(config, [0] + [1000] * 40)
    auctions = {r["id"]: r for step in steps for r in step.get("auctions", [])}
    bids = [r for step in steps for r in step.get("bids", [])]
    assert len(bids) == 36
    assert all(bid["bid_time"] < auctions[bid["auction_id"]]["end_time"] for bid in bids)


@histories()
@given(PAUSES, st.integers(1, 5), st.integers(1, 20))
def test_counter_against_its_definition(pauses, cardinality, up_to):
    config = GeneratorConfig("COUNTER", max_cardinality=cardinality, up_to=up_to)
    held = []
    for step in run(config, pauses):
        for row in step["counter"]:
            if row["__diff"] > 0:
                held.append(row["counter"])
            else:
                held.remove(row["counter"])
    last = min(up_to, sum(pauses[1:]) // 1000 + 1)
    assert held == list(range(max(1, last - cardinality + 1), last + 1))


def test_a_counter_says_that_it_is_done_after_a_restart_too():
    config = GeneratorConfig("COUNTER", up_to=2)
    ingestion = GeneratorIngestion(config)
    ingestion.committed(ingestion.poll(NOW))
    step = ingestion.poll(NOW + 5000)
    assert step.status.status == "ceased"
    ingestion.committed(step)
    assert ingestion.poll(NOW + 6000) is None
    again = GeneratorIngestion(config, step.frontier, step.state)
    step = again.poll(NOW + 9000)
    assert (step.updates, step.status.status) == ({}, "ceased")


@histories()
@given(PAUSES)
def test_a_clock_shows_one_row(pauses):
    held = set()
    for step in run(GeneratorConfig("CLOCK"), pauses):
        for row in sorted(step["clock"], key=lambda row: row["__diff"]):
            if row["__diff"] > 0:
                held.add(row["time"])
            else:
                held.remove(row["time"])
        assert len(held) == 1


def test_a_long_pause_is_not_made_up_for_in_full():
    ingestion = GeneratorIngestion(GeneratorConfig("COUNTER"))
    ingestion.committed(ingestion.poll(NOW))
    step = ingestion.poll(NOW + 86_400_000)
    assert len(step.updates["counter"]) == MAX_MISSED_TICKS
    ingestion.committed(step)
    assert ingestion.poll(NOW + 86_400_000) is None
    assert len(ingestion.poll(NOW + 86_401_000).updates["counter"]) == 1


@pytest.mark.parametrize("kind", ["COUNTER", "AUCTION", "CLOCK", "TPCH"])
def test_tables_have_the_declared_schema(kind):
    step = GeneratorIngestion(GeneratorConfig(kind)).poll(NOW)
    for name, table in step.updates.items():
        expected = exports(kind)[name].arrow_schema()
        assert table.schema == expected.append(pa.field("__diff", pa.int64(), False))


def test_tpch_without_a_tick_interval_stays_as_it_is():
    config = GeneratorConfig("TPCH", tick_interval_ms=None, scale_factor=TINY)
    ingestion = GeneratorIngestion(config)
    step = ingestion.poll(NOW)
    assert step.status.status == "running"
    ingestion.committed(step)
    assert ingestion.poll(NOW + 86_400_000) is None
    assert GeneratorIngestion(config, step.frontier, step.state).poll(NOW + 1000) is None
