"""Tables that are made of sources: from their statement to their collections, without Spark."""

from __future__ import annotations

import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.repr.errors import SlackwaterError

MARKET = "CREATE SOURCE market FROM LOAD GENERATOR AUCTION (TICK INTERVAL '5ms', SEED 7)"

HISTORY = "WITH (RETAIN HISTORY FOR '1 hour')"


@pytest.fixture
def place(env):
    place = Place(env)
    yield place
    place.close()


def offset(place, source="market"):
    """How far the source has been read."""
    found = place.rows(f"{source}_progress")
    return found[0]["offset"] if found else 0


def refused(place, text):
    with pytest.raises(SlackwaterError) as error:
        place.sql(text)
    return error.value.condition


def told(place, name):
    """The type and the status of a source, or of a table that one fills."""
    (found,) = [row for row in place.system("mz_source_statuses") if row["name"] == name]
    return found["type"], found["status"]


def ids(place, name, at):
    return sorted(row["id"] for row in place.rows(name, at))


def agree(place, early, late):
    """The later table has at each time, from its first step on, what the earlier one has."""
    first = min(row["__time"] for row in place.updates(late))
    times = {row["__time"] for row in place.updates(early)} | {first}
    times |= {row["__time"] for row in place.updates(late)}
    later = sorted(time for time in times if time >= first)
    for time in (*later[:10], *later[-10:]):
        assert ids(place, early, time) == ids(place, late, time)
    return first, later


def test_a_table_that_comes_later_has_what_one_from_the_begin_has(place):
    place.sql(MARKET)
    place.sql(f"CREATE TABLE bids FROM SOURCE market (REFERENCE bids) {HISTORY}")
    place.sql(f"CREATE TABLE auctions FROM SOURCE market (REFERENCE auction.auctions) {HISTORY}")
    place.wait(lambda: offset(place) > 30)
    place.sql(f"CREATE TABLE again FROM SOURCE market (REFERENCE bids) {HISTORY}")
    place.sql(f"CREATE TABLE users FROM SOURCE market (REFERENCE users) {HISTORY}")
    assert len(place.read("again")) > 20
    assert len(place.read("users")) == 60
    place.wait(lambda: len({row["__time"] for row in place.updates("again")}) > 3)
    first, times = agree(place, "bids", "again")
    assert len(times) > 3
    # Before its first contents it would be empty beside what was there already.
    assert place.env.relations.since(place.item("again")).value == first
    with pytest.raises(SlackwaterError) as error:
        place.read("again", first - 1)
    assert error.value.condition == "SLACKWATER_NO_VALID_TIMESTAMP"
    begun = [row for row in place.updates("again") if row["__time"] == first]
    assert len(begun) > 20
    place.restart()
    reached = offset(place)
    place.wait(lambda: offset(place) > reached + 20)
    place.sql(f"CREATE TABLE third FROM SOURCE market (REFERENCE bids) {HISTORY}")
    place.read("third")
    agree(place, "bids", "again")
    agree(place, "bids", "third")
    found = [row["id"] for row in place.rows("bids")]
    assert len(set(found)) == len(found)


def test_what_a_table_of_a_source_is_and_takes(place):
    place.sql(MARKET)
    place.sql("CREATE TABLE IF NOT EXISTS t FROM SOURCE market (REFERENCE users)")
    place.sql("CREATE TABLE IF NOT EXISTS t FROM SOURCE market (REFERENCE bids)")
    assert len(place.read("t")) == 60
    (table,) = [row for row in place.system("mz_tables") if row["name"] == "t"]
    assert table["source_id"] == place.item("market").id
    place.wait(lambda: told(place, "t") == ("table", "running"))
    (shown,) = place.sql("SHOW CREATE TABLE t")
    made = "CREATE TABLE `slackwater`.`default`.`t` FROM SOURCE `slackwater`.`default`.`market`"
    assert shown["createtab_stmt"] == f"{made} (REFERENCE `auction`.`users`)"
    with pytest.raises(SlackwaterError) as error:
        place.write("t", {"id": 1, "org_id": 1, "name": "x"})
    assert error.value.condition == "SLACKWATER_READ_ONLY_RELATION"
    described = calls_of(place.coordinator)["/v1/catalog/load"](
        {"session": "app/1", "namespace": ["default"], "name": "t"}
    )
    assert described["kind"] == "table"
    assert not described["writable"]
    assert refused(place, "DROP SOURCE market") == "SLACKWATER_DEPENDENT_OBJECTS"
    place.sql("ALTER TABLE t RENAME TO people")
    (shown,) = place.sql("SHOW CREATE TABLE people")
    assert "`people` FROM SOURCE" in shown["createtab_stmt"]
    place.sql("ALTER TABLE people SET (RETAIN HISTORY FOR '1 hour')")
    assert place.item("people").retain_history_ms == 3_600_000
    place.sql("DROP TABLE people")
    reached = offset(place)
    place.wait(lambda: offset(place) > reached + 3)
    place.sql("CREATE TABLE t FROM SOURCE market (REFERENCE users)")
    place.sql("DROP SOURCE market CASCADE")
    assert place.env.state.find("default", "t") is None


def test_the_references_of_sources(place):
    place.sql("CREATE SOURCE market FROM LOAD GENERATOR AUCTION FOR TABLES (bids AS b, users)")
    assert len(place.read("users")) == 60
    assert place.item("b").kind.value == "source"
    found = {row["name"]: row for row in place.system("mz_source_references")}
    assert set(found) == {"accounts", "auctions", "bids", "organizations", "users"}
    assert found["users"]["namespace"] == "auction"
    assert found["users"]["columns"] == ["id", "org_id", "name"]
    place.sql("ALTER SOURCE market REFRESH REFERENCES")
    again = {row["name"]: row for row in place.system("mz_source_references")}
    assert again["users"]["updated_at"] >= found["users"]["updated_at"]
    place.sql("ALTER SOURCE IF EXISTS nothing REFRESH REFERENCES")
    twice = "CREATE SOURCE m FROM LOAD GENERATOR AUCTION FOR TABLES (bids, bids AS c)"
    assert refused(place, twice) == "SLACKWATER_INVALID_OPTION"


def test_reads_wait_for_the_first_contents(place):
    place.sql("CREATE CLUSTER c (SIZE '25cc', REPLICATION FACTOR 0)")
    place.sql("CREATE SOURCE m IN CLUSTER c FROM LOAD GENERATOR AUCTION")
    place.sql("CREATE TABLE u FROM SOURCE m (REFERENCE users)")
    place.sql("SET slackwater.statement_timeout = '50ms'")
    with pytest.raises(SlackwaterError) as error:
        place.read("u")
    assert error.value.condition == "SLACKWATER_SNAPSHOT_TIMEOUT"
    assert "slackwater.default.u has not read yet" in error.value.message
    assert "The cluster c, which reads it, has no replicas." in error.value.message
    assert told(place, "u") == ("table", "paused")
    place.sql("SET slackwater.statement_timeout = '10min'")
    place.sql("ALTER CLUSTER c SET (REPLICATION FACTOR 1)")
    assert len(place.read("u")) == 60


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("CREATE TABLE t FROM SOURCE market (REFERENCE nothing)", "SLACKWATER_UNKNOWN_REFERENCE"),
        ("CREATE TABLE t FROM SOURCE market", "SLACKWATER_UNKNOWN_REFERENCE"),
        (
            "CREATE TABLE t FROM SOURCE market (REFERENCE bids) FORMAT TEXT",
            "SLACKWATER_UNSUPPORTED",
        ),
        (
            "CREATE TABLE t FROM SOURCE market (REFERENCE bids) WITH (TEXT COLUMNS (id))",
            "SLACKWATER_UNSUPPORTED",
        ),
        ("CREATE TABLE t FROM SOURCE ticks", "SLACKWATER_UNSUPPORTED"),
        ("CREATE TABLE t FROM SOURCE nothing", "SLACKWATER_UNKNOWN_OBJECT"),
        ("CREATE TABLE t FROM SOURCE ticks_progress", "SLACKWATER_WRONG_KIND"),
        ("CREATE TABLE t FROM SOURCE hook", "SLACKWATER_UNSUPPORTED"),
        (
            "CREATE TABLE market FROM SOURCE market (REFERENCE bids)",
            "SLACKWATER_TABLE_ALREADY_EXISTS",
        ),
        ("ALTER SOURCE ticks REFRESH REFERENCES", "SLACKWATER_UNSUPPORTED"),
        ("ALTER SOURCE ticks_progress REFRESH REFERENCES", "SLACKWATER_WRONG_KIND"),
        (
            "CREATE SOURCE m FROM LOAD GENERATOR AUCTION FOR TABLES (nothing)",
            "SLACKWATER_UNKNOWN_REFERENCE",
        ),
    ],
)
def test_what_is_refused(place, text, condition):
    place.sql(MARKET)
    place.sql("CREATE SOURCE ticks FROM LOAD GENERATOR COUNTER")
    place.sql("CREATE SOURCE hook FROM WEBHOOK (BODY FORMAT TEXT)")
    assert refused(place, text) == condition
