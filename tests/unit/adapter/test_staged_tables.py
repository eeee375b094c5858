"""Tables made and replaced with their contents: one commit, and nothing at all after a failure."""

import base64
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE

from slackwater.adapter.catalog.model import CatalogItem, ItemKind
from slackwater.adapter.catalog.ops import CreateItem
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import Column, RelationDesc

K = RelationDesc.of(k="integer")
KV = RelationDesc.of(k="integer", v="string")


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


def call(place, path, **body):
    return place.coordinator.calls()[path]({"session": "app/1", "context": {"user": "me"}, **body})


def definition(name="t", desc=K, mode="create_or_replace", **more):
    stated = {"properties": {}, "comment": None, **more}
    return {
        "namespace": ["default"],
        "name": name,
        "mode": mode,
        "schema": desc.to_json(),
        **stated,
    }


def stage(place, **more):
    stated = definition(**more)
    return {**stated, "target": call(place, "/v1/catalog/stage_table", **stated)}


def ipc(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue()).decode()


def write(place, staged, *rows, **body):
    """Commits what was staged, with rows, or without a query."""
    inline = []
    if rows:
        schema = RelationDesc.from_json(staged["schema"]).arrow_schema()
        inline = [ipc(pa.Table.from_pylist(list(rows), schema=schema))]
    request = {
        "write_id": uuid.uuid4().hex,
        "mode": "append",
        "table": staged["target"]["replaces"],
        "shard": staged["target"]["shard"],
        "inline": inline,
        "definition": {**staged, "as_select": bool(rows)},
        **body,
    }
    return call(place, "/v1/write", **request)["timestamp"]


def make(place, *rows, **more):
    return write(place, stage(place, **more), *rows)


def refused(condition, action, *args, **options):
    with pytest.raises(SlackwaterError) as caught:
        action(*args, **options)
    assert caught.value.condition == condition
    return caught.value


def above(place, name="t"):
    """Something that depends on the table."""
    table = place.item(name)
    item = CatalogItem(
        place.env.catalog.allocate_ids()[0],
        ItemKind.VIEW,
        "default",
        "above",
        "",
        table.desc,
        depends_on=(table.id,),
        details={"query": "", "catalog": "slackwater", "namespace": ["default"]},
    )
    place.env.catalog.transact([CreateItem(item)])
    return item


def everything(place):
    """What the catalog and the shards are."""
    persist = place.env.persist
    shards = {
        shard: [p.part_id for p in persist.reads.parts(shard)]
        for shard in persist.reads.shard_ids()
    }
    return dict(place.env.state.items), shards


def test_a_new_table_begins_with_its_contents(place):
    time = make(place, {"k": 1}, {"k": 2}, mode="create", comment="two", properties={"p": "q"})
    item = place.item("t")
    assert place.read("t") == [{"k": 1}, {"k": 2}]
    assert [update["__time"] for update in place.updates("t")] == [time, time]
    assert place.env.relations.since(item).value == time
    refused("SLACKWATER_NO_VALID_TIMESTAMP", place.read, "t", time - 1)
    assert (item.comment, item.details["properties"], item.owner) == ("two", {"p": "q"}, "me")
    place.write("t", {"k": 3})
    place.restart()
    assert place.read("t") == [{"k": 1}, {"k": 2}, {"k": 3}]
    assert place.item("t") == item


def test_a_table_without_rows(place):
    write(place, stage(place, mode="create", desc=KV), inline=[])
    assert place.read("t") == []
    assert place.item("t").desc == KV


def test_of_two_tables_of_one_name_one_is_made(place):
    first, second = stage(place, mode="create"), stage(place, mode="create")
    write(place, second, {"k": 2})
    before = everything(place)
    refused("SLACKWATER_TABLE_ALREADY_EXISTS", write, place, first, {"k": 1})
    refused("SLACKWATER_TABLE_ALREADY_EXISTS", stage, place, mode="create")
    assert everything(place) == before
    assert place.read("t") == [{"k": 2}]


def test_equal_columns_keep_the_object_and_its_history(place):
    make(place, {"k": 1}, properties={"retain_history": "1 hour", "p": "1"}, comment="old")
    first = place.write("t", {"k": 2})
    item, view = place.item("t"), above(place)
    time = make(place, {"k": 7}, properties={"q": "2"}, comment="new")
    after = place.item("t")
    assert (after.id, after.shard_id, after.desc) == (item.id, item.shard_id, item.desc)
    assert view.id in place.env.state.items
    assert after.comment == "new"
    assert after.details == {"retain_history_ms": 3_600_000, "properties": {"q": "2"}}
    assert "COMMENT 'new'" in after.create_sql
    assert place.read("t") == [{"k": 7}]
    assert sorted(row["k"] for row in place.read("t", first)) == [1, 2]
    changes = [(u["k"], u["__time"] == time, u["__diff"]) for u in place.updates("t")]
    assert sorted(changes)[-1] == (7, True, 1)
    assert sorted(change for change in changes if change[1] and change[2] < 0) == [
        (1, True, -1),
        (2, True, -1),
    ]
    make(place, {"k": 8}, properties={"retain_history": "2 hours"})
    assert place.item("t").details == {"retain_history_ms": 7_200_000, "properties": {}}
    assert place.item("t").comment is None
    place.restart()
    assert place.read("t") == [{"k": 8}]
    assert sorted(row["k"] for row in place.read("t", first)) == [1, 2]


def test_a_query_keeps_not_null_and_is_held_to_it(place):
    not_null = RelationDesc((Column("k", '"integer"', nullable=False), Column("v", '"string"')))
    write(place, stage(place, desc=not_null))
    item = place.item("t")
    assert item.desc == not_null
    staged = stage(place, desc=KV)
    assert RelationDesc.from_json(json.dumps(staged["target"]["schema"])) == not_null
    refused("SLACKWATER_NOT_NULL_VIOLATION", write, place, staged, {"k": None, "v": "x"})
    assert place.read("t") == []
    write(place, stage(place, desc=KV), {"k": 1, "v": None})
    assert place.item("t") == item
    # Without a query the columns are what is written down.
    write(place, stage(place, desc=KV))
    assert place.item("t").desc == KV
    assert place.item("t").id != item.id
    assert place.read("t") == []


def test_other_columns_are_another_object(place):
    make(place, {"k": 1}, properties={"retain_history": "1 hour"})
    old = place.item("t")
    time = make(place, {"k": 1, "v": "one"}, desc=KV)
    new = place.item("t")
    assert new.id != old.id
    assert old.id not in place.env.state.items
    assert new.details == {"properties": {}}
    assert place.read("t") == [{"k": 1, "v": "one"}]
    assert place.env.relations.since(new).value >= time
    assert place.env.persist.reads.unfinalized() == (old.shard_id,)
    write(place, stage(place, desc=K))
    assert place.read("t") == []
    place.restart()
    assert place.item("t").desc == K


def test_dependents_are_not_left_without_their_columns(place):
    make(place, {"k": 1})
    staged = stage(place, desc=KV)
    above(place)
    before = everything(place)
    error = refused("SLACKWATER_DEPENDENT_OBJECTS", stage, place, desc=KV)
    assert error.sqlstate == "2BP01"
    assert "slackwater.default.above" in str(error)
    refused("SLACKWATER_DEPENDENT_OBJECTS", write, place, staged, {"k": 2, "v": "two"})
    refused("SLACKWATER_DEPENDENT_OBJECTS", write, place, {**staged, "as_select": False})
    assert everything(place) == before
    write(place, stage(place, desc=K))
    assert (place.read("t"), everything(place)[0]) == ([], before[0])


def test_what_is_there_has_to_be_a_table(place, tmp_path):
    refused("SLACKWATER_UNKNOWN_OBJECT", stage, place, mode="replace")
    refused("SLACKWATER_SCHEMA_NOT_FOUND", stage, place, namespace=["nowhere"])
    make(place, {"k": 1})
    place.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    above(place)
    for name in ("s", "above"):
        refused("SLACKWATER_WRONG_KIND", stage, place, name=name)
        refused("SLACKWATER_WRONG_KIND", stage, place, name=name, mode="replace")
    refused("SLACKWATER_TABLE_ALREADY_EXISTS", stage, place, name="above", mode="create")
    refused("SLACKWATER_SYSTEM_OBJECT", stage, place, namespace=["mz_catalog"])


def test_no_block_takes_it(place):
    place.sql("BEGIN")
    refused("SLACKWATER_TRANSACTION_STATEMENT", stage, place, mode="create")
    refused("SLACKWATER_FAILED_TRANSACTION", stage, place)
    place.sql("ROLLBACK")
    staged = stage(place, mode="create")
    place.sql("BEGIN")
    refused("SLACKWATER_TRANSACTION_STATEMENT", write, place, staged, {"k": 1})
    place.sql("ROLLBACK")
    assert place.env.state.find("default", "t") is None


def add_column(place):
    change = {"add_column": {"name": ["v"], "type": "string", "nullable": True}}
    call(place, "/v1/catalog/alter_table", namespace=["default"], name="t", changes=[change])


def drop(place):
    call(place, "/v1/catalog/drop_table", namespace=["default"], name="t")


def drop_and_make(place):
    drop(place)
    make(place, {"k": 5})


@pytest.mark.parametrize("meanwhile", [add_column, drop, drop_and_make])
def test_a_table_that_changes_meanwhile_is_not_replaced(place, meanwhile):
    make(place, {"k": 1})
    staged = stage(place)
    meanwhile(place)
    before = everything(place)
    error = refused("SLACKWATER_CONCURRENT_CHANGE", write, place, staged, {"k": 2})
    assert error.sqlstate == "40001"
    assert everything(place) == before


def test_a_table_that_appears_meanwhile_is_not_replaced(place):
    staged = stage(place)
    make(place, {"k": 5})
    refused("SLACKWATER_CONCURRENT_CHANGE", write, place, staged, {"k": 2})
    assert place.read("t") == [{"k": 5}]


@pytest.mark.parametrize("desc", [K, KV], ids=["equal", "other"])
def test_repeating_the_call_has_one_effect(place, desc):
    make(place, {"k": 1})
    staged, write_id = stage(place, desc=desc), uuid.uuid4().hex
    row = dict.fromkeys(desc.names)
    time = write(place, staged, row, write_id=write_id)
    item = place.item("t")
    assert write(place, staged, row, write_id=write_id) == time
    place.restart()
    assert write(place, staged, row, write_id=write_id) == time
    assert write(place, staged, row, write_id=write_id, hold="of the earlier one") == time
    assert place.item("t") == item
    assert place.read("t") == [row]
    refused("SLACKWATER_LOCK_LOST", write, place, staged, row, hold="of the earlier one")


@pytest.mark.parametrize("desc", [K, KV], ids=["equal", "other"])
def test_no_write_is_lost_between_what_is_read_and_the_commit(place, desc):
    """Others' writes wait for the replacement; then they are after it, or refused."""
    make(place, {"k": 1})
    staged = stage(place, desc=desc)
    old = place.item("t")
    bound = call(
        place,
        "/v1/bind",
        relations=[{"id": old.id}],
        write_targets=[staged["target"]["replaces"]],
    )
    outcomes = []

    def insert():
        try:
            outcomes.append(place.write("t", {"k": 9}))
        except SlackwaterError as error:
            outcomes.append(error.condition)

    other = threading.Thread(target=insert)
    other.start()
    committer = place.env.committer
    place.wait(lambda: len(committer._shared.writes) == 1)
    time = write(place, staged, dict.fromkeys(desc.names), hold=bound["hold"])
    other.join(PATIENCE)
    keys = [row["k"] for row in place.read("t")]
    if desc == K:
        assert outcomes[0] > time
        assert sorted(keys, key=str) == [9, None]
    else:
        assert outcomes == ["SLACKWATER_DEPENDENCY_DROPPED"]
        assert keys == [None]


def test_many_replacements_at_once_end_as_one_after_the_other(place):
    make(place, {"k": 0})

    def replace(number):
        try:
            # Without a hold each locks the table by itself; a fight about it must not stop.
            make(place, {"k": number})
            return "done"
        except SlackwaterError as error:
            return error.condition

    with ThreadPoolExecutor(4) as pool:
        outcomes = set(pool.map(replace, range(1, 17)))
    assert outcomes == {"done"}
    assert len(place.read("t")) == 1


def test_large_contents_come_as_files(place):
    staged = stage(place, mode="create")
    shard, write_id = staged["target"]["shard"], uuid.uuid4().hex
    answer = call(place, "/v1/prepare_write", shard=shard, table=None, write_id=write_id)
    directory = Path(answer["directory"].removeprefix("file://"))
    directory.mkdir(parents=True)
    file = directory / "rows.parquet"
    pq.write_table(pa.table({"k": pa.array(range(1000), pa.int32())}), file)
    entry = {
        "uri": file.as_uri(),
        "rows": 1000,
        "size_bytes": file.stat().st_size,
        "modified_ms": int(file.stat().st_mtime * 1000),
    }
    time = write(place, staged, {"k": -1}, write_id=write_id, files=[entry])
    item = place.item("t")
    assert item.shard_id == shard
    assert len(place.read("t")) == 1001
    assert {part.min_time for part in place.env.persist.reads.parts(shard)} == {time}
    assert directory.parent.as_uri() == place.env.persist.files.shard_directory(shard)
    make(place, {"k": 1})
    assert place.read("t") == [{"k": 1}]
    assert len(place.read("t", time)) == 1001
    assert place.env.persist.reads.parts_at(shard, Timestamp(time)) != ()


def test_rows_that_cannot_be_written_leave_nothing(place):
    make(place, {"k": 1})
    before = everything(place)
    broken = [base64.b64encode(b"no stream").decode()]
    for staged in (stage(place), stage(place, desc=KV), stage(place, name="u", mode="create")):
        with pytest.raises(pa.ArrowInvalid):
            write(place, staged, dict.fromkeys(["k"]), inline=broken)
    assert everything(place) == before
    make(place, {"k": 2})
    assert place.read("t") == [{"k": 2}]


def test_a_source_that_it_reads_is_dropped_meanwhile(place):
    """The DROP waits for the source's last write, and that waits for no statement."""
    place.sql("CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '10 ms')")
    staged = stage(place, mode="create")
    bound = call(
        place,
        "/v1/bind",
        relations=[{"id": place.item("s").id}],
        write_targets=[staged["target"]["id"]],
    )
    place.sql("DROP SOURCE s", "app/2")
    write(place, staged, {"k": 1}, hold=bound["hold"])
    assert place.read("t") == [{"k": 1}]
