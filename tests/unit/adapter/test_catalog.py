"""The catalog: rules of names and dependents, and its durable form."""

import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

from slackwater.adapter.catalog.details import (
    NO_DETAILS,
    IndexDetails,
    SubsourceDetails,
    TableDetails,
    ViewDetails,
)
from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CreateItem,
    CreateSchema,
    DropItem,
    DropSchema,
    RenameItem,
    RenameSchemas,
    apply,
)
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.persist.tables import metadata
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.ids import GlobalId, user_id
from slackwater.repr.relation import RelationDesc

TABLE, VIEW, MV = ItemKind.TABLE, ItemKind.VIEW, ItemKind.MATERIALIZED_VIEW


DETAILS = {TABLE: TableDetails(), VIEW: ViewDetails("SELECT 1", "slackwater", ("default",))}


def item(number, name, *uses, kind=TABLE, schema="default", **rest):
    rest.setdefault("details", DETAILS.get(kind, NO_DETAILS))
    return CatalogItem(
        id=user_id(number),
        kind=kind,
        schema_name=schema,
        name=name,
        create_sql=f"CREATE {name}",
        desc=RelationDesc.of(k="long") if kind.is_relation else None,
        depends_on=tuple(user_id(n) for n in uses),
        **rest,
    )


def base(*items):
    return CatalogState.of(
        [SchemaEntry(user_id(1), "default"), *system_schemas()], [*items, *system_items()]
    )


def chain():
    """t <- v <- mv <- index, t <- other."""
    return base(
        item(10, "t"),
        item(11, "v", 10, kind=VIEW),
        item(12, "mv", 11, kind=MV),
        item(13, "mv_idx", 12, kind=ItemKind.INDEX),
        item(14, "other", 10, kind=MV),
    )


@contextmanager
def refused(condition, sqlstate):
    with pytest.raises(SlackwaterError) as caught:
        yield caught
    assert (caught.value.condition, caught.value.sqlstate) == (condition, sqlstate)


def test_names_keep_their_case_and_compare_without():
    state, _ = apply(base(), [CreateItem(item(10, "Orders", schema="DEFAULT"))])
    assert state.get("Default", "oRDERS").full_name == "slackwater.default.Orders"
    assert [i.name for i in state.items_in("default")] == ["Orders"]
    with refused("SLACKWATER_TABLE_ALREADY_EXISTS", "42P07"):
        apply(state, [CreateItem(item(11, "ORDERS", kind=VIEW))])
    with refused("SLACKWATER_ALREADY_EXISTS", "42710"):
        apply(chain(), [CreateItem(item(20, "MV_IDX"))])


def test_lookups_that_fail_say_why():
    state = chain()
    with refused("SLACKWATER_UNKNOWN_RELATION", "42P01"):
        state.get("default", "nothing")
    with refused("SLACKWATER_UNKNOWN_OBJECT", "42704"):
        state.get("default", "nothing", ItemKind.SINK)
    with refused("SLACKWATER_WRONG_KIND", "42809"):
        state.get("default", "t", VIEW)
    with refused("SLACKWATER_DEPENDENCY_DROPPED", "42704"):
        state.item(GlobalId("u99"))


def test_what_cannot_be_created():
    with refused("SLACKWATER_SCHEMA_NOT_FOUND", "3F000"):
        apply(base(), [CreateItem(item(10, "t", schema="nowhere"))])
    with refused("SLACKWATER_SYSTEM_OBJECT", "42501"):
        apply(base(), [CreateItem(item(10, "t", schema="mz_internal"))])
    with refused("SLACKWATER_DEPENDENCY_DROPPED", "42704"):
        apply(base(), [CreateItem(item(10, "v", 9, kind=VIEW))])
    twice = CatalogItem(user_id(10), TABLE, "default", "t", "", RelationDesc.of(a="long", A="long"))
    with refused("SLACKWATER_DUPLICATE_COLUMN", "42701"):
        apply(base(), [CreateItem(twice)])
    with pytest.raises(FatalError):
        apply(chain(), [CreateItem(item(10, "fresh"))])
    with refused("SLACKWATER_SCHEMA_ALREADY_EXISTS", "42P06"):
        apply(base(), [CreateSchema(SchemaEntry(user_id(10), "Default"))])
    with refused("SLACKWATER_RESERVED_NAME", "42939"):
        apply(base(), [CreateSchema(SchemaEntry(user_id(10), "mz_mine"))])


def test_creating_one_by_one_gives_what_all_at_once_gives():
    state, expected = base(), chain()
    for number in range(10, 15):
        state, diff = apply(state, [CreateItem(expected.item(user_id(number)))])
        assert [each.id for each in diff.created] == [user_id(number)]
        assert not diff.altered
    assert state.items == expected.items
    assert state.names == expected.names
    assert state.used_by == expected.used_by


def test_dropping_respects_dependents_and_cascades_them_first():
    state = chain()
    with refused("SLACKWATER_DEPENDENT_OBJECTS", "2BP01") as caught:
        apply(state, [DropItem(user_id(10))])
    assert caught.value.parameters["dependents"] == (
        "materialized view slackwater.default.mv, "
        "materialized view slackwater.default.other, view slackwater.default.v"
    )
    after, diff = apply(state, [DropItem(user_id(10), cascade=True)])
    dropped = [i.name for i in diff.dropped]
    assert set(dropped) == {"t", "v", "mv", "mv_idx", "other"}
    for user, used in (("mv_idx", "mv"), ("mv", "v"), ("v", "t"), ("other", "t")):
        assert dropped.index(user) < dropped.index(used)
    assert after.items_in("default") == ()
    assert after.revision == state.revision + 1


def test_indexes_and_children_go_with_their_object():
    _, diff = apply(chain(), [DropItem(user_id(12))])
    assert [i.name for i in diff.dropped] == ["mv_idx", "mv"]
    source = item(30, "auction", kind=ItemKind.SOURCE)
    child = item(
        31, "bids", 30, kind=ItemKind.SOURCE, details=SubsourceDetails(user_id(30), "bids")
    )
    state = base(source, child)
    _, diff = apply(state, [DropItem(user_id(30))])
    assert [i.name for i in diff.dropped] == ["bids", "auction"]
    used = base(source, child, item(32, "mv", 31, kind=MV))
    with refused("SLACKWATER_DEPENDENT_OBJECTS", "2BP01"):
        apply(used, [DropItem(user_id(30))])


def test_children_of_what_is_dropped_in_a_cascade_go_as_well():
    connection = item(29, "pg", kind=ItemKind.CONNECTION)
    source = item(30, "auction", 29, kind=ItemKind.SOURCE)
    child = item(31, "bids", kind=ItemKind.SOURCE, details=SubsourceDetails(user_id(30), "bids"))
    state = base(connection, source, child, item(32, "mv", 31, kind=MV))
    after, diff = apply(state, [DropItem(user_id(29), cascade=True)])
    assert {i.name for i in diff.dropped} == {"pg", "auction", "bids", "mv"}
    after.validate()


def test_schemas_are_dropped_empty_or_with_everything():
    state, _ = apply(
        chain(),
        [
            CreateSchema(SchemaEntry(user_id(40), "Sales")),
            CreateItem(item(41, "s", schema="sales")),
            CreateItem(item(42, "reads_s", 41, kind=VIEW)),
        ],
    )
    with refused("SLACKWATER_SCHEMA_NOT_EMPTY", "2BP01"):
        apply(state, [DropSchema("SALES")])
    after, diff = apply(state, [DropSchema("SALES", cascade=True)])
    assert [i.name for i in diff.dropped] == ["reads_s", "s"]
    assert [s.name for s in diff.schemas_dropped] == ["Sales"]
    assert after.find("default", "reads_s") is None
    with refused("SLACKWATER_SCHEMA_NOT_FOUND", "3F000"):
        apply(after, [DropSchema("sales")])
    for protected in ("default", "mz_catalog"):
        with refused("SLACKWATER_SYSTEM_OBJECT", "42501"):
            apply(state, [DropSchema(protected, cascade=True)])


def test_renaming_keeps_ids_and_is_refused_for_what_others_name():
    state = chain()
    with refused("SLACKWATER_DEPENDENT_OBJECTS", "2BP01"):
        apply(state, [RenameItem(user_id(10), "t2")])
    after, diff = apply(state, [RenameItem(user_id(13), "Idx2")])
    assert after.get("default", "idx2").id == user_id(13)
    assert after.find("default", "mv_idx") is None
    assert [a.after.id for a in diff.altered] == [user_id(13)]
    with refused("SLACKWATER_TABLE_ALREADY_EXISTS", "42P07"):
        apply(state, [RenameItem(user_id(13), "OTHER")])
    cased, _ = apply(state, [RenameItem(user_id(13), "MV_Idx")])
    assert cased.get("default", "mv_idx").name == "MV_Idx"


DAMAGES = {
    "does not lead to its object": lambda state: replace(
        state, names={**state.names, ("default", "ghost"): user_id(10)}
    ),
    "uses of objects": lambda state: replace(state, used_by={}),
    "needs": lambda state: CatalogState.of(
        state.schemas.values(), [i for i in state.items.values() if i.id != user_id(10)]
    ),
    "one name": lambda state: replace(
        state, items={**state.items, user_id(99): replace(state.items[user_id(10)], id=user_id(99))}
    ),
}


@pytest.mark.parametrize("told", DAMAGES)
def test_a_catalog_that_contradicts_itself_is_found(told):
    chain().validate()
    with pytest.raises(FatalError, match=told):
        DAMAGES[told](chain()).validate()


def test_altering():
    after, diff = apply(
        chain(),
        [AlterItem(user_id(10), comment="c", desc=RelationDesc.of(k="long", v="string"))],
    )
    assert after.item(user_id(10)).comment == "c"
    assert after.item(user_id(10)).desc.names == ("k", "v")
    assert len(diff.altered) == 1
    after, _ = apply(after, [AlterItem(user_id(10), comment="", details=TableDetails(5))])
    assert after.item(user_id(10)).comment is None
    assert after.item(user_id(10)).details == TableDetails(5)
    system = system_items()[0].id
    with refused("SLACKWATER_SYSTEM_OBJECT", "42501"):
        apply(chain(), [AlterItem(system, comment="mine")])


def test_replacing_in_one_change():
    after, diff = apply(chain(), [DropItem(user_id(12)), CreateItem(item(50, "mv", 11, kind=MV))])
    assert after.get("default", "mv").id == user_id(50)
    assert [i.id for i in diff.created] == [user_id(50)]
    assert user_id(12) in {i.id for i in diff.dropped}


def test_topological_order_even_of_deep_chains():
    deep = base(item(10, "t"), *(item(n, f"v{n}", n - 1, kind=VIEW) for n in range(11, 2500)))
    seen = set()
    for each in deep.topological():
        assert set(each.depends_on) <= seen
        seen.add(each.id)
    assert len(seen) == len(deep.items)


def test_items_survive_json():
    kept = TableDetails(7, {"a": "1"})
    full = item(10, "t", 2, shard_id=3, comment="c", owner="me", created_ms=5, details=kept)
    assert CatalogItem.from_json(full.to_json()) == full
    index = item(
        3, "i", 1, kind=ItemKind.INDEX, details=IndexDetails(("k", "v + 1"), {"a": "1"}, 5)
    )
    assert CatalogItem.from_json(index.to_json()) == index
    assert CatalogItem.from_json(index.to_json()).desc is None


class SqliteTransactor:
    def __init__(self, engine):
        self.engine = engine
        self.mutex = threading.Lock()

    def transact(self, *steps):
        with self.mutex, self.engine.begin() as conn:
            returned, *_ = [step(conn) for step in steps]
        return returned

    def query(self, body):
        with self.engine.begin() as conn:
            return body(conn)


@pytest.fixture
def store(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/catalog.db")
    metadata.create_all(engine)
    yield SqliteTransactor(engine)
    engine.dispose()


def reopen(store):
    return DurableCatalog.open(
        store,
        clock_ms=lambda: 1000,
        system_schemas=system_schemas(),
        system_items=system_items(),
    )


class Watcher:
    """A mark that notes what is visible when a change becomes so."""

    def __init__(self):
        self.seen = []
        self.catalog = None

    @contextmanager
    def changing(self):
        self.seen.append(self.catalog.state.revision)
        yield
        self.seen.append(self.catalog.state.revision)


def test_a_change_becomes_visible_within_the_marks_block(store):
    watcher = Watcher()
    watcher.catalog = DurableCatalog.open(store, clock_ms=lambda: 1000, mark=watcher)
    before = watcher.catalog.state.revision
    after, _ = watcher.catalog.transact([CreateSchema(SchemaEntry("u90", "s", None))])
    assert watcher.seen == [before, after.revision]


def as_values(state):
    return dict(state.schemas), dict(state.items), dict(state.names), dict(state.used_by)


def test_default_exists_and_changes_survive(store):
    catalog = reopen(store)
    assert catalog.state.schema("DEFAULT").name == "default"
    assert catalog.state.get("mz_internal", "mz_frontiers").kind is ItemKind.SYSTEM_TABLE
    for op in (
        CreateItem(item(10, "t")),
        CreateItem(item(11, "v", 10, kind=VIEW)),
        AlterItem(user_id(10), comment="hello"),
        RenameItem(user_id(11), "w"),
        CreateSchema(SchemaEntry(user_id(12), "Sales")),
        RenameSchemas({"Sales": "default", "default": "Sales"}),
    ):
        catalog.transact([op], user="me")
    again = reopen(store)
    assert as_values(again.state) == as_values(catalog.state)
    assert again.state.revision == catalog.state.revision == 6
    events = again.audit_events()
    assert [(e.event_type, e.object_type) for e in events] == [
        ("create", "table"),
        ("create", "view"),
        ("alter", "table"),
        ("alter", "view"),
        ("create", "schema"),
        ("alter", "schema"),
        ("alter", "schema"),
        ("alter", "table"),
        ("alter", "view"),
    ]
    assert [e.id for e in events] == [*range(1, 10)]
    assert json.loads(events[0].details) == {
        "database": "slackwater",
        "schema": "default",
        "item": "t",
        "id": "u10",
    }
    assert json.loads(events[3].details)["old_name"]["item"] == "v"
    assert json.loads(events[5].details) == {
        "database_name": "slackwater",
        "id": "u1",
        "name": "Sales",
        "old_name": "default",
        "new_name": "Sales",
    }
    assert {(e.user, e.occurred_ms) for e in events} == {("me", 1000)}


def test_a_change_is_all_or_nothing(store):
    catalog = reopen(store)

    def broken(conn):
        raise ValueError("no shard")

    before = as_values(catalog.state)
    with pytest.raises(ValueError, match="no shard"):
        catalog.transact([CreateItem(item(10, "t"))], steps=[broken])
    with refused("SLACKWATER_SCHEMA_NOT_FOUND", "3F000"):
        catalog.transact([CreateItem(item(10, "t")), DropSchema("nowhere")])
    assert as_values(catalog.state) == before == as_values(reopen(store).state)
    assert catalog.audit_events() == ()


def test_items_can_take_what_the_transaction_made(store):
    catalog = reopen(store)
    _, diff = catalog.transact(lambda conn: [CreateItem(item(10, "t", shard_id=77))])
    assert diff.created[0].shard_id == reopen(store).state.item(user_id(10)).shard_id == 77


def test_a_change_from_elsewhere_is_noticed_inside_the_transaction(store):
    first, second = reopen(store), reopen(store)
    first.transact([CreateItem(item(10, "t"))])
    with refused("SLACKWATER_CONCURRENT_CHANGE", "40001"):
        second.transact([CreateItem(item(11, "u"))])


def test_a_staged_change_is_seen_when_it_is_published(store):
    catalog = reopen(store)
    with catalog.stage([CreateItem(item(10, "t"))]) as change:
        store.transact(change.step)
        assert catalog.state.find("default", "t") is None
        _, diff = change.publish(None)
    assert catalog.state.get("default", "t") == diff.created[0]
    with pytest.raises(FatalError), catalog.stage([DropItem(user_id(10))]) as change:
        change.publish(None)


class Forgetful:
    """Loses the answer of the next transaction, which happens or not."""

    def __init__(self, transactor):
        self._transactor = transactor
        self.happens: bool | None = None

    def transact(self, *steps):
        happens, self.happens = self.happens, None
        returned = None
        if happens is None or happens:
            returned = self._transactor.transact(*steps)
        if happens is not None:
            raise user_error("SLACKWATER_METASTORE_UNAVAILABLE", seconds="10", reason="lost")
        return returned


@pytest.mark.parametrize("happens", [True, False])
def test_a_change_whose_answer_was_lost_is_found_out(store, happens):
    forgetful = Forgetful(store)
    catalog = reopen(forgetful)
    catalog.resolve()
    forgetful.happens = happens
    with refused("SLACKWATER_METASTORE_UNAVAILABLE", "08006"):
        catalog.transact([CreateItem(item(10, "t"))])
    if happens:
        for attempt in (catalog.resolve, lambda: catalog.transact([CreateItem(item(11, "u"))])):
            with pytest.raises(FatalError, match="happened"):
                attempt()
        assert reopen(store).state.get("default", "t").id == user_id(10)
    else:
        catalog.resolve()
        catalog.transact([CreateItem(item(10, "t"))])
        assert reopen(store).state.revision == catalog.state.revision == 1


def test_ids_are_never_reused(store):
    catalog = reopen(store)
    given = [*catalog.allocate_ids(3), *catalog.allocate_ids(100)]
    given += reopen(store).allocate_ids(2)
    assert len(set(given)) == 105
    assert catalog.state.schema("default").id not in given


@pytest.mark.parametrize("name", ["__time", "__diff", "__TIME"])
def test_no_name_of_a_column_is_reserved(name: str) -> None:
    table = replace(item(10, "t"), desc=RelationDesc.of(**{name: "integer"}))
    made, _ = apply(base(), [CreateItem(table)])
    assert made.items[table.id].desc == table.desc
