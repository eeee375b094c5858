"""Queries whose schemas get other names, and nothing else changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.planner.parser.schema_names import NamedRelations, with_schemas
from slackwater.repr.relation import quote_identifier

SWAPPED = {"prod": "stage", "stage": "prod"}
RELATIONS = {("prod", "t"), ("stage", "x `y`"), ("other", "z")}


def renamed(text, catalog="slackwater", names=SWAPPED):
    return with_schemas(text, NamedRelations(catalog, RELATIONS), names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM prod.t", "SELECT * FROM `stage`.t"),
        ("SELECT prod.t.a, t.b FROM PROD . `T` x", "SELECT `stage`.t.a, t.b FROM `stage` . `T` x"),
        ("FROM slackwater.stage.`x ``y```", "FROM slackwater.`prod`.`x ``y```"),
        ("FROM prod /* of */ . t", "FROM `stage` /* of */ . t"),
        ("SELECT prod.t.* FROM prod.t |> LIMIT 1", "SELECT `stage`.t.* FROM `stage`.t |> LIMIT 1"),
    ],
)
def test_the_names_of_relations_follow(text, expected):
    assert renamed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'prod.t', \"prod.t\", 1.5 FROM other.z -- prod.t",
        "SELECT prod.u FROM other.z AS prod",
        "SELECT a.prod.t FROM other.z AS a",
        "FROM other.prod.t",
        "FROM slackwater.t",
        "SELECT 'prod.t",
        "",
    ],
)
def test_what_only_looks_like_one_stays(text):
    assert renamed(text) == text


def test_in_another_catalog_only_whole_names_are_ours():
    assert (
        renamed("SELECT * FROM prod.t, slackwater.prod.t", "spark_catalog")
        == "SELECT * FROM prod.t, slackwater.`stage`.t"
    )


texts = st.text(
    st.characters(blacklist_categories=("Cs",), blacklist_characters="`\x00"), min_size=1
)


@given(texts, texts)
def test_any_name_can_be_given(name, other):
    text = f"SELECT * FROM {quote_identifier(name)}.t, {quote_identifier(other)}.t"
    named = NamedRelations("slackwater", {(name.casefold(), "t"), (other.casefold(), "t")})
    there = {name.casefold(): other, other.casefold(): name}
    if name.casefold() == other.casefold():
        return
    swapped = with_schemas(text, named, there)
    assert swapped == f"SELECT * FROM {quote_identifier(other)}.t, {quote_identifier(name)}.t"
    assert with_schemas(swapped, named, there) == text
