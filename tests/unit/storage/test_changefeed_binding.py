"""What is bound when: admission of partitions, late changes, drift. Source: spec checkpoint 5.5."""

import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest
from tests.support.storage.changefeed_world import World, config_of
from tests.support.storage.changefeeds import Message

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.hlc import Time
from slackwater.repr.relation import RelationDesc
from slackwater.storage.changefeed.encoding import decimal, offset, place_of, time_at
from slackwater.storage.changefeed.tables import FeedTable, Reader


def at(nanos, logical=0):
    return Time(nanos, logical)


def change(number, balance, time, table="a", **more):
    after = None if balance is None else {"id": number, "owner": "o", "balance": balance, **more}
    return {"after": after, "key": [number], "topic": table, "updated": str(time)}


def rows(feed, *payload):
    body = json.dumps({"payload": payload, "length": len(payload)}).encode()
    return Message(feed, body)


def resolved(feed, time):
    return Message(feed, json.dumps({"resolved": str(time)}).encode(), time)


def balances(world, table="a"):
    return {number: row["balance"] for number, row in world.rows(table).items()}


def settle(world):
    while world.step():
        pass


@pytest.fixture
def world():
    """A source of two tables, of which the feed `x` has delivered the time 100."""
    world = World(config_of(["a", "b"]))
    world.send(rows("x", change(1, 10, at(90)), change(2, 20, at(95))))
    world.send(resolved("x", at(100)))
    settle(world)
    assert balances(world) == {1: 10, 2: 20}
    return world


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (at(0), "0E-10"),
        (at(100, 200), "100.0000000200"),
        (at(2**63 - 1, 9_999_999_999), "9223372036854775807.9999999999"),
    ],
)
def test_a_time_has_one_exact_ordered_value(time, text):
    assert str(decimal(offset(time))) == text
    assert time_at(place_of(decimal(offset(time)))) == time


def test_offsets_order_as_times_do():
    times = [at(1), at(1, 1), at(1, 9_999_999_999), at(2), at(2, 5)]
    assert sorted(times, key=offset) == times
    assert offset(at(1, 9_999_999_999).next) == offset(at(2))


def test_nothing_is_bound_before_a_time_is_resolved():
    world = World(config_of(["a"]))
    world.send(rows("x", change(1, 10, at(90))))
    settle(world)
    assert balances(world) == {}
    assert world.ingestion.progress.waiting == {"x": 1}


def test_changes_behind_the_resolved_time_wait(world):
    world.send(rows("x", change(1, 11, at(110)), change(1, 12, at(120))))
    world.send(resolved("x", at(110)))
    settle(world)
    assert balances(world) == {1: 11, 2: 20}
    world.send(resolved("x", at(120)))
    settle(world)
    assert balances(world) == {1: 12, 2: 20}


def test_a_new_partition_is_pending_until_it_has_resolved_what_is_bound(world):
    world.send(rows("y", change(7, 70, at(50), "b")))
    world.send(resolved("y", at(60)))
    world.send(resolved("x", at(200)))
    settle(world)
    assert world.frontier == offset(at(200).next)
    assert balances(world, "b") == {}
    assert set(world.ingestion.progress.admitted) == {"x"}
    world.send(resolved("y", at(199)))
    settle(world)
    assert set(world.ingestion.progress.admitted) == {"x"}
    world.send(resolved("y", at(200)))
    settle(world)
    assert set(world.ingestion.progress.admitted) == {"x", "y"}


def test_what_a_new_partition_delivered_below_the_bound_is_bound_when_it_joins(world):
    world.send(rows("y", change(7, 70, at(50), "b"), change(8, 80, at(250), "b")))
    world.send(resolved("y", at(100)))
    settle(world)
    # At the frontier that there was, which did not go back.
    assert world.frontier == offset(at(100).next)
    assert balances(world, "b") == {7: 70}
    world.send(resolved("x", at(300)))
    settle(world)
    assert world.frontier == offset(at(100).next)
    world.send(resolved("y", at(300)))
    settle(world)
    assert balances(world, "b") == {7: 70, 8: 80}


def test_a_new_partition_does_not_take_rows_back_to_an_older_image(world):
    """A second feed of the same table, which begins with a scan of an earlier time."""
    world.send(rows("y", change(1, 5, at(40)), change(3, 30, at(40))))
    world.send(resolved("y", at(100)))
    settle(world)
    assert balances(world) == {1: 10, 2: 20, 3: 30}


def test_a_declared_partition_is_waited_for():
    world = World(config_of(["a", "b"], feeds=("x", "y")))
    world.send(rows("x", change(1, 10, at(90))))
    world.send(resolved("x", at(100)))
    settle(world)
    assert (balances(world), world.frontier) == ({}, 0)
    world.send(resolved("y", at(95)))
    settle(world)
    assert balances(world) == {1: 10}
    assert world.frontier == offset(at(95).next)


def test_a_partition_without_a_resolved_time_does_not_vouch_for_its_rows(world):
    world.send(rows("y", change(7, 70, at(150), "b")))
    world.send(resolved("x", at(200)))
    settle(world)
    assert balances(world, "b") == {}
    assert world.ingestion.progress.waiting == {"y": 1}


def test_a_late_change_is_dropped_and_counted(world):
    world.send(rows("x", change(1, 99, at(95)), change(3, 30, at(97))))
    world.send(resolved("x", at(110)))
    settle(world)
    assert balances(world) == {1: 10, 2: 20}
    assert world.ingestion.progress.admitted["x"].late == 2
    assert [landed.key for landed, bound in world.landing if not bound] == []


def test_on_late_fail_a_change_that_was_not_bound_stops_the_source():
    world = World(config_of(["a"], is_strict=True))
    world.send(rows("x", change(1, 10, at(90))))
    world.send(resolved("x", at(100)))
    settle(world)
    world.send(rows("x", change(1, 99, at(95))))
    world.send(resolved("x", at(110)))
    with pytest.raises(SlackwaterError) as raised:
        world.step()
    assert raised.value.condition == "SLACKWATER_LATE_CHANGE"
    assert "95.0000000000" in str(raised.value)
    assert "99" not in str(raised.value)
    assert balances(world) == {1: 10}


def test_on_late_fail_a_duplicate_is_dropped_also_of_a_deletion_and_after_a_restart():
    world = World(config_of(["a"], is_strict=True))
    sent = rows("x", change(1, 10, at(90)), change(1, None, at(95)))
    world.send(sent)
    world.send(resolved("x", at(100)))
    settle(world)
    world.resume()
    world.send(sent)
    world.send(resolved("x", at(110)))
    settle(world)
    assert balances(world) == {}
    assert world.ingestion.progress.admitted["x"].late == 2


def test_on_late_fail_a_dead_letter_that_is_sent_again_is_a_duplicate():
    world = World(config_of(["a"], is_strict=True))
    sent = rows("x", change(1, 10, at(80)), change(1, "much", at(90)))
    world.send(sent)
    world.send(resolved("x", at(100)))
    settle(world)
    world.resume()
    world.send(sent)
    world.send(resolved("x", at(110)))
    settle(world)
    assert balances(world) == {1: 10}
    assert world.ingestion.progress.admitted["x"].late == 2
    assert sum(world.dead_letters.values()) == 1
    # It is known by all that it says.
    world.send(rows("x", change(1, "more", at(90))))
    world.send(resolved("x", at(120)))
    with pytest.raises(SlackwaterError) as raised:
        world.step()
    assert raised.value.condition == "SLACKWATER_LATE_CHANGE"


def test_the_lookahead_bounds_a_binding():
    world = World(config_of(["a"], feeds=("x",), lookahead=1))
    for time in (10, 20, 30):
        world.send(rows("x", change(1, time, at(time))))
        world.send(resolved("x", at(time)))
    seen = []
    while world.step():
        seen.append(balances(world))
    assert seen[-3:] == [{1: 10}, {1: 20}, {1: 30}]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (change(1, 5, at(110), colour="red"), "unknown columns: colour"),
        (change(1, "much", at(110)), "the column balance has a value of another type"),
        (change(1, 5, at(110), **{"\ud800": 1}), "unknown columns: \\ud800"),
        (
            change(1, 5, at(110), owner="\ud800"),
            "the column owner has a value of another type",
        ),
        (change(1, 2**63, at(110)), "the column balance has a value of another type"),
        ({**change(1, 5, at(110)), "key": [1, 2]}, "the key has 2 columns and not 1"),
        ({**change(1, 5, at(110)), "key": [2]}, "the key is not that of id"),
        (change(1, 5, at(110), "c"), "the source has no such table"),
        (
            {**change(1, 5, at(110)), "after": {"owner": "o", "balance": 5}},
            "the key is not that of id",
        ),
    ],
)
def test_what_no_table_takes_is_a_dead_letter_and_the_row_stays(world, payload, reason):
    world.send(rows("x", payload, change(2, 21, at(105))))
    world.send(resolved("x", at(120)))
    settle(world)
    assert balances(world) == {1: 10, 2: 21}
    ((letter, said),) = world.dead_letters
    assert (letter.topic, said) == (payload["topic"], reason)
    assert world.ingestion.progress.admitted["x"].dead == 1
    # Sent again, it comes too late to be one more.
    world.send(rows("x", payload))
    world.send(resolved("x", at(130)))
    settle(world)
    assert sum(world.dead_letters.values()) == 1


def test_of_a_key_the_newest_change_counts_that_its_table_takes(world):
    world.send(rows("x", change(1, "no", at(112)), change(1, 11, at(111)), change(1, 9, at(105))))
    world.send(resolved("x", at(120)))
    settle(world)
    assert balances(world) == {1: 11, 2: 20}
    assert len(world.dead_letters) == 1


def test_a_missing_column_is_null_unless_it_may_not_be(world):
    payload = change(1, 5, at(110))
    del payload["after"]["owner"]
    world.send(rows("x", payload))
    world.send(resolved("x", at(120)))
    settle(world)
    assert world.rows("a")[1] == {"id": 1, "owner": None, "balance": 5}


def reader(extras=None, **columns):
    desc = RelationDesc.of(**columns)
    return Reader(FeedTable(desc, ("id",), extras))


def landed(after, key=(1,)):
    from slackwater.storage.changefeed.messages import ChangeRecord, exact_text

    return ChangeRecord("x", "a", exact_text(list(key)), 1, exact_text(after))


def test_extras_have_what_has_no_column():
    read = reader("more", id="long", more="string", name="string")
    assert read.row(landed({"id": 1, "name": "n"})) == (1, None, "n")
    row = read.row(landed({"id": 1, "name": "n", "b": {"c": [1]}, "a": None}))
    assert row == (1, '{"b":{"c":[1]},"a":null}', "n")


def test_values_as_cockroachdb_writes_them():
    read = reader(
        id="long",
        raw="binary",
        cents="decimal(20,4)",
        at="timestamp",
        day="date",
        json="string",
        ratio="double",
    )
    after = (
        '{"id":1,"raw":"\\\\x00ff","cents":12345678901234.5678,"at":"2026-01-31T01:02:03.5Z",'
        '"day":"2026-01-31","json":{"a":[1,2.50]},"ratio":0.5}'
    )
    from slackwater.storage.changefeed.messages import ChangeRecord

    row = read.row(ChangeRecord("x", "a", "[1]", 1, after))
    assert row[1] == b"\x00\xff"
    assert str(row[2]) == "12345678901234.5678"
    assert row[3].isoformat() == "2026-01-31T01:02:03.500000+00:00"
    assert row[4].isoformat() == "2026-01-31"
    assert row[5] == '{"a":[1,2.50]}'
    assert row[6] == 0.5
    assert read.updates([(row, 1)]).num_rows == 1


def test_dead_letters_are_tried_again_with_the_tables_that_there_are(world):
    world.send(rows("x", change(1, 5, at(110), "c"), change(2, "no", at(110))))
    world.send(resolved("x", at(120)))
    settle(world)
    assert len(world.dead_letters) == 2
    world.config = config_of(["a", "b", "c"])
    world.tables["c"] = type(world.tables["a"])()
    world.resume()
    world.replays = 1
    settle(world)
    assert balances(world, "c") == {1: 5}
    assert world.told == [(2, 1)]
    ((letter, _),) = world.dead_letters
    assert (letter.topic, world.ingestion.progress.admitted["x"].dead) == ("a", 1)


def test_a_dead_letter_does_not_take_a_row_back(world):
    world.send(rows("x", change(1, 5, at(110), colour="red")))
    world.send(rows("x", change(1, 6, at(115))))
    world.send(rows("x", change(1, 7, at(117), colour="red")))
    world.send(resolved("x", at(120)))
    settle(world)
    assert balances(world)[1] == 6
    world.send(rows("x", change(1, 8, at(125))))
    world.send(resolved("x", at(130)))
    settle(world)
    world.replays = 1
    settle(world)
    assert balances(world)[1] == 8
    assert not world.dead_letters


def coloured():
    """The table with a column more."""
    columns = {"id": "long", "owner": "string", "balance": "long", "colour": "string"}
    return FeedTable(RelationDesc.of(**columns), ("id",))


@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_dead_letter_does_not_bring_back_what_was_deleted_since(is_strict, is_resumed):
    world = World(config_of(["a"], is_strict=is_strict))
    world.send(rows("x", change(1, 10, at(90)), change(2, 20, at(95))))
    world.send(resolved("x", at(100)))
    settle(world)
    world.send(rows("x", change(1, 5, at(110), colour="red")))
    world.send(resolved("x", at(120)))
    settle(world)
    if is_resumed:
        world.resume()
    world.send(rows("x", change(1, None, at(125)), change(2, None, at(125))))
    world.send(resolved("x", at(130)))
    settle(world)
    world.config = replace(world.config, tables={"a": coloured()})
    world.resume()
    world.replays = 1
    settle(world)
    assert (world.tables["a"], world.dead_letters) == (Counter(), Counter())
    assert world.told == [(1, 0)]
    # What was kept of deletions for the sake of letters goes with them.
    assert is_strict or not world.landing


def test_a_decimal_key_with_other_zeros_is_the_same_row():
    priced = FeedTable(RelationDesc.of(price="decimal(12,4)", n="long"), ("price",))
    world = World(replace(config_of(["a"]), tables={"a": priced}))
    for price, n, nanos in (("1.5", 1, 10), ("1.50", 2, 20)):
        after = f'{{"price": {price}, "n": {n}}}'
        body = (
            f'{{"payload": [{{"after": {after}, "key": [{price}], "topic": "a",'
            f' "updated": "{nanos}.0"}}]}}'
        )
        world.send(Message("x", body.encode()))
        world.send(resolved("x", at(nanos)))
        settle(world)
    ((row, count),) = world.tables["a"].items()
    assert (row, count) == ((Decimal("1.5"), 2), 1)
    assert not world.dead_letters


def test_of_two_changes_at_one_time_the_same_one_counts_in_any_order():
    """Feeds promise that there are none; if there are, all who read must see the same."""
    seen = []
    for first, second in (((1, 7), (1, 8)), ((1, 8), (1, 7))):
        world = World(config_of(["a"]))
        for number, balance in (first, second):
            world.send(rows("x", change(number, balance, at(90))))
        world.send(resolved("x", at(100)))
        settle(world)
        seen.append(balances(world))
    assert seen == [{1: 8}, {1: 8}]
