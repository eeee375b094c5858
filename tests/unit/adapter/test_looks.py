"""`/v1/system`: relations at one time, what is later, what there is not, and why objects fail."""

from __future__ import annotations

import base64

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place
from tests.support.waiting import wait_until

from slackwater.adapter.protocol import System
from slackwater.adapter.system.looks import Looks
from slackwater.adapter.system.relations import SYSTEM_RELATIONS
from slackwater.persist.ipc import from_stream
from slackwater.repr.errors import SlackwaterError, user_error

AUDIT = "mz_catalog.mz_audit_events"
LAG = "mz_internal.mz_wallclock_global_lag"
ACTIVITY = "mz_internal.mz_recent_activity_log"

OF_THE_DRIVER = {"mz_arrangement_sizes", "mz_cluster_replica_metrics"}
"""Relations about what is in the memory of Spark's driver."""


@pytest.fixture
def place(env):
    opened = Place(env)
    yield opened
    opened.close()


def look(place, *relations, **body):
    return calls_of(place.coordinator)["/v1/system"]({"relations": list(relations), **body})


def rows(told, relation):
    return from_stream(base64.b64decode(told["relations"][relation])).to_pylist()


def test_relations_come_in_one_answer_without_a_session(place):
    place.table("t", k="long")
    before = len(place.system("mz_sessions"))
    told = look(place, "mz_catalog.mz_tables", LAG, "mz_internal.mz_sessions")
    (table,) = [row for row in rows(told, "mz_catalog.mz_tables") if row["name"] == "t"]
    (lag,) = [row for row in rows(told, LAG) if row["object_id"] == table["id"]]
    assert lag["lag"] >= 0
    assert len(rows(told, "mz_internal.mz_sessions")) == before
    assert (told["unknown"], told["errors"]) == ([], [])


def test_every_relation_is_told(place):
    names = [
        f"{each.schema_name}.{each.name}"
        for each in SYSTEM_RELATIONS
        if each.name not in OF_THE_DRIVER
    ]
    told = look(place, *names)
    assert list(told["relations"]) == names


@pytest.mark.parametrize("name", ["mz_internal.mz_nothing", "mz_tables", "default.t", ""])
def test_what_is_no_system_relation_is_named_and_the_others_come(place, name):
    place.table("t", k="long")
    told = look(place, LAG, name)
    assert (told["unknown"], list(told["relations"])) == ([name], [LAG])


def test_rows_of_before_are_left_out_where_rows_have_a_time(place):
    place.table("old", k="long")
    last = max(row["occurred_at"] for row in rows(look(place, AUDIT), AUDIT))
    after = {AUDIT: int(last.timestamp() * 1000) + 1, LAG: 2**52}
    told = look(place, AUDIT, LAG, after=after)
    assert rows(told, AUDIT) == []
    assert rows(told, LAG), "it has no time by which rows could be left out"
    place.table("new", k="long")
    told = look(place, AUDIT, after=after)
    assert all(row["occurred_at"].timestamp() * 1000 >= after[AUDIT] for row in rows(told, AUDIT))
    assert any('"new"' in row["details"] for row in rows(told, AUDIT))


def test_what_has_not_finished_is_told_however_early_it_began(place):
    place.table("t", k="long")
    bind = {"session": "app/1", "execution": "7", "relations": [{"id": place.item("t").id}]}
    bound = calls_of(place.coordinator)["/v1/bind"](bind)
    (running,) = rows(look(place, ACTIVITY, after={ACTIVITY: 2**52}), ACTIVITY)
    assert (running["statement"], running["finished_at"]) == ("7", None)
    calls_of(place.coordinator)["/v1/release"]({"session": "app/1", "holds": [bound["hold"]]})
    assert rows(look(place, ACTIVITY, after={ACTIVITY: 2**52}), ACTIVITY) == []
    assert len(rows(look(place, ACTIVITY, after={ACTIVITY: 0}), ACTIVITY)) == 2


def test_an_object_that_cannot_be_read_is_told_with_its_error(place, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_text("k\n1\n")
    place.sql(
        f"CREATE SOURCE f FROM FILES (PATH '{folder}', FORMAT CSV, HEADER, "
        "ON ERROR PROPAGATE) WITH (TIMESTAMP INTERVAL '20ms')"
    )
    place.wait(lambda: len(place.rows("f")) == 1)
    assert look(place)["errors"] == []
    (folder / "2.csv").write_text("k\nx\n")
    (told,) = wait_until(lambda: look(place)["errors"], what="the source has an error")
    assert told["object_id"] == place.item("f").id
    assert told["condition"] == "SLACKWATER_SOURCE_ERROR"
    assert "2.csv, line 2" in told["message"]
    with pytest.raises(SlackwaterError):
        place.read("f")
    since, later = told["since"], look(place)
    assert 0 < since <= later["now"]
    place.table("t", k="long")
    assert look(place)["errors"][0]["since"] == since, "it is as old as the error"


def test_a_request_that_is_none_is_refused(place):
    for body in ({"relation": []}, {"relations": 3}, {"after": [1]}):
        with pytest.raises(SlackwaterError) as refused:
            calls_of(place.coordinator)["/v1/system"](body)
        assert refused.value.condition == "SLACKWATER_INVALID_REQUEST"


class Behind:
    """Relations whose catalog is that of before."""

    def __init__(self, relations):
        self.state = relations.state
        self._relations = relations

    def __getattr__(self, name):
        return getattr(self._relations, name)


def test_an_object_that_is_dropped_meanwhile_is_left_out(place, tmp_path):
    (tmp_path / "1.csv").write_text("k\n1\n")
    place.sql(
        f"CREATE SOURCE f FROM FILES (PATH '{tmp_path}', FORMAT CSV, HEADER, ON ERROR PROPAGATE)"
    )
    place.wait(lambda: len(place.rows("f")) == 1)
    parts = place.coordinator.parts
    looks = Looks(Behind(parts.relations), parts.system)
    place.sql("DROP SOURCE f CASCADE")
    assert looks.look(System((LAG,)))["errors"] == []


def test_of_lost_contents_the_others_are_told(place, tmp_path):
    (tmp_path / "1.csv").write_text("k\n1\n")
    place.sql(
        f"CREATE SOURCE f FROM FILES (PATH '{tmp_path}', FORMAT CSV, HEADER, ON ERROR PROPAGATE)"
    )
    place.wait(lambda: len(place.rows("f")) == 1)
    lost = place.item("f")
    parts = place.coordinator.parts

    class Lost(Behind):
        def upper(self, item):
            if item.id == lost.id:
                raise user_error("SLACKWATER_CONTENTS_LOST", objectName=item.full_name)
            return self._relations.upper(item)

    (told,) = Looks(Lost(parts.relations), parts.system).look(System((LAG,)))["errors"]
    assert (told["object_id"], told["since"]) == (lost.id, None)
    assert told["condition"] == "SLACKWATER_CONTENTS_LOST"
