"""DROP NOT NULL: what it changes, and what stands in its way."""

import pytest
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import CreateItem
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import Column, RelationDesc

K = Column("k", '"integer"', nullable=False)
V = Column("v", '"string"')


@pytest.fixture
def place(env):
    place = Place(env)
    place.coordinator.calls()["/v1/catalog/create_table"](
        {
            "session": "app/1",
            "namespace": ["default"],
            "name": "t",
            "schema": RelationDesc((K, V)).to_json(),
        }
    )
    yield place
    place.close()


def alter(place, *name, nullable=True):
    change = {"set_nullability": {"name": list(name), "nullable": nullable}}
    return place.coordinator.calls()["/v1/catalog/alter_table"](
        {"session": "app/1", "namespace": ["default"], "name": "t", "changes": [change]}
    )


def above(place, kind, *columns):
    table = place.item("t")
    item = CatalogItem(
        place.env.catalog.allocate_ids()[0],
        kind,
        "default",
        "above",
        "",
        RelationDesc(columns) if columns else None,
        depends_on=(table.id,),
    )
    place.env.catalog.transact([CreateItem(item)])


def condition(action):
    with pytest.raises(SlackwaterError) as caught:
        action()
    return caught.value.condition


def test_rows_from_before_and_after_are_read_together(place):
    place.write("t", {"k": 1, "v": "one"})
    assert condition(lambda: place.write("t", {"k": None, "v": "none"})) == (
        "SLACKWATER_NOT_NULL_VIOLATION"
    )
    altered = alter(place, "K")
    assert [field["nullable"] for field in altered["schema"]["fields"]] == [True, True]
    assert alter(place, "k")["schema"] == altered["schema"]
    place.write("t", {"k": None, "v": "none"})
    for _ in range(2):
        assert sorted(place.read("t"), key=repr) == [
            {"k": 1, "v": "one"},
            {"k": None, "v": "none"},
        ]
        item = place.item("t")
        assert item.create_sql.endswith("(`k` INT, `v` STRING)")
        assert place.env.persist.reads.state(item.shard_id).desc == item.desc
        place.restart()


def test_a_plan_from_before_is_refused(place):
    def bind(*not_null):
        relation = {"id": place.item("t").id, "not_null": not_null}
        body = {"session": "app/1", "relations": [relation]}
        bound = place.coordinator.calls()["/v1/bind"](body)
        place.coordinator.calls()["/v1/release"]({"holds": [bound["hold"]]})

    bind("k")
    alter(place, "k")
    mismatch = "INCOMPATIBLE_TABLE_CHANGE_AFTER_ANALYSIS.COLUMNS_MISMATCH"
    assert condition(lambda: bind("k")) == mismatch
    assert not place.env.storage.holds()
    bind()


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (ItemKind.MATERIALIZED_VIEW, (V,)),
        (ItemKind.SINK, ()),
        (ItemKind.VIEW, (K, V)),
    ],
)
def test_what_was_made_with_it_is_in_the_way(place, kind, columns):
    above(place, kind, *columns)
    assert condition(lambda: alter(place, "k")) == "SLACKWATER_DEPENDENT_OBJECTS"
    assert place.item("t").desc.columns == (K, V)


def test_a_view_that_promises_nothing_is_not_in_the_way(place):
    above(place, ItemKind.VIEW, V)
    alter(place, "k")
    assert all(column.nullable for column in place.item("t").desc.columns)


def test_other_changes_of_nullability_are_refused(place):
    assert condition(lambda: alter(place, "v", nullable=False)) == "SLACKWATER_UNSUPPORTED"
    assert condition(lambda: alter(place, "k", "x")) == "SLACKWATER_UNSUPPORTED"
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '1 h')")
    body = {
        "session": "app/1",
        "namespace": ["default"],
        "name": "ticks",
        "changes": [{"set_nullability": {"name": ["counter"], "nullable": True}}],
    }
    altered = place.coordinator.calls()["/v1/catalog/alter_table"]
    assert condition(lambda: altered(body)) == "SLACKWATER_UNSUPPORTED"
