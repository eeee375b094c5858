"""The steps of programs, and what has none, for plans that are written down here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slackwater.planner.delta.explain import explain_program
from slackwater.planner.delta.lowering import (
    NotMaintained,
    index_of,
    invalid_mz_now_use,
    program_of,
)
from slackwater.planner.delta.program import LookupStep, OfColumn, OfHandle
from slackwater.planner.delta.program_text import program_text
from slackwater.planner.plan.algebra import (
    Aggregate,
    AggregateCall,
    AnalyzedPlan,
    Bound,
    Computed,
    Filter,
    Handle,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    Operator,
    PlanColumn,
    Project,
    SortKey,
    Source,
    SparkType,
    TemporalFilter,
    Union,
    Window,
    WindowCall,
)
from slackwater.planner.plan.text import plan_text, plan_values
from slackwater.repr.relation import RelationDesc

LONG = SparkType('"long"')
DOUBLE = SparkType('"double"', key_issues=frozenset({"floating"}))
LOOSE = SparkType('"string"', (("", "UTF8_LCASE"),), frozenset({"collation"}))
MAP = SparkType(
    '{"type":"map","keyType":"string","valueType":"integer","valueContainsNull":true}',
    key_issues=frozenset({"map"}),
)


def plan_of(*nodes: Operator, types: tuple[SparkType, ...]) -> AnalyzedPlan:
    """Its handles are its columns, under the same numbers."""
    columns = tuple(PlanColumn(f"c{i}", each, True) for i, each in enumerate(types))
    handles = tuple(
        Handle(f"c{i}", each, True, True, False, False, False, (i,), i, f"c{i}")
        for i, each in enumerate(types)
    )
    return AnalyzedPlan(nodes, len(nodes) - 1, columns, handles, (), (), RelationDesc(()), "")


def windowed(
    function: str, rows: bool = True, partition: tuple[int, ...] = (0,), key=LONG, value=LONG
):
    call = WindowCall(function, 1, (1,), rows, 2)
    window = Window((0,), (0, 1, 2), (call,), partition, (SortKey(1, True, True),))
    return plan_of(Source("u1", ("k", "v"), (0, 1)), window, types=(key, value, LONG))


def steps(plan):
    return [node["op"] for node in json.loads(program_of(plan).to_json())["nodes"]]


@pytest.mark.parametrize(
    "function", ["row_number", "lag", "nth_value", "last", "sum", "max", "listagg"]
)
def test_a_window_is_computed_by_its_partitions(function):
    plan = windowed(function)
    assert steps(plan) == ["delta", "regroup"]
    (arranged,) = program_of(plan).arrangements
    assert (arranged.keys, arranged.null_safe, arranged.columns) == ((0,), (True,), (1,))
    reason = explain_program(plan, {})[0].reason
    assert reason == "The partitions by c0 that changed are computed again from their rows."


def test_without_a_partition_the_window_is_over_the_whole_input():
    plan = windowed("row_number", partition=())
    assert program_of(plan).arrangements[0].keys == ()
    assert "the whole input" in explain_program(plan, {})[0].reason


@pytest.mark.parametrize("function", ["rank", "cume_dist", "sum", "count", "min"])
def test_what_sees_peers_may_have_them(function):
    assert steps(windowed(function, rows=False)) == ["delta", "regroup"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (windowed("last", rows=False), "last"),
        (windowed("listagg", rows=False), "listagg"),
        (windowed("collect_list", rows=False), "collect_list"),
        (windowed("max", value=LOOSE, rows=False), "max"),
        (windowed("rank", key=LOOSE), "a key with collation"),
    ],
)
def test_what_depends_on_luck_has_no_program(plan, reason):
    with pytest.raises(NotMaintained) as refused:
        program_of(plan)
    assert refused.value.reason == reason


def grouped(function: str, distinct: bool = False, value=LONG):
    call = AggregateCall(function, 1, (1,), distinct, None, 3)
    node = Aggregate((0,), (4, 5), (Computed(0, 2),), (call,), (2, 3))
    types = (LONG, value, LONG, value, LONG, value)
    return plan_of(Source("u1", ("k", "v"), (0, 1)), node, types=types)


@pytest.mark.parametrize(
    ("function", "value", "once"),
    [
        ("min", LONG, True),
        ("max", DOUBLE, True),
        ("max_by", DOUBLE, True),
        ("max", LOOSE, True),
        ("pivotfirst", MAP, True),
        ("mode", DOUBLE, False),
        ("collect_list", LOOSE, False),
        ("bit_xor", LONG, False),
        ("percentile", LONG, False),
        ("collect_list", LONG, False),
    ],
)
def test_extremes_are_computed_by_their_groups(function, value, once):
    program = json.loads(program_of(grouped(function, value=value)).to_json())
    assert [node["op"] for node in program["nodes"]] == ["delta", "regroup"]
    assert program["nodes"][1]["once"] is once


@pytest.mark.parametrize("function", ["sum", "try_avg", "stddev_samp", "corr"])
def test_sums_are_accumulated(function):
    assert steps(grouped(function)) == ["delta", "reduce", "map"]


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        (JoinKind.INNER, ["union", "reduce", "map"]),
        # Some of an outer join's changes cancel when the other side's columns are left out.
        (JoinKind.LEFT_OUTER, ["union", "map", "reduce", "map"]),
    ],
)
def test_the_rows_of_an_inner_join_are_grouped_as_they_are(kind, last):
    sources = Source("u1", ("k", "v"), (0, 1)), Source("u2", ("k",), (2,))
    join = Join((0, 1), (0, 1, 2), kind, (JoinKey(0, 2, False),), (), (), None)
    renamed = Project((2,), (3, 1), (0, 1))
    call = AggregateCall("sum", 1, (1,), False, None, 4)
    groups = Aggregate((3,), (5, 6), (Computed(3, 3),), (call,), (3, 4))
    plan = plan_of(*sources, join, renamed, groups, types=(LONG,) * 7)
    assert steps(plan)[-len(last) :] == last
    # The states of groups are filled from rows that look like those of the updates.
    described = json.loads(program_of(plan).to_json())["nodes"]
    (reduced,) = (each for each in described if each["op"] == "reduce")
    assert list(plan.nodes[reduced["node"]].out) == described[reduced["in"]]["out"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (grouped("bit_and", value=DOUBLE), "bit_and"),
        (grouped("mode", value=LOOSE), "mode"),
        (grouped("listagg"), "listagg"),
        (grouped("percentile", value=MAP), "percentile"),
        (grouped("collect_set", value=MAP), "collect_set"),
        (grouped("sum", True, DOUBLE), "sum of DISTINCT values"),
    ],
)
def test_aggregates_that_depend_on_luck_have_no_program(plan, reason):
    with pytest.raises(NotMaintained) as refused:
        program_of(plan)
    assert refused.value.reason == reason


@pytest.mark.parametrize("kind", [JoinKind.LEFT_SEMI, JoinKind.LEFT_ANTI])
def test_sides_without_equal_columns_are_arranged_whole(kind):
    join = Join((0, 1), (0,), kind, (), (1,), (), None)
    sources = Source("u1", ("v",), (0,)), Source("u2", ("v",), (1,))
    plan = plan_of(*sources, join, types=(LONG, LONG))
    assert steps(plan) == ["delta", "delta", "presence"]
    assert [each.keys for each in program_of(plan).arrangements] == [(), ()]
    assert explain_program(plan, {})[0].reason == (
        "No columns are equal: each change is compared with the other side's rows."
    )


def test_what_several_operators_read_is_explained_once():
    nodes = [Source("u1", ("k",), (0,))]
    for number in range(40):
        nodes.append(Union((number, number), (0,)))
    rows = explain_program(plan_of(*nodes, types=(LONG,)), {"u1": "t"})
    assert [row.operator for row in rows] == [
        *["UnionAll"] * 40,
        *["Collection t"] * 2,
        *["UnionAll"] * 39,
    ]
    last = rows[-1]
    assert (last.parent, last.reason) == (0, "It is computed once: operator 1.")


def test_which_rows_a_limit_without_order_takes_is_luck():
    plan = plan_of(Source("u1", ("k",), (0,)), Limit((0,), (0,), 3, 0), types=(LONG,))
    with pytest.raises(NotMaintained, match="LIMIT without ORDER BY"):
        program_of(plan)


def test_a_temporal_filter_knows_whose_rows_wait():
    source = Source("u1", ("k", "e"), (0, 1))
    bounds = (Bound("<", 1), Bound(">=", 0))
    plan = plan_of(source, TemporalFilter((0,), (0, 1), bounds), types=(LONG, LONG))
    assert json.loads(program_of(plan).to_json())["nodes"][1] == {
        "op": "temporal",
        "in": 0,
        "out": [0, 1],
        "node": 0,
        "bounds": [{"comparison": "<", "handle": 1}, {"comparison": ">=", "handle": 0}],
    }
    (row, _) = explain_program(plan, {})
    assert (row.operator, row.maintenance) == ("TemporalFilter", "linear")


def test_a_join_does_not_take_a_temporal_filter_below_it_for_a_condition():
    sources = Source("u1", ("a",), (0,)), Source("u2", ("b",), (1,)), Source("u3", ("c",), (2,))
    lower = Join((0, 1), (0, 1), JoinKind.INNER, (), (), (), None)
    valid = TemporalFilter((3,), (0, 1), (Bound("<", 1),))
    upper = Join((4, 2), (0, 1, 2), JoinKind.INNER, (), (), (), None)
    plan = plan_of(*sources, lower, valid, upper, types=(LONG, LONG, LONG))
    assert "temporal" in steps(plan)
    assert {each.node for each in program_of(plan).arrangements} == {0, 1, 2, 4}


def test_any_other_use_of_the_time_has_no_program():
    plan = plan_of(Source("u1", ("k",), (0,)), Filter((0,), (0,), (0,)), types=(LONG,))
    now = replace(plan.handles[0], sql="(mz_now() <> k)", uses_now=True)
    plan = replace(plan, handles=(now,))
    with pytest.raises(NotMaintained) as refused:
        program_of(plan)
    assert refused.value.reason == invalid_mz_now_use(plan)
    assert "(mz_now() <> k)" in refused.value.reason


def test_partitions_of_floating_numbers_are_those_of_equal_numbers():
    (arranged,) = program_of(windowed("rank", key=DOUBLE)).arrangements
    assert arranged.key_columns == (None,)
    assert arranged.columns == (0, 1)


def selecting(*, selects: bool) -> AnalyzedPlan:
    """``SELECT k, v, v AS key0`` of the rows of a group, the last of which is a key."""
    call = AggregateCall("count", 1, (1,), False, None, 2)
    groups = Aggregate((0,), (3, 4), (Computed(0, 0),), (call,), (0, 2))
    project = Project((1,), (5, 6, 7), (3, 4, 4))
    source = Source("u1", ("k", "v"), (0, 1))
    plan = plan_of(source, groups, project, types=(LONG,) * 8)
    return replace(plan, selects=selects, names=("k", "v", "key0"))


def test_an_index_keeps_the_rows_of_a_view():
    program = index_of(selecting(selects=True), 1)
    assert [node["op"] for node in json.loads(program.to_json())["nodes"]] == steps(
        selecting(selects=True)
    )
    index = program.index
    assert (index.node, index.delta) == (2, len(program.steps) - 1)
    assert (index.keys, index.columns, index.names) == ((OfColumn(7),), (5, 6), ("k", "v"))


def test_an_index_on_a_view_that_stays_whole_arranges_it_as_joins_do():
    program = index_of(replace(selecting(selects=True), views=(1,)), 1)
    index = program.index
    assert (index.node, index.keys, index.columns) == (1, (OfHandle(4),), (3, 4))
    assert [(each.node, each.step) for each in program.shared] == [(1, index.delta)]


def test_a_join_of_columns_of_a_view_that_stays_whole_has_the_view_for_an_input():
    view = Filter((0,), (0, 1), (1,))
    columns = Project((1,), (2,), (0,))
    join = Join((2, 3), (2, 3), JoinKind.INNER, (JoinKey(2, 3, False),), (), (), None)
    sources = (Source("u1", ("k", "v"), (0, 1)), Source("u2", ("k",), (3,)))
    plan = plan_of(sources[0], view, columns, sources[1], join, types=(LONG,) * 4)
    program = program_of(replace(plan, views=(1,)))
    (whole,) = (each for each in program.arrangements if each.node == 1)
    assert (whole.columns, whole.key_columns, whole.null_safe) == ((0, 1), (None,), (True,))
    lookups = [each for each in program.steps if isinstance(each, LookupStep)]
    assert [each.null_safe for each in lookups] == [(False,), (False,)]
    assert program.aliases == {2: 0}
    (inlined,) = (e for e in program_of(plan).arrangements if e.node == 2)
    assert (inlined.columns, inlined.null_safe) == ((), (False,))


def test_an_index_on_a_relation_computes_nothing_but_keys():
    with pytest.raises(NotMaintained) as error:
        index_of(selecting(selects=False), 1)
    assert error.value.reason == "a key that is not computed of one row"


def test_plans_and_programs_as_text():
    plan = grouped("min")
    assert plan_text(plan, {"u1": "slackwater.s.t"}).splitlines() == [
        "0 source slackwater.s.t (k, v) -> c0#0?, c1#1?",
        "1 aggregate 0 by (#0 as #2) of (min(#1) as #3) (#2, #3) -> c4#4?, c5#5?",
        "1: ",
    ]
    assert program_text(plan, program_of(plan), {"u1": "slackwater.s.t"}).splitlines() == [
        "0 delta slackwater.s.t (k, v) -> c0#0?, c1#1?",
        "1 regroup 0 for the aggregate of arrangement 0 -> c4#4?, c5#5?",
        "arrangement 0: step 0 by (#0) with (c1#1?)",
    ]
    values = json.loads(json.dumps(plan_values(plan)))
    assert [node["op"] for node in values["nodes"]] == ["Source", "Aggregate"]
    assert values["nodes"][1]["aggregates"][0]["function"] == "min"
    assert values["columns"][0]["type"]["text"] == '"long"'
