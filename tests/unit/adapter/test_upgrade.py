"""Objects of the first version go on under this one."""

import json
import os

import sqlalchemy as sa
from tests.support.adapter.coordination import Place
from tests.support.planner.planned import Answers
from tests.unit.adapter.test_sinks import caught_up, row, written

from slackwater.persist.tables import catalog_items, source_states
from slackwater.repr.frontier import Timestamp


def as_of_the_first_version(env, ticks):
    """Takes away what that version did not know. A source's position was in its state: `ticks`."""
    items = catalog_items
    with env.engine.begin() as conn:
        bodies = [json.loads(b) for b in conn.scalars(sa.select(items.c.body))]
        for body in bodies:
            if body["details"].get("connector") == "progress":
                conn.execute(sa.delete(items).where(items.c.id == body["id"]))
                continue
            for key in ("progress", "exports", "progress_shard"):
                body["details"].pop(key, None)
            if body["kind"] == "source":
                body["depends_on"] = []
            conn.execute(
                sa.update(items).where(items.c.id == body["id"]).values(body=json.dumps(body))
            )
        for source_id, _, text in conn.execute(sa.select(source_states)).all():
            state = json.loads(text)
            if source_id in ticks:
                state["tick"] = ticks[source_id]
            conn.execute(
                sa.update(source_states)
                .where(source_states.c.source_id == source_id)
                .values(state=json.dumps(state))
            )


def test_sources_and_sinks_of_the_first_version_go_on(env, tmp_path):
    place = Place(env)
    place.table("t", k="long", v="string")
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER (TICK INTERVAL '20ms')")
    place.sql("CREATE SOURCE market FROM LOAD GENERATOR AUCTION (UP TO 1) FOR ALL TABLES")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text("k\n1\n")
    os.utime(tmp_path / "in" / "1.csv", (1000, 1000))
    place.sql(f"CREATE SOURCE f FROM FILES (PATH '{tmp_path}/in', FORMAT CSV, HEADER)")
    out = tmp_path / "out"
    place.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{out}', FORMAT JSON)")
    caught_up(place, out, place.write("t", row(1, "a")))
    place.wait(lambda: place.rows("f") and place.rows("ticks") and place.rows("users"))
    users = place.rows("users")
    place.close()
    ticks = {
        place.item(name).id: place.rows(f"{name}_progress")[0]["offset"]
        for name in ("ticks", "market")
    }
    as_of_the_first_version(env, ticks)
    place.start()
    place.wait(lambda: place.rows("f_progress") == [{"offset": 1}])
    place.wait(lambda: place.rows("ticks_progress") != [])
    place.wait(lambda: place.rows("market_progress") == [{"offset": 1}])
    assert place.rows("f") == [{"k": 1}]
    upper = place.env.persist.reads.tables_upper() - 1
    counted = sorted(each["counter"] for each in place.rows("ticks", upper))
    assert counted == list(range(1, len(counted) + 1))
    assert place.rows("ticks_progress", upper) == [{"offset": len(counted)}]
    assert place.rows("users") == users
    caught_up(place, out, place.write("t", row(2, "a")))
    assert written(out) == {(1, "a", 1): 1, (2, "a", 1): 1}
    details = place.item("s").details
    place.wait(lambda: place.env.persist.reads.upper(details.progress_shard) > details.as_of)
    revision = place.env.state.revision
    place.restart()
    assert place.env.state.revision == revision
    place.sql("DROP SOURCE market CASCADE")
    assert place.env.state.find("default", "market_progress") is None
    place.close()


def test_views_of_the_first_version_lose_their_state_shards_and_get_one_for_errors(env):
    place = Place(env, spark=Answers())
    place.table("t", k="integer")
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT k FROM t")
    place.wait(
        lambda: place.env.relations.upper(place.item("v")).value > place.item("v").details.as_of
    )
    persist, view = place.env.persist, place.item("v")
    made = []
    persist.transactions.transact(
        lambda conn: made.append(
            persist.definitions.create_shard(conn, view.desc, Timestamp(0), Timestamp(1))
        )
    )
    place.close()
    with env.engine.begin() as conn:
        items = catalog_items
        body = json.loads(conn.scalar(sa.select(items.c.body).where(items.c.id == view.id)))
        del body["details"]["errors"]
        body["details"]["states"] = made
        conn.execute(sa.update(items).where(items.c.id == view.id).values(body=json.dumps(body)))
    place.start()
    assert place.item("v").details.states is None
    assert place.item("v").errors_shard in place.env.persist.reads.shard_ids()
    assert not set(made) & set(place.env.persist.reads.shard_ids())
    before = place.env.relations.upper(place.item("v")).value
    place.wait(lambda: place.env.relations.upper(place.item("v")).value > before)
    place.close()


def test_the_cluster_is_called_by_its_own_name(env):
    place = Place(env)
    place.sql("CREATE SOURCE s IN CLUSTER quickstart FROM LOAD GENERATOR COUNTER (UP TO 1)")
    place.close()
    items = catalog_items
    with env.engine.begin() as conn:
        for body in map(json.loads, conn.scalars(sa.select(items.c.body))):
            body["create_sql"] = body["create_sql"].replace("`quickstart`", "`default`")
            conn.execute(
                sa.update(items).where(items.c.id == body["id"]).values(body=json.dumps(body))
            )
    place.start()
    assert "IN CLUSTER `quickstart`" in place.sql("SHOW CREATE SOURCE s")[0]["create_sql"]
    place.close()
