"""SUBSCRIBE's rows against a model that keeps the relation as a bag."""

from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.subscribe import (
    OrderColumn,
    SubscribeFormat,
    SubscribeSpec,
    check_bounds,
    output_desc,
)

DESC = RelationDesc.of(k="long", v="string")


def updates(rows):
    schema = DESC.update_schema()
    columns = list(zip(*rows, strict=True)) or [[]] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


LATER = Frontier(100)


def rows(spec, history, upper=LATER):
    table = SubscribeFormat(spec, DESC).rows(updates(history), upper)
    assert table.schema == output_desc(spec, DESC).arrow_schema()
    return [tuple(row.values()) for row in table.to_pylist()]


def test_plain_rows_and_the_snapshots_time():
    history = [(1, "a", 3, 1), (2, "b", 4, 1), (2, "b", 5, -1), (3, "c", 7, 1), (4, "d", 9, 1)]
    assert rows(SubscribeSpec(as_of=5, up_to=9), history) == [(5, 1, 1, "a"), (7, 1, 3, "c")]
    assert rows(SubscribeSpec(as_of=5, snapshot=False), history) == [
        (7, 1, 3, "c"),
        (9, 1, 4, "d"),
    ]
    assert rows(SubscribeSpec(as_of=5, up_to=5), history) == []


def test_progress():
    spec = SubscribeSpec(as_of=5, up_to=9, progress=True)
    form = SubscribeFormat(spec, DESC)
    assert [tuple(r.values()) for r in form.begin().to_pylist()] == [(5, True, None, None, None)]
    assert rows(spec, [(1, "a", 3, 1)], Frontier(6)) == [
        (5, False, 1, 1, "a"),
        (6, True, None, None, None),
    ]
    assert rows(spec, [], Frontier(5)) == []
    assert rows(spec, [], Frontier(20)) == [(9, True, None, None, None)]
    assert rows(SubscribeSpec(as_of=5, progress=True), [], EMPTY_FRONTIER) == []


def test_order_within_a_timestamp():
    history = [(1, "b", 9, 1), (3, None, 6, 1), (1, "a", 6, 1), (2, "z", 6, -1), (2, "y", 6, 1)]
    by_value = SubscribeSpec(as_of=5, order_by=(OrderColumn("v", descending=True),))
    assert [r[2:] for r in rows(by_value, history)] == [
        (3, None), (2, "z"), (2, "y"), (1, "a"), (1, "b")
    ]  # fmt: skip
    by_diff = SubscribeSpec(as_of=5, order_by=(OrderColumn("mz_diff"), OrderColumn("k")))
    assert [r[1:3] for r in rows(by_diff, history)] == [
        (-1, 2), (1, 1), (1, 2), (1, 3), (1, 1)
    ]  # fmt: skip


def test_envelopes_by_example():
    history = [
        (1, "a", 3, 1), (1, "a", 6, -1), (1, "b", 6, 1), (1, "b", 7, -1),
        (2, "x", 7, 1), (2, "y", 7, 1),
    ]  # fmt: skip
    assert rows(SubscribeSpec(as_of=5, envelope="UPSERT", key=("k",)), history) == [
        (5, "upsert", 1, "a"),
        (6, "upsert", 1, "b"),
        (7, "delete", 1, None),
        (7, "key_violation", 2, None),
    ]
    spec = SubscribeSpec(as_of=5, envelope="DEBEZIUM", key=("k",))
    assert output_desc(spec, DESC).names == (
        "mz_timestamp", "mz_state", "k", "before_v", "after_v"
    )  # fmt: skip
    assert rows(spec, history) == [
        (5, "insert", 1, None, "a"),
        (6, "upsert", 1, "a", "b"),
        (7, "delete", 1, "b", None),
        (7, "key_violation", 2, None, None),
    ]
    with_progress = SubscribeSpec(as_of=5, envelope="UPSERT", key=("v",), progress=True)
    assert rows(with_progress, history[:1], Frontier(8)) == [
        (5, False, "upsert", "a", 1),
        (8, True, None, None, None),
    ]


def test_bounds():
    check_bounds(5, 5)
    with pytest.raises(SlackwaterError) as failed:
        check_bounds(5, 4)
    assert failed.value.condition == "SLACKWATER_SUBSCRIBE_BOUNDS"


HISTORY = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(1, 3)),
        st.sampled_from(["a", "b", None]),
        st.integers(0, 9),
        st.sampled_from([1, -1]),
    ),
    max_size=20,
)


@histories()
@given(HISTORY, st.integers(0, 9), st.lists(st.integers(1, 10), max_size=4), st.booleans())
def test_batches_add_up_to_the_relation(history, as_of, cuts, ordered):
    order = (OrderColumn("v"),) if ordered else ()
    form = SubscribeFormat(SubscribeSpec(as_of, order_by=order), DESC)
    lower, got = 0, []
    for cut in [*sorted({c for c in cuts if c > as_of}), 10]:
        batch = [u for u in history if lower <= u[2] < cut]
        got += [tuple(r.values()) for r in form.rows(updates(batch), Frontier(cut)).to_pylist()]
        lower = cut
    expected = Counter()
    for k, v, time, diff in history:
        expected[(max(time, as_of), k, v)] += diff
    assert [t for t, *_ in got] == sorted(t for t, *_ in got)
    assert {(t, k, v): d for t, d, k, v in got} == {u: d for u, d in expected.items() if d}
    assert len(got) == len({(t, k, v) for t, _, k, v in got})


@histories()
@given(HISTORY)
def test_upsert_against_a_model(history):
    got = rows(SubscribeSpec(0, envelope="UPSERT", key=("k",)), history)
    bags = defaultdict(Counter)
    for k, v, time, diff in history:
        bags[(time, k)][v] += diff
    expected = {}
    for (time, k), bag in bags.items():
        plus = [v for v, d in bag.items() for _ in range(d)]
        minus = [v for v, d in bag.items() for _ in range(-d)]
        if len(plus) > 1 or len(minus) > 1:
            expected[(time, k)] = ("key_violation", None)
        elif plus:
            expected[(time, k)] = ("upsert", plus[0])
        elif minus:
            expected[(time, k)] = ("delete", None)
    assert {(t, k): (state, v) for t, state, k, v in got} == expected
    assert len(got) == len(expected)
