"""Reading the plan that the driver exports: all of it, and nothing else."""

from __future__ import annotations

import copy
import json

import pytest

from slackwater.planner.plan.algebra import (
    Aggregate,
    AggregateCall,
    Bound,
    Computed,
    Constant,
    Expand,
    Filter,
    Generate,
    Handle,
    IndexedCollection,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    NullAware,
    Other,
    PlanColumn,
    Project,
    Sort,
    SortKey,
    Source,
    SparkType,
    TemporalFilter,
    Union,
    Window,
    WindowCall,
)
from slackwater.planner.plan.analyzed import analyzed_plan
from slackwater.repr.errors import FatalError
from slackwater.repr.relation import RelationDesc

SCHEMA = RelationDesc.of(a="integer")


def column(name="c", **changes):
    return {"name": name, "type": "integer", "key_issues": [], "nullable": True, **changes}


def handle(*columns, plain=False, **changes):
    return {
        "sql": f"f{columns}",
        "type": "integer",
        "key_issues": [],
        "nullable": True,
        "deterministic": True,
        "foldable": False,
        "throws": False,
        "uses_now": False,
        "digest": f"d{columns}",
        "shape": "f",
        "reads": list(columns),
        "sure": False,
        "columns": list(columns),
        "column": columns[0] if plain else None,
        **changes,
    }


def source(*out):
    fields = [f"f{number}" for number in out]
    return {"op": "source", "collection": "u1", "fields": fields, "in": [], "out": list(out)}


def answer(nodes, columns, handles, width=1):
    schema = RelationDesc.of(**{f"n{i}": "integer" for i in range(width)})
    return {
        "plan": "plan-1",
        "version": 3,
        "collections": ["u1"],
        "columns": [column() for _ in range(columns)],
        "handles": handles,
        "nodes": nodes,
        "root": len(nodes) - 1,
        "selects": False,
        "views": [],
        "indexed": [],
        "names": [c.name for c in schema.columns],
        "schema": json.loads(schema.to_json()),
    }


def read(value):
    return analyzed_plan(json.dumps(value))


def projected():
    nodes = [source(0), {"op": "project", "exprs": [0], "in": [0], "out": [1]}]
    return answer(nodes, 2, [handle(0)])


def test_columns_handles_and_the_query_are_as_they_were_told():
    value = projected()
    value["columns"][1] = column(
        "s", type="string", collations={"type": "UTF8_LCASE"}, key_issues=["collation"]
    )
    value["handles"] = [handle(0, throws=True, uses_now=True, nullable=False)]
    plan = read(value)
    text = SparkType('"string"', (("type", "UTF8_LCASE"),), frozenset({"collation"}))
    number = SparkType('"integer"')
    assert plan.columns == (PlanColumn("c", number, True), PlanColumn("s", text, True))
    assert plan.handles == (
        Handle("f(0,)", number, False, True, False, True, True, (0,), None, "d(0,)", "f", (0,)),
    )
    assert (plan.root, plan.names, plan.schema) == (1, ("n0",), RelationDesc.of(n0="integer"))


def test_an_index_has_a_source_of_its_own_or_one_of_the_query():
    value = projected()
    before = read(value)
    value["nodes"].append(source(2, 3))
    value["columns"] += [column(), column()]
    value["handles"].append(handle(3))
    value["indexed"] = [
        {"node": 2, "keys": [1], "forms": [1], "name": "of c"},
        {"node": 0, "keys": [0], "forms": [0], "name": "i"},
    ]
    plan = read(value)
    assert plan.indexed == (
        IndexedCollection(2, (1,), (1,), "of c"),
        IndexedCollection(0, (0,), (0,), "i"),
    )
    assert plan.nodes[: plan.root + 1] == before.nodes
    for wrong in ({"node": 1}, {"node": 3}, {"keys": [0]}, {"keys": []}, {"forms": [1, 1]}):
        value["indexed"] = [{"node": 2, "keys": [1], "forms": [1], "name": "i", **wrong}]
        with pytest.raises(FatalError):
            read(value)


def test_every_operator_is_read():
    nodes = [
        source(0, 1),
        {"op": "constant", "rows": 2, "digest": "x", "in": [], "out": [2, 3]},
        {"op": "other", "name": "Sample", "reason": "none", "in": [], "out": [4]},
        {"op": "project", "exprs": [0, 1], "in": [0], "out": [5, 6]},
        {"op": "filter", "conjuncts": [2], "in": [3], "out": [5, 6]},
        {
            "op": "join",
            "kind": "left_outer",
            "keys": [{"left": 2, "right": 3, "null_safe": True}],
            "residual": [4],
            "null_aware": [{"condition": 4, "left": 2, "right": 3}],
            "exists": None,
            "in": [4, 1],
            "out": [5, 6, 2, 3],
        },
        {
            "op": "aggregate",
            "groups": [{"handle": 3, "column": 7}],
            "aggregates": [
                {
                    "function": "sum",
                    "handle": 4,
                    "args": [2],
                    "distinct": True,
                    "filter": 3,
                    "in_order": False,
                    "column": 8,
                }
            ],
            "results": [5],
            "session": None,
            "in": [5],
            "out": [9],
        },
        {
            "op": "window",
            "functions": [
                {
                    "function": "lag",
                    "handle": 6,
                    "args": [6],
                    "rows": True,
                    "in_order": True,
                    "column": 10,
                }
            ],
            "partition": [6],
            "order": [{"handle": 6, "ascending": False, "nulls_first": True}],
            "in": [6],
            "out": [9, 10],
        },
        {"op": "expand", "projections": [[6], [7]], "in": [7], "out": [11]},
        {
            "op": "generate",
            "handle": 8,
            "outer": True,
            "kept": [],
            "generated": [12],
            "in": [8],
            "out": [12],
        },
        {"op": "union", "in": [9, 2], "out": [13]},
        {
            "op": "sort",
            "order": [{"handle": 9, "ascending": True, "nulls_first": False}],
            "global": True,
            "in": [10],
            "out": [13],
        },
        {"op": "limit", "count": None, "offset": 3, "in": [11], "out": [13]},
    ]
    handles = [
        handle(0, plain=True),
        handle(1),
        handle(5),
        handle(3),
        handle(3, 5),
        handle(7, 8),
        handle(9),
        handle(10),
        handle(11),
        handle(13),
    ]
    assert read(answer(nodes, 14, handles)).nodes == (
        Source("u1", ("f0", "f1"), (0, 1)),
        Constant(2, "x", (2, 3)),
        Other("Sample", "none", (4,)),
        Project((0,), (5, 6), (0, 1)),
        Filter((3,), (5, 6), (2,)),
        Join(
            (4, 1),
            (5, 6, 2, 3),
            JoinKind.LEFT_OUTER,
            (JoinKey(2, 3, True),),
            (4,),
            (NullAware(4, 2, 3),),
            None,
        ),
        Aggregate(
            (5,), (9,), (Computed(3, 7),), (AggregateCall("sum", 4, (2,), True, 3, 8),), (5,)
        ),
        Window(
            (6,),
            (9, 10),
            (WindowCall("lag", 6, (6,), True, 10, True),),
            (6,),
            (SortKey(6, False, True),),
        ),
        Expand((7,), (11,), ((6,), (7,))),
        Generate((8,), (12,), 8, True, (), (12,)),
        Union((9, 2), (13,)),
        Sort((10,), (13,), (SortKey(9, True, False),), True),
        Limit((11,), (13,), None, 3),
    )


def temporal(comparison="<="):
    bound = {"comparison": comparison, "handle": 0}
    nodes = [source(0), {"op": "temporal", "bounds": [bound], "in": [0], "out": [0]}]
    return answer(nodes, 1, [handle(0)])


def test_a_temporal_filter_makes_the_contents_depend_on_time():
    plan = read(temporal())
    assert plan.nodes[1] == TemporalFilter((0,), (0,), (Bound("<=", 0),))
    assert plan.depends_on_time
    assert not read(projected()).depends_on_time
    with pytest.raises(FatalError, match="comparison <>"):
        read(temporal("<>"))


def test_so_does_any_use_of_the_time():
    value = projected()
    value["handles"] = [handle(0, uses_now=True)]
    assert read(value).depends_on_time


@pytest.mark.parametrize(
    ("kind", "exists", "out"),
    [("left_semi", None, [0]), ("left_anti", None, [0]), ("existence", 2, [0, 2])],
)
def test_joins_that_only_ask_keep_the_left_columns(kind, exists, out):
    join = {"op": "join", "kind": kind, "keys": [], "residual": [0], "null_aware": []}
    join |= {"exists": exists, "in": [0, 1], "out": out}
    value = answer([source(0), source(1), join], 2 + (exists is not None), [handle(0, 1)], len(out))
    assert read(value).nodes[2].kind is JoinKind(kind)
    join["out"] = [0, 1]
    with pytest.raises(FatalError, match="node 2"):
        read(value)


def change(path, new):
    def changed():
        value = copy.deepcopy(projected())
        *ways, last = path
        place = value
        for way in ways:
            place = place[way]
        if new is None:
            del place[last]
        else:
            place[last] = new
        return value

    return changed


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (change(["version"], 2), "version 2"),
        (change(["nodes", 1, "op"], "shuffle"), "operator shuffle"),
        (change(["nodes", 1, "hint"], "x"), "not known: hint"),
        (change(["handles", 0, "hint"], "x"), "not known: hint"),
        (change(["columns", 0, "hint"], "x"), "not known: hint"),
        (change(["hint"], "x"), "not known: hint"),
        (change(["nodes", 1, "exprs"], None), "KeyError"),
        (change(["handles", 0, "digest"], None), "KeyError"),
        (change(["names"], None), "KeyError"),
        (change(["handles", 0, "nullable"], 1), "no bool"),
        (change(["root"], True), "no int"),
        (change(["root"], "1"), "no int"),
        (change(["nodes", 1, "exprs"], 0), "no list"),
        (change(["root"], 2), "no node 2"),
        (change(["root"], -1), "no node -1"),
        (change(["nodes", 1, "in"], [1]), "has the inputs"),
        (change(["nodes", 1, "in"], [0, 0]), "has the inputs"),
        (change(["nodes", 1, "in"], []), "has the inputs"),
        (change(["nodes", 0, "in"], [0]), "has the inputs"),
        (change(["nodes", 1, "exprs"], [1]), "handle 1"),
        (change(["handles", 0, "columns"], [1]), "reads columns"),
        (change(["nodes", 1, "exprs"], [0, 0]), "other columns"),
        (change(["nodes", 1, "exprs"], []), "other columns"),
        (change(["nodes", 1, "out"], [0]), "has begun"),
        (change(["nodes", 1, "out"], [2]), "not every column"),
        (change(["nodes", 0, "fields"], []), "other columns"),
        (change(["names"], []), "other columns than the query"),
    ],
)
def test_what_is_not_as_described_is_a_fault(value, message):
    with pytest.raises(FatalError, match=message):
        read(value())


def test_the_fingerprint_is_of_what_is_computed():
    known = read(projected()).fingerprint
    for path, new in (
        (["handles", 0, "sql"], "x"),
        (["columns", 1, "name"], "x"),
        (["plan"], "plan-9"),
        (["selects"], True),
    ):
        assert read(change(path, new)()).fingerprint == known
    for path, new in (
        (["handles", 0, "digest"], "x"),
        (["handles", 0, "nullable"], False),
        (["columns", 1, "type"], "long"),
        (["nodes", 0, "collection"], "u2"),
        (["nodes", 0, "fields"], ["g"]),
        (["names"], ["g"]),
    ):
        assert read(change(path, new)()).fingerprint != known


def test_the_fingerprint_is_of_the_plan_in_which_no_view_stays_whole():
    expanded = {key: value for key, value in projected().items() if key != "plan"}
    whole = change(["handles", 0, "digest"], "x")()
    found = read({**whole, "expanded": expanded})
    assert found.fingerprint == read(expanded).fingerprint != read(whole).fingerprint
    assert found.handles == read(whole).handles
    with pytest.raises(FatalError, match="a plan of version 2"):
        read({**whole, "expanded": {**expanded, "version": 2}})
