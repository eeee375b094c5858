"""Which nodes of a plan have their rows by some keys in an index, and how steps see them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slackwater.planner.delta.explain import explain_program, read_by_steps
from slackwater.planner.delta.lowering import index_of, program_of, reordered
from slackwater.planner.delta.program import (
    DeltaStep,
    IndexedRows,
    LookupStep,
    OfHandle,
    SeenFilter,
    SeenMap,
    SemiJoinStep,
    Size,
)
from slackwater.planner.delta.served import served
from slackwater.planner.plan.algebra import (
    Aggregate,
    AnalyzedPlan,
    Computed,
    Filter,
    Handle,
    IndexedCollection,
    Join,
    JoinKey,
    JoinKind,
    PlanColumn,
    Project,
    Source,
    SparkType,
)
from slackwater.repr.relation import RelationDesc

LONG = SparkType('"long"')
DOUBLE = SparkType('"double"', key_issues=frozenset({"floating"}))
COLUMNS = 12
WHOLE = Source("u1", ("k", "v", "s"), (9, 10, 11))
"""The node of an index, whose columns are the last."""


def handle(number, **changes):
    """That of a column; its shape is that of every column."""
    made = Handle(f"c{number}", LONG, True, True, False, False, False, (number,), number, "d")
    return replace(made, **{"shape": "column", "reads": (number,), "sure": True, **changes})


def plan_of(*nodes, keys=((9,),), more=()):
    """The handles are its columns, and `more`; of `keys` there are indexes, by their handles."""
    columns = tuple(PlanColumn(f"c{n}", LONG, True) for n in range(COLUMNS))
    handles = (*map(handle, range(COLUMNS)), *more)
    indexed = tuple(
        IndexedCollection(len(nodes), each, each, f"i{number}") for number, each in enumerate(keys)
    )
    plan = AnalyzedPlan(
        (*nodes, WHOLE), len(nodes) - 1, columns, handles, (), (), RelationDesc(()), ""
    )
    return replace(plan, indexed=indexed)


NARROW = Source("u1", ("v", "k"), (0, 1))


def test_a_source_has_its_columns_at_their_places():
    found = served(plan_of(NARROW), 0, (1,), {})
    assert (found.order, found.stages, found.columns) == ((0,), (), (1, 0, None))
    assert served(plan_of(NARROW), 0, (0,), {}) is None
    assert served(plan_of(NARROW), 0, (1, 0), {}) is None
    assert served(plan_of(Source("u2", ("v", "k"), (0, 1))), 0, (1,), {}) is None


def test_keys_are_the_same_in_any_order():
    plan = plan_of(NARROW, keys=((9,), (9, 10)))
    assert served(plan, 0, (0, 1), {}).order == (1, 0)
    assert served(plan, 0, (1, 0), {}).order == (0, 1)
    assert served(plan, 0, (1, 1), {}) is None


def test_a_key_may_be_read_under_another_number():
    join = Join((0, 1), (0, 1, 2), JoinKind.INNER, (), (), (), None)
    plan = plan_of(NARROW, Source("u2", ("x",), (2,)), join)
    assert served(plan, 0, (7,), {7: 6, 6: 1}).order == (0,)
    assert served(plan, 0, (7,), {7: 2}) is None


def test_filters_and_projections_are_stages():
    filtered = Filter((0,), (0, 1), (0,))
    renamed = Project((1,), (2,), (1,))
    computed = Project((2,), (3, 4), (2, COLUMNS))
    more = (handle(2, column=None, shape="twice"),)
    plan = plan_of(NARROW, filtered, renamed, computed, more=more)
    first = SeenFilter((1, 0, None), (0,))
    assert served(plan, 1, (1,), {}).stages == (first,)
    found = served(plan, 2, (2,), {})
    assert (found.stages, found.columns) == ((first,), (2, None, None))
    found = served(plan, 3, (3,), {})
    assert found.columns == (3, 4)
    assert found.stages == (first, SeenMap((2, None, None), (2, COLUMNS)))
    assert served(plan, 3, (4,), {}) is None


@pytest.mark.parametrize("kind", [Filter, Project])
def test_a_row_of_the_index_makes_nothing_fail_that_the_node_has_not(kind):
    node = kind((0,), (0, 1) if kind is Filter else (2, 3), (0, 1))
    plan = plan_of(NARROW, node)
    key = 1 if kind is Filter else 3
    assert served(plan, 1, (key,), {}) is not None
    unsure = replace(plan, handles=(handle(0, sure=False), *plan.handles[1:]))
    assert served(unsure, 1, (key,), {}) is None
    unsure_key = replace(plan, handles=(*plan.handles[:9], handle(9, sure=False)))
    assert served(unsure_key, 1, (key,), {}) is None


def test_expressions_are_the_same_over_the_same_columns():
    sums = [handle(0, column=None, shape="plus", reads=reads) for reads in ((0, 1), (1, 0))]
    more = (*sums, handle(9, column=None, shape="plus", reads=(9, 10)))
    plan = plan_of(NARROW, keys=((COLUMNS + 2,),), more=more)
    assert served(plan, 0, (COLUMNS,), {}) is None
    assert served(plan, 0, (COLUMNS + 1,), {}) is not None


def test_a_key_may_be_computed_below_the_join():
    """As CHAR is padded where it is read."""
    computed = Project((0,), (4, 5), (COLUMNS, COLUMNS + 2))
    more = [handle(n, column=None, shape="padded") for n in (1, 9)]
    again = handle(4, column=None, shape="padded")
    plan = plan_of(NARROW, computed, keys=((COLUMNS + 1,),), more=(*more, again))
    found = served(plan, 1, (4,), {})
    assert (found.order, found.columns) == ((0,), (4, 5))
    assert served(plan, 1, (5,), {}) is None
    # What is computed of the key is another key.
    assert served(plan, 1, (COLUMNS + 2,), {}) is None


def test_of_a_key_with_two_forms_none_is_served():
    """Zeros and texts in one struct: joins and indexes make them equal one after the other."""
    form = handle(9, column=None, shape="form")
    asked = handle(1, column=None, shape="form")
    plan = plan_of(NARROW, more=(form, asked))
    plan = replace(plan, indexed=(IndexedCollection(1, (9,), (COLUMNS,), "i"),))
    assert served(plan, 0, (COLUMNS + 1,), {}) is not None
    doubles = replace(plan, handles=(*plan.handles[:9], handle(9, type=DOUBLE), *plan.handles[10:]))
    assert served(doubles, 0, (COLUMNS + 1,), {}) is None


OTHER = Source("u2", ("x", "y"), (2, 3))


def joined(kind, *, residual=(), out=(0, 1, 2, 3)):
    """By ``k = x`` and ``v <=> y``."""
    keys = (JoinKey(1, 2, False), JoinKey(0, 3, True))
    join = Join((0, 1), out, kind, keys, residual, (), None)
    return plan_of(NARROW, OTHER, join, keys=((10, 9),))


def test_probes_have_the_order_of_the_index():
    plan = joined(JoinKind.INNER)
    program = program_of(plan, serves=True)
    (number,) = (n for n, each in enumerate(program.arrangements) if each.seen is not None)
    arranged = program.arrangements[number]
    assert (arranged.node, arranged.keys, arranged.null_safe) == (3, (10, 9), (True, True))
    assert (arranged.seen.node, arranged.seen.keys, arranged.seen.order) == (0, (1, 0), (1, 0))
    (lookup,) = (e for e in program.steps if isinstance(e, LookupStep) and e.arrangement == number)
    assert (lookup.keys, lookup.null_safe) == ((3, 2), (True, False))
    assert program.fields("u1") == {"k", "v", "s"}
    delta = program.steps[arranged.delta]
    assert (delta.fields, delta.columns) == (WHOLE.fields, WHOLE.out)
    alone = program_of(plan)
    assert [each.seen for each in alone.arrangements] == [None, None]
    assert alone.fields("u1") == {"k", "v"}
    sizes = [Size(10, 10), Size(10, 10)]
    assert reordered(plan, program, sizes) == program
    assert reordered(plan, alone, sizes) == alone


def test_an_order_moves_no_changes_of_an_index():
    """They are read before the first lookup that the index serves, which would come second."""
    star = Source("u2", ("x", "y"), (2, 3))
    other = Source("u3", ("z",), (4,))
    first = Join((0, 1), (2, 3, 0, 1), JoinKind.INNER, (JoinKey(2, 1, False),), (), (), None)
    second = Join((3, 2), (2, 3, 0, 1, 4), JoinKind.INNER, (JoinKey(3, 4, False),), (), (), None)
    plan = plan_of(star, NARROW, other, first, second)
    rows = {0: 10, 1: 6000, 5: 6000, 2: 10}

    def sizes(program):
        return [Size(rows[each.node], 10) for each in program.arrangements]

    alone = program_of(plan)
    assert reordered(plan, alone, sizes(alone)) != alone
    program = program_of(plan, serves=True)
    assert any(each.seen is not None for each in program.arrangements)
    assert reordered(plan, program, sizes(program)) == program


@pytest.mark.parametrize("residual", [(), (3,)])
def test_both_sides_of_a_semijoin_have_keys_in_the_order_of_the_index(residual):
    program = program_of(joined(JoinKind.LEFT_SEMI, residual=residual, out=(0, 1)), serves=True)
    (step,) = (each for each in program.steps if isinstance(each, SemiJoinStep))
    assert step.null_safe == (True, False)
    left = program.arrangements[step.left_arrangement]
    right = program.arrangements[step.right_arrangement]
    assert (left.node, left.seen.keys, left.seen.order) == (3, (0, 1), (0, 1))
    assert (right.seen, right.keys) == (None, (3, 2))


def test_partners_are_counted_in_an_index():
    """Its keys have another order than those of the join. Without it they are counted apart."""
    keys = (JoinKey(2, 1, False), JoinKey(3, 0, True))
    join = Join((0, 1), (2, 3), JoinKind.LEFT_ANTI, keys, (), (), None)
    plan = plan_of(OTHER, NARROW, join, keys=((10, 9),))
    found = []
    for serves in (True, False):
        program = program_of(plan, serves=serves)
        (step,) = (each for each in program.steps if isinstance(each, SemiJoinStep))
        sides = (step.left_arrangement, step.right_arrangement)
        found.append((step.null_safe, *(program.arrangements[side] for side in sides)))
    (_, left, right), (_, _, counted) = found
    assert [each[0] for each in found] == [(True, False), (False, True)]
    assert (left.seen, left.keys, right.seen.keys) == (None, (3, 2), (0, 1))
    assert (right.node, right.columns) == (3, WHOLE.out)
    assert (counted.seen, counted.keys, counted.columns) == (None, (1, 0), ())


NAMES = {"u1": "t", "u2": "u"}


@pytest.mark.parametrize(
    ("kind", "residual", "reads"),
    [
        (JoinKind.INNER, (), {"t by c10, c9 in the index i0", "u by c2, c3"}),
        (JoinKind.LEFT_SEMI, (3,), {"t by c10, c9 in the index i0; u by c3, c2"}),
    ],
)
def test_who_looks_up_in_an_index_names_it(kind, residual, reads):
    out = (0, 1, 2, 3) if kind is JoinKind.INNER else (0, 1)
    plan = joined(kind, residual=residual, out=out)
    program = program_of(plan, serves=True)
    told = read_by_steps(plan, program, NAMES)
    looking = [isinstance(step, LookupStep | SemiJoinStep) for step in program.steps]
    assert {text for text, looks in zip(told, looking, strict=True) if looks} == reads
    reasons = [row.reason or "" for row in explain_program(plan, NAMES)]
    assert [each.endswith("It looks up in the index i0.") for each in reasons] == [
        True,
        False,
        False,
    ]
    alone = read_by_steps(plan, program_of(plan), NAMES)
    assert not any("index" in (text or "") for text in alone)
    without = explain_program(plan, NAMES, resident=False)
    assert not any("index" in (row.reason or "") for row in without)


def test_an_operator_that_keeps_states_names_no_index():
    """Its groups are the keys of an index in which a join beside it looks up."""
    distinct = Aggregate((0,), (5,), (Computed(1, 4),), (), (4,))
    join = Join((0, 1), (0, 1, 5), JoinKind.INNER, (JoinKey(1, 5, False),), (), (), None)
    rows = explain_program(plan_of(NARROW, distinct, join), NAMES)
    told = {row.operator: row.reason or "" for row in rows}
    assert told["Join of 2"].endswith("It looks up in the index i0.")
    assert told["Distinct"] == "Only the groups that changed are touched."


def test_an_index_on_a_collection_arranges_it_as_it_is():
    root = Project((0,), (3, 4, 5, 6), (0, 1, 2, 1))
    source = Source("u1", ("k", "v", "s"), (0, 1, 2))
    plan = replace(plan_of(source, root, keys=()), names=("k", "v", "s", "key0"))
    program = index_of(plan, 1)
    assert program.index == IndexedRows(0, 0, (OfHandle(1),), (0, 1, 2), ("k", "v", "s"))
    assert [type(each) for each in program.steps] == [DeltaStep]
    padded = Project((0,), (3, 4, 5), (0, 1, COLUMNS))
    more = (handle(2, column=None, shape="padded"), handle(5, column=None, shape="lower"))
    above = Project((1,), (6, 7, 8, 9), (3, 4, 5, 5))
    names = ("k", "v", "s", "key0")
    read = replace(plan_of(source, padded, above, keys=(), more=more), names=names)
    found = index_of(read, 1).index
    assert found == IndexedRows(0, 0, (OfHandle(COLUMNS),), (0, 1, 2), ("k", "v", "s"))
    computed = replace(above, exprs=(3, 4, 5, COLUMNS + 1))
    assert index_of(replace(read, nodes=(source, padded, computed, WHOLE)), 1).index.node == 2
    fewer = index_of(replace(plan, names=("k", "v", "t", "key0")), 1)
    assert fewer.index.node == 1
