"""Requests as types: what the shim sends is understood, and nothing else."""

import json

import pytest

from slackwater.adapter import protocol
from slackwater.adapter.catalog.context import Context
from slackwater.adapter.time.selection import AtLeastTimestamp, AtTimestamp
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.server.decoding import decode, decoded

COLUMNS = RelationDesc.of(k="long")
SCHEMA = json.loads(COLUMNS.to_json())
FILE = {"uri": "file:///a", "rows": 2, "size_bytes": 3, "modified_ms": 4}
TARGET = {"id": "u4", "replaces": None, "shard": 7, "schema": SCHEMA}
STAGED = {
    "namespace": ["default"],
    "name": "t",
    "schema": SCHEMA,
    "properties": {"a": "b"},
    "comment": None,
    "mode": "create",
}
ROWS = {"mode": "diff", "inline": ["x"], "files": [FILE]}


def asked(kind, **body):
    return decode(kind, body)[1]


def refusal(kind, body):
    with pytest.raises(SlackwaterError) as refused:
        decode(kind, body)
    assert refused.value.condition == "SLACKWATER_INVALID_REQUEST"
    assert refused.value.sqlstate == "08P01"
    return refused.value.parameters


def test_who_calls_is_told_apart_from_what_is_asked():
    context = {"catalog": "c", "namespace": ["a", "b"], "user": "me", "settings": {}}
    body = {"session": "app/1", "execution": "e", "context": context, "internal": True}
    caller, plan = decode(protocol.Plan, {**body, "transaction": "open", "text": "BEGIN"})
    assert plan == protocol.Plan("BEGIN")
    assert caller.context == Context("c", ("a", "b"), "me", {})
    assert (caller.session, caller.execution) == ("app/1", "e")
    assert (caller.transaction, caller.internal) == ("open", True)


def test_each_call_has_a_name_of_its_own():
    assert (
        decode(protocol.Plan, {"text": ""})[0].call != decode(protocol.Plan, {"text": ""})[0].call
    )


def test_a_context_without_names_is_that_of_nobody():
    given = {"catalog": "", "namespace": [], "user": None}
    caller, _ = decode(protocol.Release, {"context": given})
    assert caller.where == Context("slackwater", ("default",), "anonymous", None, ())


def test_times_of_reads():
    relations = [
        {"id": "u1", "as_of": None},
        {"id": "u2", "as_of": {"at": 3}, "not_null": ["k"]},
        {"id": "u3", "as_of": {"at_least": 4}},
    ]
    bind = asked(protocol.Bind, relations=relations, as_of={"at": 9}, write_targets=["u9"])
    assert [each.as_of for each in bind.relations] == [None, AtTimestamp(3), AtLeastTimestamp(4)]
    assert bind.relations[1].not_null == ("k",)
    assert (bind.as_of, bind.write_targets) == (AtTimestamp(9), ("u9",))


def test_a_write_of_one_table_and_of_several_are_one_type():
    one = asked(protocol.WriteTables, write_id="w", hold="h", table="u1", **ROWS)
    (rows,) = one.rows
    assert (one.write_id, one.hold, rows.table, rows.write_id) == ("w", "h", "u1", "w")
    assert rows.mode is protocol.WriteMode.DIFF
    assert rows.files == (protocol.StagedFile("file:///a", 2, 3, 4),)
    parts = [{"write_id": name, "table": name, **ROWS} for name in ("u1", "u2")]
    several = asked(protocol.WriteTables, write_id="w", hold=None, writes=parts)
    assert [(each.table, each.write_id) for each in several.rows] == [("u1", "u1"), ("u2", "u2")]


def test_a_definition_goes_back_with_its_target():
    stated = {**STAGED, "target": TARGET, "as_select": True}
    write = asked(
        protocol.WriteTables,
        write_id="w",
        hold=None,
        table=None,
        shard=7,
        definition=stated,
        **ROWS,
    )
    assert write.definition == protocol.Definition(
        protocol.StageTable(
            protocol.NewTable(("default",), "t", COLUMNS, {"a": "b"}, None),
            protocol.TableMode.CREATE,
        ),
        protocol.StagedTarget("u4", None, 7, COLUMNS),
        True,
    )
    assert write.rows[0].table is None


def test_changes_of_a_table():
    changes = [
        {"add_column": {"name": ["v"], "type": "long", "nullable": True}},
        {"set_nullability": {"name": ["v"], "nullable": True}},
        {"set_column_comment": {"name": ["v"], "comment": "c"}},
        {"set_property": {"name": "p", "value": "1"}},
        {"remove_property": "p"},
        {"set_comment": None},
        {"rename_column": {"from": ["a"], "to": "b"}},
        {"drop_column": ["a"]},
        {"set_location": "/x"},
        {"other": "ClusterBy"},
    ]
    altered = asked(protocol.AlterTable, namespace=["default"], name="t", changes=changes)
    assert altered.changes == (
        protocol.AddColumn(("v",), "long", True),
        protocol.SetNullability(("v",), True),
        protocol.SetColumnComment(("v",), "c"),
        protocol.SetProperty("p", "1"),
        protocol.RemoveProperty("p"),
        protocol.SetComment(""),
        protocol.UnsupportedChange("rename_column"),
        protocol.UnsupportedChange("drop_column"),
        protocol.UnsupportedChange("set_location"),
        protocol.UnsupportedChange("other", "ClusterBy"),
    )


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (protocol.Release, {"holds": [], "more": 1}, "it has unknown fields: more"),
        (protocol.Plan, {}, "it lacks the field text"),
        (protocol.Bind, {"relations": [{"id": "u1", "when": 3}]}, "it has unknown fields: when"),
        (protocol.Bind, {"relations": [{"id": "u1", "as_of": {"by": 3}}]}, "by is no time"),
        (
            protocol.WriteTables,
            {"write_id": "w", "hold": None, "writes": [], "table": "u1"},
            "table",
        ),
        (protocol.StageTable, {**STAGED, "mode": "merge"}, "TableMode"),
        (protocol.Release, {"context": {"role": "admin"}}, "it has unknown fields: role"),
        (protocol.ListObjects, {"namespace": None}, "None"),
    ],
)
def test_a_field_that_the_request_does_not_have_is_refused(kind, body, reason):
    # The condition is SLACKWATER_INVALID_REQUEST.
    assert reason in refusal(kind, body)["reason"]


@pytest.mark.parametrize("raw", [b"{", b"[]", b"1", b'"text"', b"\xff"])
def test_what_is_no_object_is_refused(raw):
    with pytest.raises(SlackwaterError) as refused:
        decoded(protocol.Release, raw)
    assert refused.value.condition == "SLACKWATER_INVALID_REQUEST"


def test_nothing_is_an_empty_object():
    assert decoded(protocol.Release, b"")[1] == protocol.Release()
