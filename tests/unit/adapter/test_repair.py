"""A leader begins although shards and catalog disagree, and brings them to agree."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import sqlalchemy as sa
from tests.support.adapter.coordination import Place
from tests.support.planner.planned import Answers
from tests.support.waiting import wait_until

from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER
from slackwater.adapter.ddl import repair
from slackwater.persist.tables import parts, shards
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX
from slackwater.repr.relation import RelationDesc


@pytest.fixture
def place(env, tmp_path):
    """A table that is to be damaged, with a sink, beside one that is not."""
    made = Place(env)
    made.table("t", v="string")
    made.table("other", v="string")
    made.write("t", {"v": "a"})
    made.write("other", {"v": "b"})
    made.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{tmp_path}/out', FORMAT JSON)")
    yield made
    made.close()


def damaged(place, *statements):
    """Ends the leader, changes the metastore as given, and lets another one begin."""
    place.close()
    with place._env.engine.begin() as conn:
        for statement in statements:
            conn.execute(statement)
    place.start()


def no_shard(shard_id):
    return (
        sa.delete(shards).where(shards.c.shard_id == shard_id),
        sa.delete(parts).where(parts.c.shard_id == shard_id),
    )


def changed(shard_id, **values):
    return sa.update(shards).where(shards.c.shard_id == shard_id).values(**values)


def half_finalized(shard_id):
    """A leader was killed in the middle: frontiers are empty, some parts are there."""
    return changed(shard_id, dropped=True, since=TIMESTAMP_MAX, upper=TIMESTAMP_MAX)


def refused(place, name):
    with pytest.raises(SlackwaterError) as caught:
        place.read(name)
    return caught.value.condition


def is_written(place, tmp_path, *rows):
    manifest = tmp_path / "out" / "manifest.json"
    files = json.loads(manifest.read_text())["files"] if manifest.exists() else []
    return sum(each["rows"] for each in files) == len(rows)


def test_a_shard_that_its_object_still_has_is_kept(place):
    shard = place.item("t").shard_id
    damaged(place, changed(shard, dropped=True))
    assert place.read("t") == [{"v": "a"}]
    place.write("t", {"v": "c"})
    place.coordinator.parts.maintenance.turn()
    assert not place.env.persist.reads.is_finalized(shard)
    place.restart()
    assert place.read("t") == [{"v": "a"}, {"v": "c"}]


@pytest.mark.parametrize(
    "damage",
    [
        lambda shard: no_shard(shard),
        lambda shard: (half_finalized(shard),),
        lambda shard: (*no_shard(shard)[1:], half_finalized(shard)),
    ],
    ids=["no_shard", "half_finalized", "finalized"],
)
def test_what_has_lost_its_contents_is_refused_and_the_rest_goes_on(place, damage):
    damaged(place, *damage(place.item("t").shard_id))
    for _ in range(2):
        assert place.read("other")[0] == {"v": "b"}
        assert refused(place, "t") == "SLACKWATER_CONTENTS_LOST"
        with pytest.raises(SlackwaterError) as caught:
            place.write("t", {"v": "c"})
        assert caught.value.condition == "SLACKWATER_CONTENTS_LOST"
        place.write("other", {"v": "c"})
        place.coordinator.parts.maintenance.turn()
        frontiers = {row["object_id"]: row for row in place.system("mz_frontiers")}
        assert frontiers[place.item("t").id]["read_frontier"] is None
        place.restart()
    with pytest.raises(SlackwaterError) as caught:
        place.drop("t")
    assert caught.value.condition == "SLACKWATER_DEPENDENT_OBJECTS"
    place.sql("DROP SINK s")
    place.drop("t")
    place.table("t", v="string")
    place.write("t", {"v": "d"})
    assert place.read("t") == [{"v": "d"}]
    place.coordinator.parts.maintenance.turn()
    place.restart()
    assert place.read("t") == [{"v": "d"}]


def test_a_finalization_that_was_not_done_goes_on(place):
    shard = place.item("other").shard_id
    place.drop("other")
    damaged(place, half_finalized(shard))
    place.coordinator.parts.maintenance.turn()
    assert place.env.persist.reads.is_finalized(shard)


def test_a_shard_of_nobody_is_finalized(place):
    table = place.item("other")
    damaged(place, changed(table.shard_id, dropped=False))
    place.drop("other")
    damaged(place, changed(table.shard_id, dropped=False))
    place.coordinator.parts.maintenance.turn()
    assert place.env.persist.reads.is_finalized(table.shard_id)


def test_a_shard_gets_the_columns_that_its_object_has(place):
    shard = place.item("t").shard_id
    damaged(place, changed(shard, schema_json=RelationDesc(()).to_json()))
    assert place.read("t") == [{"v": "a"}]
    assert place.env.persist.reads.state(shard).desc == place.item("t").desc


def test_a_shard_with_other_columns_has_lost_its_contents(place):
    shard = place.item("t").shard_id
    damaged(place, changed(shard, schema_json=RelationDesc.of(v="long").to_json()))
    assert refused(place, "t") == "SLACKWATER_CONTENTS_LOST"


@pytest.mark.parametrize("damage", [no_shard, lambda shard: (changed(shard, dropped=True),)])
def test_a_sink_goes_on_by_its_files(place, tmp_path, damage):
    wait_until(lambda: is_written(place, tmp_path, "a"))
    damaged(place, *damage(place.item("s").progress_shard))
    place.write("t", {"v": "c"})
    wait_until(lambda: is_written(place, tmp_path, "a", "c"))


def test_a_source_without_its_remap_has_lost_its_contents(place):
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    damaged(place, *no_shard(place.item("c_progress").shard_id))
    assert refused(place, "c") == "SLACKWATER_CONTENTS_LOST"
    assert refused(place, "c_progress") == "SLACKWATER_CONTENTS_LOST"
    assert place.read("other") == [{"v": "b"}]
    place.sql("DROP SOURCE c")


class Killed(Exception):
    """The process is gone."""


class Named(Answers):
    """Of each query it says that it is of the relation that stands at its end."""

    def analyze(self, text, catalog, namespace, functions=()):
        found = super().analyze(text, catalog, namespace, functions)
        read = (self.place.item(text.split()[-1]).id,)
        return replace(found, relations=read, named=read)


def test_a_view_is_computed_anew(env):
    place = Place(env, spark=Named())
    place.table("t", k="integer")
    place.sql("CREATE MATERIALIZED VIEW mv AS SELECT k FROM t")
    place.sql("CREATE MATERIALIZED VIEW above AS SELECT k FROM mv")
    before = {name: place.item(name) for name in ("mv", "above")}
    damaged(place, *no_shard(before["mv"].shard_id))
    after = place.item("mv")
    assert after.id == before["mv"].id
    assert after.shard_id != before["mv"].shard_id
    # It begins again, and so does what reads it: the history of its input is gone.
    assert place.env.storage.since(after.id).value == after.details.as_of
    assert place.item("above").shard_id != before["above"].shard_id
    # What was left of it is garbage.
    place.coordinator.parts.maintenance.turn()
    assert place.env.persist.reads.is_finalized(before["mv"].errors_shard)
    place.restart()
    assert place.item("mv") == after
    place.close()


def test_a_repair_that_was_cut_off_goes_on(env, monkeypatch):
    place = Place(env, spark=Named())
    place.table("t", k="integer")
    for name in ("first", "second"):
        place.sql(f"CREATE MATERIALIZED VIEW {name} AS SELECT k FROM t")
    gone = {name: place.item(name).shard_id for name in ("first", "second")}
    done, make = [], repair._repair_view

    def cut_off(persist, catalog, view):
        if done:
            raise Killed
        done.append(view.name)
        make(persist, catalog, view)

    damage = [each for shard in gone.values() for each in no_shard(shard)]
    with monkeypatch.context() as patched:
        patched.setattr(repair, "_repair_view", cut_off)
        with pytest.raises(Killed):
            damaged(place, *damage)
    place.start()
    assert {place.item(name).shard_id for name in gone}.isdisjoint(gone.values())
    place.close()


def test_what_reads_lost_contents_is_not_maintained(env):
    place = Place(env, spark=Answers())
    place.table("t", k="integer")
    place.sql("CREATE MATERIALIZED VIEW mv AS SELECT k FROM t")
    damaged(place, *no_shard(place.item("t").shard_id))
    maintained = place.env.compute.look(lambda core: core.collections(DEFAULT_CLUSTER.id))
    assert place.item("mv").id not in {state.id for state in maintained}
    place.sql("DROP MATERIALIZED VIEW mv")
    place.drop("t")
    place.close()
