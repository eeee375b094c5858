"""What metadata calls of JDBC find: patterns, types of tables, columns."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.unit.adapter.test_catalog import item

from slackwater.adapter.catalog.model import CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.catalog.search import (
    TABLE_TYPES,
    found_columns,
    found_relations,
    found_schemas,
    matching,
    of_types,
)
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.repr.ids import user_id
from slackwater.repr.relation import Column, RelationDesc


@pytest.mark.parametrize(
    ("pattern", "found", "left_out"),
    [
        (None, ["", "anything", "a\nb"], []),
        ("%", ["", "anything", "a\nb"], []),
        ("", [""], ["a"]),
        ("t", ["t", "T"], ["", "tt", "at"]),
        ("t%", ["t", "T1", "t\n2"], ["at"]),
        ("%t%", ["t", "atb"], ["a"]),
        ("t_1", ["t_1", "tx1", "t\n1"], ["t1", "txx1"]),
        (r"t\_1", ["t_1", "T_1"], ["tx1", r"t\_1"]),
        (r"100\%", ["100%"], ["1000", r"100\%"]),
        (r"a\\b", [r"a\b"], [r"a\\b", "ab"]),
        (r"a\b", [r"a\b"], ["ab"]),
        ("a\\", ["a\\"], ["a"]),
        (r"\\%", ["\\", r"\x"], ["%"]),
        ("a.b", ["a.b", "A.B"], ["axb"]),
        ("a`b", ["a`b"], ["ab"]),
        ("[a-z]*", ["[a-z]*"], ["abc", "a"]),
        ("(", ["("], [""]),
        ("größe", ["größe", "GRÖSSE", "Größe"], ["grose"]),
        ("gr__e", ["größe"], ["grüner"]),
        ("STRASSE", ["straße", "strasse"], ["strase"]),
        ("表%", ["表", "表一"], ["一表"]),
    ],
)
def test_patterns(pattern, found, left_out):
    matches = matching(pattern)
    assert [name for name in (*found, *left_out) if matches(name)] == found


@pytest.fixture(name="state", scope="module")
def catalog_of_all_kinds():
    """Each kind of object, and names that differ in case or need quotes."""
    kinds = [kind for kind in ItemKind if kind is not ItemKind.SYSTEM_TABLE]
    items = [item(number, f"r{number}", kind=kind) for number, kind in enumerate(kinds, start=10)]
    odd = item(30, "odd.na`me ü", schema="Sales")
    return CatalogState.of(
        [SchemaEntry(user_id(1), "default"), SchemaEntry(user_id(2), "Sales"), *system_schemas()],
        [*items, odd, *system_items()],
    )


def test_schemas_by_pattern(state):
    assert [schema.name for schema in found_schemas(state, "s%")] == ["Sales"]
    everything = [schema.name for schema in found_schemas(state, None)]
    assert everything == sorted(everything)
    assert {"Sales", "default", "mz_catalog", "mz_internal"} <= set(everything)
    assert found_schemas(state, "nothing") == []


def test_relations_are_what_can_be_read(state):
    found = list(found_relations(state, "default", None))
    assert {each.kind for each in found} == {
        ItemKind.TABLE,
        ItemKind.SOURCE,
        ItemKind.VIEW,
        ItemKind.MATERIALIZED_VIEW,
    }
    assert {each.kind for each in found_relations(state, "mz%", None)} == {ItemKind.SYSTEM_TABLE}
    assert all(kind in TABLE_TYPES for kind in ItemKind if kind.is_relation)
    (odd,) = found_relations(state, None, "ODD.NA`ME _")
    assert (odd.schema_name, odd.name) == ("Sales", "odd.na`me ü")


def test_types_of_tables(state):
    found = list(found_relations(state, "default", None))
    views = of_types(("VIEW", "MATERIALIZED VIEW", "NO SUCH TYPE"))
    assert {each.kind for each in filter(views, found)} == {
        ItemKind.VIEW,
        ItemKind.MATERIALIZED_VIEW,
    }
    assert list(filter(of_types(()), found)) == found
    assert list(filter(of_types(("NO SUCH TYPE",)), found)) == []


def test_columns_have_their_place_and_their_comment_apart():
    columns = (
        Column("k", '"long"', False, json.dumps({"comment": "the key"})),
        Column("Name", '"string"', True, json.dumps({"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"})),
    )
    found = found_columns(replace(item(1, "t"), desc=RelationDesc(columns)), matching(None))
    assert found == [
        {
            "position": 1,
            "name": "k",
            "type": "long",
            "nullable": False,
            "comment": "the key",
            "metadata": {},
        },
        {
            "position": 2,
            "name": "Name",
            "type": "string",
            "nullable": True,
            "comment": None,
            "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"},
        },
    ]
    (second,) = found_columns(replace(item(1, "t"), desc=RelationDesc(columns)), matching("n%"))
    assert second["position"] == 2
    assert found_columns(replace(item(1, "t"), desc=None), matching(None)) == []
