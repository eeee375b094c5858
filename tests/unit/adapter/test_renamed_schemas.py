"""Schemas that get other names: what is in them, and the definitions that name it."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.planner.planned import Answers

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER
from slackwater.adapter.catalog.details import (
    IndexDetails,
    MaterializedViewDetails,
    SinkDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.catalog.ops import CreateItem, RenameSchemas, apply
from slackwater.adapter.catalog.renamed_schemas import affected, renamed
from slackwater.adapter.catalog.render import current_sql
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.ids import user_id
from slackwater.repr.relation import RelationDesc
from slackwater.storage.sink_files import SinkConfig

TABLE, VIEW, MV, INDEX = (
    ItemKind.TABLE,
    ItemKind.VIEW,
    ItemKind.MATERIALIZED_VIEW,
    ItemKind.INDEX,
)
SWAPPED = {"prod": "Stage", "Stage": "prod"}


def item(number, schema, name, kind, details, *uses, sql=""):
    return CatalogItem(
        id=user_id(number),
        kind=kind,
        schema_name=schema,
        name=name,
        create_sql=sql,
        desc=RelationDesc.of(k="long") if kind.is_relation else None,
        depends_on=tuple(user_id(n) for n in uses),
        details=details,
    )


def view(number, schema, query, *uses, at=("default",), catalog="slackwater"):
    sql = f"CREATE VIEW `slackwater`.`{schema}`.`v{number}` AS {query}"
    details = ViewDetails(query, catalog, at)
    return item(number, schema, f"v{number}", VIEW, details, *uses, sql=sql)


def maintained(number, schema, query, *uses, at=("default",), asserting=None):
    sql = f"CREATE MATERIALIZED VIEW `slackwater`.`{schema}`.`v{number}` AS {query}"
    details = MaterializedViewDetails(query, "slackwater", at, {}, asserting=asserting)
    return replace(
        item(number, schema, f"v{number}", MV, details, *uses, sql=sql), cluster=DEFAULT_CLUSTER.id
    )


def blue_and_green():
    items = (
        item(10, "prod", "t", TABLE, None),
        item(11, "Stage", "t", TABLE, None),
        view(12, "prod", "SELECT k FROM t", 10, at=("PROD",)),
        maintained(13, "prod", "SELECT t.k FROM prod.t, Stage.v15", 10, 15, at=("prod",)),
        view(14, "default", "SELECT * FROM slackwater.prod.t", 10, catalog="spark_catalog"),
        maintained(15, "Stage", "SELECT k FROM stage.t", 11, asserting="SELECT f(c) FROM stage.t"),
        view(16, "default", "SELECT k FROM v14", 14),
        item(
            17,
            "prod",
            "i",
            INDEX,
            IndexDetails(("k", "prod.t.k + 1")),
            10,
            sql="CREATE INDEX `slackwater`.`prod`.`i` ON `slackwater`.`prod`.`t` (k, prod.t.k + 1)",
        ),
    )
    schemas = [SchemaEntry(user_id(1), "default"), SchemaEntry(user_id(2), "prod", "the good one")]
    return CatalogState.of(
        [*schemas, SchemaEntry(user_id(3), "Stage"), *system_schemas()],
        [*items, *system_items()],
    )


@contextmanager
def refused(condition):
    with pytest.raises(SlackwaterError) as caught:
        yield
    assert caught.value.condition == condition


def named(state):
    return {i.id: i.full_name.removeprefix("slackwater.") for i in state.items.values()}


def test_objects_keep_their_ids_and_what_depends_on_them():
    before = blue_and_green()
    after, diff = apply(before, renamed(before, SWAPPED))
    after.validate()
    assert after.schema("prod").id == user_id(3)
    assert (after.schema("STAGE").id, after.schema("stage").comment) == (user_id(2), "the good one")
    names = named(after)
    assert [names[user_id(n)] for n in (10, 11, 12, 14, 17)] == [
        "Stage.t",
        "prod.t",
        "Stage.v12",
        "default.v14",
        "Stage.i",
    ]
    assert after.used_by == before.used_by
    assert {s.id for s in after.items_in("prod")} == {s.id for s in before.items_in("stage")}
    assert (diff.created, diff.dropped) == ((), ())
    back, _ = apply(after, renamed(after, {"prod": "Stage", "Stage": "prod"}))
    assert named(back) == named(before)


def test_queries_follow():
    before = blue_and_green()
    after, _ = apply(before, renamed(before, SWAPPED))

    def read(number):
        details = after.items[user_id(number)].details
        return details.query, details.namespace

    assert read(12) == ("SELECT k FROM t", ("Stage",))
    assert read(13) == ("SELECT t.k FROM `Stage`.t, `prod`.v15", ("Stage",))
    assert read(14) == ("SELECT * FROM slackwater.`Stage`.t", ("default",))
    assert read(15) == ("SELECT k FROM `prod`.t", ("default",))
    assert after.items[user_id(15)].details.asserting == "SELECT f(c) FROM `prod`.t"
    assert read(16) == read_before(before, 16)
    assert after.items[user_id(17)].of(IndexDetails).keys == ("k", "`Stage`.t.k + 1")


def read_before(state, number):
    details = state.items[user_id(number)].details
    return details.query, details.namespace


def test_statements_are_shown_with_the_names_of_now():
    before = blue_and_green()
    after, _ = apply(before, renamed(before, SWAPPED))

    def shown(number):
        return current_sql(after, after.items[user_id(number)])

    assert shown(17).endswith("`i` ON `slackwater`.`Stage`.`t` (k, `Stage`.t.k + 1)")
    assert shown(14).startswith("CREATE VIEW `slackwater`.`default`.`v14`")
    assert shown(14).endswith("AS SELECT * FROM slackwater.`Stage`.t")


def test_a_sink_is_shown_with_the_name_of_what_it_writes():
    config = SinkConfig("/x", "JSON", "DIFF", (), True)
    sink = item(
        20,
        "default",
        "s",
        ItemKind.SINK,
        SinkDetails(config, 0),
        10,
        sql="CREATE SINK `slackwater`.`default`.`s` FROM `slackwater`.`prod`.`t` "
        "INTO FILES (PATH '/x', FORMAT JSON)",
    )
    before, _ = apply(blue_and_green(), [CreateItem(sink)])
    after, _ = apply(before, renamed(before, SWAPPED))
    assert "FROM `slackwater`.`Stage`.`t` INTO" in current_sql(after, after.items[user_id(20)])


def test_the_views_that_may_be_affected():
    found = affected(blue_and_green(), SWAPPED)
    assert [each.id for each in found] == [user_id(n) for n in (12, 14, 15, 13)]


def test_what_is_refused():
    state = blue_and_green()
    for names, condition in (
        ({"nothing": "x"}, "SLACKWATER_SCHEMA_NOT_FOUND"),
        ({"prod": "nothing", "nothing": "prod"}, "SLACKWATER_SCHEMA_NOT_FOUND"),
        ({"mz_catalog": "prod", "prod": "mz_catalog"}, "SLACKWATER_SYSTEM_OBJECT"),
        ({"prod": "mz_x"}, "SLACKWATER_RESERVED_NAME"),
        ({"prod": "STAGE"}, "SLACKWATER_SCHEMA_ALREADY_EXISTS"),
        ({"default": "x"}, "SLACKWATER_SYSTEM_OBJECT"),
    ):
        with refused(condition):
            apply(state, [RenameSchemas(names)])
    cased, _ = apply(state, renamed(state, {"prod": "PROD"}))
    assert cased.schema("prod").name == "PROD"
    swapped, _ = apply(state, renamed(state, {"default": "prod", "prod": "default"}))
    assert swapped.schema("default").id == user_id(2)


class Meaning(Answers):
    """Spark that says of queries which of the objects it is told of they name.

    `meanwhile`: what happens while it thinks, each once.
    """

    def __init__(self):
        super().__init__()
        self.meanwhile = []
        self.asked = []

    def think(self):
        if self.meanwhile:
            self.meanwhile.pop(0)()

    def analyze(self, *arguments):
        found = super().analyze(*arguments)
        self.think()
        return found

    def plan(self, text, catalog, namespace, known=None, indexed=None):
        self.asked.append(text)
        self.think()
        below = [each["view"]["query"] for each in known.relations if "view" in each]
        queries = " ".join([text, *below]).replace("`", "")
        named = [
            each["id"]
            for each in known.relations
            if f"{each['schema_name']}.{each['name']}" in queries
        ]
        kept = super().plan(text, catalog, namespace)
        return replace(kept, plan=replace(kept.plan, fingerprint=str(sorted(named))))


@pytest.fixture
def place(env):
    made = Place(env, spark=Meaning())
    made.table("t", k="integer")
    schema(made, "other")
    yield made
    made.close()


def schema(place, name):
    body = {"session": "app/1", "namespace": [name]}
    calls_of(place.coordinator)["/v1/catalog/create_namespace"](body)


def test_what_changes_meanwhile_is_asked_about_again(place):
    place.sql("CREATE VIEW v AS SELECT k FROM default.t")
    engine = place._options["spark"]
    engine.asked.clear()
    engine.meanwhile = [lambda: place.sql("CREATE SECRET s AS 'x'", session="app/2")]
    place.sql("ALTER SCHEMA default SWAP WITH other")
    assert len(engine.asked) == 4
    assert sorted(i.name for i in place.env.state.items_in("other")) == ["s", "t", "v"]
    place.sql("ALTER SCHEMA default SWAP WITH other")


def test_a_name_in_a_text_does_not_follow(place):
    place.sql("CREATE VIEW v AS SELECT k FROM IDENTIFIER('default.t')")
    with refused("SLACKWATER_NAME_NOT_CHANGED"):
        place.sql("ALTER SCHEMA other SWAP WITH default")
    assert place.item("t")


def test_a_view_that_is_made_meanwhile(place):
    def swap():
        place.sql("ALTER SCHEMA other SWAP WITH default", session="app/2")

    # Its columns are asked for before.
    place._options["spark"].meanwhile = [lambda: None, swap]
    with refused("SLACKWATER_CONCURRENT_CHANGE"):
        place.sql("CREATE VIEW v AS SELECT k FROM default.t")
    swap()
