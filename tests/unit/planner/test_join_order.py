"""The order in which the changes of a join's input meet the others, by how many rows they find."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.test_lowering import LONG, plan_of

from slackwater.planner.delta import join_order
from slackwater.planner.delta.explain import explain_program, read_by_steps
from slackwater.planner.delta.lowering import program_of, reordered
from slackwater.planner.delta.program import LookupStep, Size
from slackwater.planner.plan.algebra import Join, JoinKey, JoinKind, Source, Union


def joined(inputs, equalities):
    """The inner join of inputs with these columns, one below the other."""
    sources = [Source(f"u{i}", tuple(f"c{c}" for c in each), each) for i, each in enumerate(inputs)]
    joins, known, last = [], inputs[0], 0
    for number, columns in enumerate(inputs[1:], start=1):
        keys = tuple(
            JoinKey(left, right, False)
            for left, right in equalities
            if left in known and right in columns
        )
        known = (*known, *columns)
        joins.append(Join((last, number), known, JoinKind.INNER, keys, (), (), None))
        last = len(inputs) + number - 1
    return plan_of(*sources, *joins, types=(LONG,) * (1 + max(known)))


def paths(program):
    """For each pipeline the inputs in the order in which they are looked up."""
    nodes = json.loads(program.to_json())["nodes"]
    arranged = [each.node for each in program.arrangements]
    ways = {}
    for number, node in enumerate(nodes):
        if node["op"] == "delta":
            ways[number] = ()
        elif node["op"] == "lookup":
            ways[number] = (*ways.pop(node["in"], ()), arranged[node["arrangement"]])
    return list(ways.values())


def sized(program, rows, keys_of):
    """`rows` of each input, and the keys that each arrangement has of them."""
    return [Size(rows[each.node], keys_of(each)) for each in program.arrangements]


STAR = joined([(0, 1), (2,), (3,)], [(0, 2), (1, 3)])
"""Input 0 equals input 1 by one of its columns, and input 2 by the other."""


@pytest.mark.parametrize(("found", "first"), [((600, 1), 2), ((1, 600), 1), ((1, 1), 1)])
def test_changes_meet_first_what_has_fewer_rows_of_a_key(found, first):
    program = program_of(STAR)
    rows = {0: 6000, 1: 10 * found[0], 2: 10 * found[1]}
    order = reordered(STAR, program, sized(program, rows, lambda each: 10))
    assert paths(order)[0] == (first, 3 - first)


def test_what_leaves_most_out_comes_before_what_has_one_row_for_each():
    """Of input 2 there are a tenth of the keys that input 0 looks up."""
    program = program_of(STAR)
    keys = {(0, (0,)): 1000, (0, (1,)): 1000, (1, (2,)): 1000, (2, (3,)): 100}
    sizes = sized(program, {0: 1000, 1: 1000, 2: 100}, lambda each: keys[each.node, each.keys])
    assert paths(program)[0] == (1, 2)
    assert paths(reordered(STAR, program, sizes))[0] == (2, 1)


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_nothing_is_known_of_what_is_empty(empty):
    program = program_of(STAR)
    rows = {0: 100, 1: 1000, 2: 10, empty: 0}
    order = reordered(STAR, program, sized(program, rows, lambda each: min(10, rows[each.node])))
    assert all(paths(order)[i] == paths(program)[i] for i in range(3) if i != empty)


def test_an_order_can_be_taken_back():
    program = program_of(STAR)
    many, few = {0: 10, 1: 6000, 2: 10}, {0: 10, 1: 10, 2: 10}
    other = reordered(STAR, program, sized(program, many, lambda each: 10))
    assert other != program
    assert reordered(STAR, other, sized(program, few, lambda each: 10)) == program


TRIANGLE = joined([(0, 1), (2, 3), (4, 5)], [(0, 2), (1, 4), (3, 5)])


def test_what_is_not_arranged_is_not_looked_up():
    """The way from 0 over 2 to 1 would look input 1 up by two columns."""
    program = program_of(TRIANGLE)
    assert paths(program)[0] == (1, 2)
    arranged = {(each.node, each.keys) for each in program.arrangements}
    assert (1, (2, 3)) not in arranged
    sizes = sized(program, {0: 10, 1: 60_000, 2: 10}, lambda each: 10)
    assert paths(reordered(TRIANGLE, program, sizes))[0] == (1, 2)


def of_sum(plan, handle, columns):
    """The plan, in which a handle is the sum of some columns."""
    made = replace(plan.handles[handle], columns=columns, column=None, sql="a sum")
    handles = (*plan.handles[:handle], made, *plan.handles[handle + 1 :])
    return replace(plan, handles=handles)


def test_what_makes_keys_of_others_is_read_whole_before_them():
    """``b.y = a.x + d.z`` and ``c.w = b.v``: with `d` there are keys for `b`, and so for `c`."""
    a, b, c, d, total = (0,), (1, 2), (3,), (4,), 5
    plan = joined([a, b, c, d], [(1, 3)])
    plan = plan_of(*plan.nodes, types=(LONG,) * 6)
    top = replace(plan.nodes[-1], keys=(JoinKey(total, 2, False),))
    plan = of_sum(replace(plan, nodes=(*plan.nodes[:-1], top)), total, (0, 4))
    assert paths(program_of(plan))[0] == (3, 1, 2)
    keys = [
        [bool(stage.keys) for stage in path]
        for _, path in join_order.pipelines(plan, join_order.join_of(plan, plan.root))
    ]
    assert keys[0] == [False, True, True]
    (reason,) = {row.reason for row in explain_program(plan, {}) if row.maintenance == "bilinear"}
    assert reason.endswith("Where no columns are equal they meet all rows of u0 and u3.")


def test_where_all_are_equal_nothing_is_read_whole():
    for plan in (STAR, TRIANGLE):
        (reason,) = {r.reason for r in explain_program(plan, {}) if r.maintenance == "bilinear"}
        assert reason == "Each input's changes are looked up in arrangements of the others."


@st.composite
def joins(draw):
    """Inputs with two columns, and equalities that connect some of them."""
    inputs = [(2 * i, 2 * i + 1) for i in range(draw(st.integers(2, 5)))]
    pairs = [
        (left, right)
        for j, columns in enumerate(inputs)
        for right in columns
        for left in (c for each in inputs[:j] for c in each)
    ]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6))
    plan = joined(inputs, chosen)
    residual = draw(st.lists(st.sampled_from(range(len(plan.columns))), unique=True, max_size=2))
    top = replace(plan.nodes[-1], residual=tuple(residual))
    return replace(plan, nodes=(*plan.nodes[:-1], top)), chosen, residual


@given(joins(), st.data())
def test_each_order_meets_all_inputs_and_all_conditions_once(join, data):
    plan, equalities, residual = join
    program = program_of(plan)
    rows = st.integers(0, 10**6)
    sizes = [
        Size(n, data.draw(st.integers(0, n)))
        for n in (data.draw(rows) for _ in program.arrangements)
    ]
    order = reordered(plan, program, sizes)
    assert order.arrangements == program.arrangements
    assert [type(each) for each in order.steps] == [type(each) for each in program.steps]
    kept = zip(order.steps, program.steps, strict=True)
    assert all(a == b for a, b in kept if not isinstance(a, LookupStep))
    inputs = sum(isinstance(each, Source) for each in plan.nodes)
    for begin, way in enumerate(paths(order)):
        assert sorted((begin, *way)) == list(range(inputs))
    for pipeline in pipelines(order):
        met = [
            frozenset(pair)
            for stage in pipeline
            for pair in zip(order.arrangements[stage.arrangement].keys, stage.keys, strict=True)
        ]
        conditions = [c for stage in pipeline for c in stage.conditions]
        met += [frozenset((c.left, c.right)) for c in conditions if not isinstance(c, int)]
        assert sorted(met, key=sorted) == sorted(map(frozenset, equalities), key=sorted)
        assert sorted(c for c in conditions if isinstance(c, int)) == sorted(residual)
        assert pipeline[-1].columns == plan.nodes[-1].out


def pipelines(program):
    found = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, LookupStep):
            found[number] = (*found.pop(step.input, ()), step)
    return list(found.values())


def test_steps_say_what_they_read_in_the_order_in_which_they_run():
    names = {"u0": "sales", "u1": "shops", "u2": "goods"}
    program = program_of(STAR)
    few_goods = sized(program, {0: 6000, 1: 6000, 2: 10}, lambda each: 10)
    order = reordered(STAR, program, few_goods)
    assert order != program

    def of_sales(program):
        told = read_by_steps(STAR, program, names)
        lookups = [i for i, step in enumerate(program.steps) if isinstance(step, LookupStep)]
        return [told[i] for i in lookups if "sales" not in told[i]][:2]

    assert of_sales(program) == ["shops by c2", "goods by c3"]
    assert of_sales(order) == ["goods by c3", "shops by c2"]
    told = read_by_steps(STAR, program, names)
    kinds = {type(s).__name__: t for s, t in zip(program.steps, told, strict=True)}
    assert kinds["DeltaStep"] in names.values()
    assert kinds["UnionStep"] is None


def test_what_is_read_below_many_shared_nodes_is_found_in_one_pass():
    """There are 2^40 ways from the last of them to the collection."""
    shared = [Source("u0", ("c0",), (0,))]
    shared += [Union((i, i), (0,)) for i in range(40)]
    joined = Join((40, 41), (0, 1), JoinKind.INNER, (JoinKey(0, 1, False),), (), (), None)
    plan = plan_of(*shared, Source("u1", ("c1",), (1,)), joined, types=(LONG, LONG))
    program = program_of(plan)
    told = read_by_steps(plan, program, {"u0": "sales", "u1": "shops"})
    lookups = [i for i, step in enumerate(program.steps) if isinstance(step, LookupStep)]
    assert {told[i] for i in lookups} == {"sales by c0", "shops by c1"}
