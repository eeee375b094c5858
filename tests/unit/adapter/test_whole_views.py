"""What a dataflow is told of what it reads, which indexes it may use, and what runs ahead."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slackwater.adapter.catalog.details import (
    NO_DETAILS,
    IndexDetails,
    MaterializedViewDetails,
    TableDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.controllers.collections import running_ahead
from slackwater.adapter.controllers.dataflows import definition_of
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import user_id
from slackwater.repr.refresh import RefreshEvery, RefreshSchedule
from slackwater.repr.relation import RelationDesc

DEFINED = {"catalog": "slackwater", "namespace": ("default",)}
DAILY = RefreshSchedule((RefreshEvery(86_400_000, Timestamp(500)),))


def item(number, kind, *uses, details=NO_DETAILS, cluster=1):
    return CatalogItem(
        id=user_id(number),
        kind=kind,
        schema_name="default",
        name=f"o{number}",
        create_sql="CREATE",
        shard_id=number if kind in (ItemKind.TABLE, ItemKind.MATERIALIZED_VIEW) else None,
        desc=RelationDesc.of(k="integer") if kind.is_relation else None,
        depends_on=tuple(user_id(n) for n in uses),
        owner="me",
        details=details,
        cluster=user_id(cluster) if kind.is_on_cluster else None,
    )


def view(number, *uses):
    return item(number, ItemKind.VIEW, *uses, details=ViewDetails("SELECT 1", **DEFINED))


def index(number, on, cluster=1, keys=("k",), settings=None):
    details = IndexDetails(keys, settings=settings)
    return item(number, ItemKind.INDEX, on, details=details, cluster=cluster)


def maintained(number, *uses, refresh=None):
    details = MaterializedViewDetails("SELECT 1", refresh=refresh, **DEFINED)
    return item(number, ItemKind.MATERIALIZED_VIEW, *uses, details=details)


@pytest.fixture
def state():
    """A table, views over it in a row, and what is maintained of them.

    Of the views 2 has an index on the cluster of all, 3 on another one, 4 none.
    """
    table = item(1, ItemKind.TABLE, details=TableDetails())
    views = [view(2, 1), view(3, 2), view(4, 3)]
    maintain = [maintained(5, 4), maintained(6, 4, refresh=DAILY), maintained(7, 6)]
    indexes = [index(8, 2), index(9, 3, cluster=2), index(10, 1), index(11, 4)]
    items = [table, *views, *maintain, *indexes]
    return CatalogState.of([SchemaEntry(user_id(1), "default", "")], items)


@pytest.mark.parametrize(
    ("number", "whole"),
    [(5, (2, 4)), (6, ()), (7, ()), (8, (2,)), (9, (3,)), (10, ()), (11, (2, 4))],
)
def test_views_with_an_index_on_the_cluster_and_the_one_of_the_index_stay_whole(
    state, number, whole
):
    definition = definition_of(state.item(user_id(number)), state)
    assert definition.whole == tuple(map(user_id, whole))


@pytest.mark.parametrize(
    ("number", "read"),
    [(5, (1, 2, 3, 4)), (6, (1, 2, 3, 4)), (7, (6,)), (8, (1, 2)), (10, (1,)), (11, (1, 2, 3, 4))],
)
def test_a_definition_has_what_it_reads_down_to_what_is_stored(state, number, read):
    relations = definition_of(state.item(user_id(number)), state).relations
    assert [each["id"] for each in relations] == list(map(user_id, read))
    columns = json.loads(RelationDesc.of(k="integer").to_json())
    text = {"query": "SELECT 1", "catalog": "slackwater", "namespace": ["default"]}
    for each, at in zip(relations, read, strict=True):
        named = {"id": user_id(at), "schema_name": "default", "name": f"o{at}", "schema": columns}
        kind = state.item(user_id(at)).kind
        view = {"view": text, "properties": {}} if kind is ItemKind.VIEW else {}
        assert each == {**named, "kind": kind.value, **view}


def test_a_definition_says_nothing_that_may_change_without_it(state):
    """Else a comment would make a dataflow another one."""
    before = definition_of(state.item(user_id(5)), state)
    items = [replace(each, comment="new") for each in state.items.values()]
    after = CatalogState.of(state.schemas.values(), items)
    assert definition_of(after.item(user_id(5)), after) == before


def indexes_of(number, *items):
    state = CatalogState.of([SchemaEntry(user_id(1), "default", "")], items)
    return [each.query for each in definition_of(state.item(user_id(number)), state).indexes]


def selected(on, *keys):
    named = ", ".join(f"({key}) AS key{place}" for place, key in enumerate(keys))
    return f"SELECT *, {named} FROM `slackwater`.`default`.`o{on}`"


def test_a_dataflow_may_look_up_in_the_indexes_of_collections_on_its_cluster():
    table = item(1, ItemKind.TABLE, details=TableDetails())
    items = [
        *(table, view(2, 1), maintained(3, 2), maintained(4, 2, 3)),
        *(index(5, 1), index(6, 1, keys=("v", "k")), index(7, 1, cluster=2), index(8, 3)),
        *(index(9, 1, settings={"spark.sql.ansi.enabled": "false"}), index(10, 2)),
        maintained(11, 2, refresh=DAILY),
    ]
    of_table = [selected(1, "k"), selected(1, "v", "k")]
    assert indexes_of(3, *items) == of_table
    assert indexes_of(4, *items) == [*of_table, selected(3, "k")]
    # An index of a collection looks nothing up, one of a plain view does.
    assert indexes_of(5, *items) == []
    assert indexes_of(10, *items) == of_table
    assert indexes_of(11, *items) == []


def test_what_is_above_a_view_with_a_schedule_runs_ahead(state):
    assert running_ahead(state.topological()) == {user_id(6), user_id(7)}
