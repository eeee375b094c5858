"""Whatever feeds repeat, hold back and begin again, transactions are there once and as a whole."""

import contextlib
import json
import re
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.changefeed_world import World, config_of
from tests.support.storage.changefeeds import Faults, Upstream, feeds_of

from slackwater.repr.relation import Column, RelationDesc
from slackwater.storage.changefeed.binding import BindingRules, BindingWindow, bind
from slackwater.storage.changefeed.encoding import offset
from slackwater.storage.changefeed.landing import dead_letter_rows, landed_rows
from slackwater.storage.changefeed.messages import BadMessage, MessageTarget, message_of
from slackwater.storage.changefeed.tables import FeedTable, Reader


@st.composite
def settings_of_a_source(draw):
    tables = draw(st.integers(1, 3))
    partitions = draw(st.integers(1, tables))
    return {
        "seed": draw(st.integers(0, 10**9)),
        "tables": tables,
        "partitions": partitions,
        "rounds": draw(st.integers(1, 12)),
        "lookahead": draw(st.none() | st.integers(1, 3)),
        "is_strict": draw(st.booleans()),
        "declared": draw(st.booleans()),
    }


def check(world, upstream, feeds):
    """What is bound is what the upstream had at the frontier, of the feeds that are in."""
    truth = upstream.contents(world.frontier)
    admitted = world.ingestion.progress.admitted
    for feed in feeds:
        for table in feed.tables:
            expected = truth[table] if feed.name in admitted else {}
            assert world.rows(table) == expected
    if len(admitted) == len(feeds) and world.frontier:
        held = (row["balance"] for table in upstream.tables for row in world.rows(table).values())
        assert sum(held) == upstream.total


@histories()
@given(settings_of_a_source())
def test_every_transaction_is_there_once_and_as_a_whole(chosen):
    random = Random(chosen["seed"])
    upstream = Upstream(chosen["seed"], chosen["tables"], accounts=3)
    feeds = feeds_of(upstream, chosen["partitions"], Faults(), chosen["seed"])
    declared = tuple(feed.name for feed in feeds) if chosen["declared"] else ()
    world = World(
        config_of(
            upstream.tables,
            feeds=declared,
            lookahead=chosen["lookahead"],
            is_strict=chosen["is_strict"],
        )
    )
    for _ in range(chosen["rounds"]):
        for _ in range(random.randint(0, 4)):
            upstream.transact()
        for feed in random.sample(feeds, len(feeds)):
            for message in feed.round(upstream):
                world.send(message)
                if random.random() < 0.3:
                    world.step(dies_before=random.random() < 0.2, dies_after=random.random() < 0.2)
                    check(world, upstream, feeds)
    for feed in feeds:
        for message in feed.round(upstream, is_last=True):
            world.send(message)
    while world.step():
        check(world, upstream, feeds)
    assert world.frontier == offset(upstream.now.next)
    assert set(world.ingestion.progress.admitted) == {feed.name for feed in feeds}
    check(world, upstream, feeds)
    live = sum(len(rows) for rows in upstream.contents(world.frontier).values())
    bound = [landed for landed, is_bound in world.landing if is_bound]
    assert len([each for each in bound if each.after is not None]) == live
    assert chosen["is_strict"] or len(bound) == live


@histories()
@given(settings_of_a_source())
def test_a_table_that_is_added_later_has_what_was_sent_before(chosen):
    """Its changes are dead letters, tried again whenever; the ends agree, whatever came between."""
    random = Random(chosen["seed"])
    upstream = Upstream(chosen["seed"], chosen["tables"], accounts=3)
    feeds = feeds_of(upstream, chosen["partitions"], Faults(), chosen["seed"])
    around = {"lookahead": chosen["lookahead"], "is_strict": chosen["is_strict"]}
    later = random.choice(upstream.tables)
    world = World(config_of([each for each in upstream.tables if each != later], **around))
    added_in = random.randint(0, chosen["rounds"])
    for number in range(chosen["rounds"] + 1):
        if number == added_in:
            world.config = config_of(upstream.tables, **around)
            world.tables[later] = Counter()
            world.resume()
        for _ in range(random.randint(0, 4)):
            upstream.transact()
        world.replays += random.random() < 0.2
        for feed in random.sample(feeds, len(feeds)):
            for message in feed.round(upstream, is_last=number == chosen["rounds"]):
                world.send(message)
                if random.random() < 0.3:
                    world.step(dies_before=random.random() < 0.2, dies_after=random.random() < 0.2)
    while world.step():
        pass
    world.replays += 1
    while world.step():
        pass
    assert not world.dead_letters
    check(world, upstream, feeds)
    truth = upstream.contents(world.frontier)
    assert set(world.ingestion.progress.admitted) == {feed.name for feed in feeds}
    bound = [landed for landed, is_bound in world.landing if is_bound]
    assert chosen["is_strict"] or len(bound) == sum(map(len, truth.values()))


@histories()
@given(settings_of_a_source())
def test_a_table_of_a_feed_comes_and_goes_while_it_runs(chosen):
    """It has the rows of keys that were changed since it began, whatever one of its name had."""
    random = Random(chosen["seed"])
    upstream = Upstream(chosen["seed"], chosen["tables"], accounts=3)
    feeds = feeds_of(upstream, chosen["partitions"], Faults(), chosen["seed"])
    world = World(
        config_of(
            upstream.tables[1:],
            feeds=tuple(feed.name for feed in feeds),
            lookahead=chosen["lookahead"],
            is_strict=chosen["is_strict"],
        )
    )
    for number in range(chosen["rounds"] + 1):
        for _ in range(random.randint(0, 4)):
            upstream.transact()
        for feed in random.sample(feeds, len(feeds)):
            for message in feed.round(upstream, is_last=number == chosen["rounds"]):
                world.send(message)
                if random.random() < 0.2:
                    come_or_go(world, upstream.tables[0])
                if random.random() < 0.3:
                    world.step(dies_before=random.random() < 0.2, dies_after=random.random() < 0.2)
                    check_later(world, upstream)
    while world.step():
        check_later(world, upstream)
    check_later(world, upstream)
    check(world, upstream, [f for f in feeds if upstream.tables[0] not in f.tables])
    bound = [each for each, is_bound in world.landing if is_bound and each.after is not None]
    assert len(bound) == sum(len(world.rows(table)) for table in world.config.tables)


def come_or_go(world, table):
    if table in world.config.later:
        world.drop(table)
    else:
        world.create(table)


def check_later(world, upstream):
    truth = upstream.contents(world.frontier)
    for table, export in world.config.later.items():
        begin = world.begins[export]
        if begin is None:
            assert not world.rows(table)
            continue
        places = [(c.table, c.key, offset(c.updated)) for c in upstream.changes]
        changed = {k for t, k, at in places if t == table and begin <= at < world.frontier}
        expected = {key: row for key, row in truth[table].items() if key in changed}
        assert world.rows(table) == expected


KINDS = [
    *("byte", "integer", "long", "float", "double", "boolean", "date", "timestamp", "binary"),
    *("timestamp_ntz", "string", "decimal(12,2)", "decimal(38,38)"),
    {"type": "array", "elementType": "string", "containsNull": True},
    {"type": "array", "elementType": "binary", "containsNull": True},
    {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "b", "type": "string", "nullable": True, "metadata": {}},
        ],
    },
]
TEXTS = st.text(max_size=5) | st.sampled_from(
    ["\ud800", "2026-01-31", "99999-01-01", "2026-01-31T24:00:00Z", "\\x0", "NaN", "AA=="]
)
NUMBERS = st.sampled_from(["1.5", "-0.0", "1e400", "1e-400", "1e1000000", f"{'9' * 40}.1"])
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS | NUMBERS.map("number {}".format)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.sampled_from(["a", "b"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@histories()
@given(st.sampled_from(KINDS), VALUES, TEXTS)
def test_whatever_a_feed_sends_is_refused_or_lands_and_is_a_row_or_a_dead_letter(kind, value, name):
    """Nothing that is durable stops the source."""
    columns = (Column("id", '"long"', nullable=False), Column("v", json.dumps(kind)))
    reader = Reader(FeedTable(RelationDesc(columns), ("id",)))
    change = {"after": {"id": 1, "v": value}, "key": [1], "topic": "t", "updated": "1.0"}
    changes = [change, {**change, "topic": name}, {**change, "after": {"id": 1, name: value}}]
    taken = []
    for each in changes:
        body = re.sub(r'"number ([^"]*)"', r"\1", json.dumps({"payload": [each]}))
        # Not every text is the name of a table.
        with contextlib.suppress(BadMessage):
            taken += message_of(MessageTarget(), body.encode(), "f", {}).rows
    assert landed_rows(taken).num_rows == len(taken) >= 2
    for landed in taken:
        window = BindingWindow(0, 10**20, frozenset({"f"}))
        found = bind({}, [landed], window, BindingRules(reader.row))
        rows = [row for changed in found.changes.values() for row in changed]
        assert reader.updates(rows).num_rows == len(rows) == 1 - len(found.dead)
        dead_letter_rows([(each, reason, 1) for each, reason in found.dead])
