"""Sources that read tables of a real PostgreSQL, over a coordinator and Spark."""

from __future__ import annotations

import psycopg
import pytest
from tests.support.applications.application import SqlError
from tests.support.applications.awaited import becomes
from tests.support.persist.postgres import running_server
from tests.support.server.ingress import held_port
from tests.support.storage.upstreams import running_upstream_server
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.fixture
def place(workplace, upstream):
    """A workplace with a connection to the database, as `pg`."""
    workplace.sql(f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})")
    return workplace


FAST = "WITH (TIMESTAMP INTERVAL '50 ms')"


def test_tables_are_copied_and_followed(place, upstream):
    upstream.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, item TEXT NOT NULL, price NUMERIC(10, 2))",
        "CREATE TABLE notes (of_order INT, note TEXT)",
        "ALTER TABLE notes REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO orders VALUES (1, 'tea', 2.50), (2, 'oat, \"fine\"', NULL)",
        "INSERT INTO notes VALUES (1, E'two\\nlines'), (1, ''), (1, NULL)",
    )
    place.sql(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') "
        f"FOR TABLES (public.orders, notes AS remarks) {FAST}"
    )
    assert sorted(place.rows("SELECT * FROM orders")) == [
        [1, "tea", "2.50"],
        [2, 'oat, "fine"', None],
    ]
    becomes(place, "SELECT * FROM remarks", [[1, "two\nlines"], [1, ""], [1, None]])
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c, sum(price) AS p FROM orders")
    upstream.run(
        "INSERT INTO orders VALUES (3, 'milk', 1.25)",
        "UPDATE orders SET price = 3 WHERE id = 1",
        "UPDATE orders SET id = 20 WHERE id = 2",
        "DELETE FROM notes WHERE note = ''",
        "UPDATE notes SET note = 'x' WHERE note IS NULL",
    )
    becomes(place, "SELECT * FROM v", [[3, "4.25"]])
    becomes(place, "SELECT id FROM orders", [[1], [3], [20]])
    becomes(place, "SELECT note FROM remarks", [["two\nlines"], ["x"]])
    upstream.run("TRUNCATE orders, notes", "INSERT INTO orders VALUES (1, 'new', 1)")
    becomes(place, "SELECT * FROM orders", [[1, "new", "1.00"]])
    becomes(place, "SELECT * FROM remarks", [])


def status_of(place, name):
    return place.value(f"SELECT error FROM mz_internal.mz_source_statuses WHERE name = '{name}'")


def test_what_does_not_fit_is_an_error_of_its_table(place, upstream):
    upstream.run(
        "CREATE TABLE keyed (id INT PRIMARY KEY, n NUMERIC, big TEXT)",
        "CREATE TABLE whole (n NUMERIC, t TEXT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "ALTER TABLE keyed ALTER big SET STORAGE EXTERNAL",
        "ALTER TABLE whole REPLICA IDENTITY FULL, ALTER t SET STORAGE EXTERNAL",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO keyed VALUES (1, 'NaN', 'x'), (2, 1.5, repeat('a', 5000))",
        "INSERT INTO whole VALUES (1, repeat('b', 5000)), (2, 'y')",
        "INSERT INTO other VALUES (1)",
    )
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR") as caught:
        place.rows("SELECT * FROM keyed")
    assert "the value 'NaN', which is no DECIMAL(38,18); TEXT COLUMNS" in caught.value.message
    assert "SLACKWATER_SOURCE_TABLE_ERROR" in status_of(place, "s")
    becomes(place, "SELECT * FROM other", [[1]])
    # A large value that an update does not change is not sent again.
    upstream.run("UPDATE keyed SET n = 2 WHERE id = 2", "DELETE FROM keyed WHERE id = 1")
    becomes(place, "SELECT id, n, length(big) FROM keyed", [[2, "2.000000000000000000", 5000]])
    upstream.run(
        "UPDATE whole SET n = 'infinity' WHERE n = 1",
        "INSERT INTO whole VALUES ('NaN', 'z'), ('NaN', 'z')",
        "INSERT INTO other VALUES (2)",
    ) if upstream.connection.info.server_version >= 140000 else None
    becomes(place, "SELECT * FROM other", [[1], [2]])
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM whole")
    upstream.run("UPDATE whole SET n = 3 WHERE n = 'infinity'", "DELETE FROM whole WHERE n = 'NaN'")
    becomes(place, "SELECT CAST(n AS INT), length(t) FROM whole", [[3, 5000], [2, 1]])
    wait_until(lambda: status_of(place, "s") is None, what="no table has an error")
    place.sql(
        "CREATE CONNECTION pg2 TO POSTGRES (HOST '127.0.0.1', PORT 1, DATABASE 'd', USER 'u')"
        " WITH (VALIDATE = false)"
    )
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_UNREACHABLE"):
        place.sql("CREATE SOURCE u FROM POSTGRES CONNECTION pg2 (PUBLICATION 'p') FOR ALL TABLES")


def refused(place, condition, words, rest="(PUBLICATION 'p') FOR ALL TABLES", connection="pg"):
    with pytest.raises(SqlError, match=condition) as caught:
        place.sql(f"CREATE SOURCE refused FROM POSTGRES CONNECTION {connection} {rest}")
    assert words in caught.value.message, caught.value.message


def test_what_is_not_there_is_refused(place, upstream):
    refused(place, "SLACKWATER_UNKNOWN_PUBLICATION", "has no publication p")
    upstream.run("CREATE PUBLICATION p")
    refused(place, "SLACKWATER_UNKNOWN_UPSTREAM_TABLE", "It has none.")
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT)",
        "CREATE SCHEMA x",
        "CREATE TABLE x.a (id INT PRIMARY KEY)",
        "ALTER PUBLICATION p ADD TABLE a, x.a",
    )
    unknown, invalid = "SLACKWATER_UNKNOWN_UPSTREAM_TABLE", "SLACKWATER_INVALID_OPTION"
    of = "(PUBLICATION 'p')"
    refused(place, unknown, "It has public.a, x.a.", f"{of} FOR TABLES (b)")
    refused(place, unknown, "no tables in the schema y", f"{of} FOR SCHEMAS (y)")
    refused(place, invalid, "public.a and x.a would have this name", f"{of} FOR ALL TABLES")
    refused(place, invalid, "tables of this name in public, x", f"{of} FOR TABLES (a)")
    refused(place, invalid, "has public.a twice", f"{of} FOR TABLES (public.a, public.a AS b)")
    for option, words in (
        ("TEXT COLUMNS (public.a.z)", "public.a has no such column"),
        ("EXCLUDE COLUMNS (public.a.id)", "it belongs to the key of public.a"),
        ("TEXT COLUMNS (x.a.id)", "the source does not have its table"),
    ):
        refused(place, invalid, words, f"(PUBLICATION 'p', {option}) FOR TABLES (public.a)")
    slow = f"{of} FOR TABLES (x.a) WITH (TIMESTAMP INTERVAL '1 minute')"
    refused(place, invalid, "the most 30000 ms", slow)


def test_what_a_server_does_not_allow_is_refused(place, upstream):
    setting = "SLACKWATER_UPSTREAM_SETTING"
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE a WITH (publish = 'insert, update')",
    )
    refused(place, setting, "leaves out delete and truncate")
    upstream.run(
        "ALTER PUBLICATION p SET (publish = 'insert, update, delete, truncate',"
        " publish_via_partition_root = true)"
    )
    refused(place, setting, 'ALTER PUBLICATION "p" SET (publish_via_partition_root = false)')
    with (
        held_port() as port,
        running_server(port=port, settings=("listen_addresses=127.0.0.1",)) as small,
    ):
        where = f"HOST '127.0.0.1', PORT {port}, DATABASE 'postgres', USER 'postgres'"
        place.sql(f"CREATE CONNECTION small TO POSTGRES ({where}, SSL MODE disable)")
        refused(place, setting, "ALTER SYSTEM SET wal_level = 'logical'", connection="small")
        small.settings = ("listen_addresses=127.0.0.1", "wal_level=logical")
        small.execute("CREATE PUBLICATION p FOR ALL TABLES")
        for more, words in (
            ("max_replication_slots=0", "max_replication_slots"),
            ("max_wal_senders=0", "max_wal_senders"),
        ):
            small.settings = (*small.settings[:2], more)
            small.restart()
            refused(place, setting, words, connection="small")


def test_who_may_not_is_refused(place, upstream):
    permission = "SLACKWATER_UPSTREAM_PERMISSION"
    user = f"reader_{upstream.database}"
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        f"CREATE ROLE {user} LOGIN",
    )
    where = f"HOST '127.0.0.1', PORT {upstream.server.port}, DATABASE '{upstream.database}'"
    place.sql(f"CREATE CONNECTION weak TO POSTGRES ({where}, USER '{user}', SSL MODE disable)")
    refused(place, permission, f'ALTER ROLE "{user}" REPLICATION', connection="weak")
    upstream.run(f"ALTER ROLE {user} REPLICATION")
    refused(place, permission, f'GRANT SELECT ON public.a TO "{user}"', connection="weak")
    upstream.run(f"GRANT SELECT ON a TO {user}", "INSERT INTO a VALUES (1)")
    place.sql("CREATE SOURCE s FROM POSTGRES CONNECTION weak (PUBLICATION 'p') FOR ALL TABLES")
    assert place.rows("SELECT * FROM a") == [[1]]


def test_a_source_that_is_dropped_leaves_no_slot(place, upstream):
    upstream.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    slot = place.value(
        "SELECT replication_slot FROM mz_internal.mz_postgres_sources p"
        " JOIN mz_catalog.mz_sources s ON s.id = p.id WHERE s.name = 's' AND s.schema_id ="
        " (SELECT schema_id FROM mz_catalog.mz_connections WHERE name = 'pg'"
        " AND id = s.connection_id)"
    )
    named = f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'"
    assert upstream.rows(named) == [(True,)]
    assert place.rows(
        "SELECT schema_name, table_name FROM mz_internal.mz_postgres_source_tables t"
        " JOIN mz_catalog.mz_sources s ON s.id = t.id WHERE s.name = 'a'"
    ) == [["public", "a"]]
    place.sql("DROP CONNECTION pg CASCADE")
    wait_until(lambda: upstream.rows(named) == [], what="the slot is gone")


def test_tables_come_later_and_are_read_again_alone(place, upstream):
    upstream.run(
        "CREATE SCHEMA x",
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT, n NUMERIC, secret TEXT)",
        "CREATE TABLE x.b (x INT, y TEXT)",
        "ALTER TABLE x.b REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE a, x.b",
        "INSERT INTO a SELECT n, repeat('x', 10), n, 's' FROM generate_series(1, 1000) n",
        "INSERT INTO x.b VALUES (1, 'one'), (1, 'one'), (2, NULL)",
    )
    place.sql(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p', SNAPSHOT CONNECTIONS 3)"
        f" {FAST}"
    )
    place.sql(
        "CREATE TABLE first FROM SOURCE s (REFERENCE public.a) WITH (TEXT COLUMNS (N),"
        " EXCLUDE COLUMNS (secret))"
    )
    count = "SELECT count(*), max(n) FROM first"
    assert place.rows(count) == [[1000, "999"]]
    # An open transaction keeps a copy waiting; the source goes on, and the table misses nothing.
    other = upstream.connected()
    with other, other.transaction():
        other.execute("INSERT INTO a VALUES (2000, 'open', 0)")
        place.sql("CREATE TABLE second FROM SOURCE s (REFERENCE a)")
        place.sql("CREATE TABLE b FROM SOURCE s (REFERENCE x.b)")
        upstream.run("UPDATE a SET t = 'changed' WHERE id = 1", "DELETE FROM a WHERE id = 2")
        becomes(place, "SELECT id FROM first WHERE t = 'changed'", [[1]])
    becomes(place, count, [[1000, "999"]])
    assert place.rows("SELECT count(*) FROM second WHERE secret = 's'") == [[999]]
    assert sorted(place.rows("SELECT * FROM b"), key=repr) == [[1, "one"], [1, "one"], [2, None]]
    upstream.run("DELETE FROM x.b WHERE x = 1", "UPDATE a SET n = 'NaN' WHERE id = 3")
    becomes(place, "SELECT * FROM b", [[2, None]])
    becomes(place, "SELECT n FROM first WHERE id = 3", [["NaN"]])
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM second")
    upstream.run("UPDATE a SET n = 3 WHERE id = 3")
    becomes(place, "SELECT count(*) FROM second WHERE id = 3", [[1]])

    # One table is read again, while the others go on.
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS c FROM first")
    upstream.run("ALTER PUBLICATION p DROP TABLE a", "ALTER PUBLICATION p ADD TABLE a")
    left = "table public.a: it has left the publication"
    wait_until(lambda: left in (status_of(place, "s") or ""), what="the table has an error")
    upstream.run("DELETE FROM a WHERE id > 900", "INSERT INTO x.b VALUES (3, 'three')")
    becomes(place, "SELECT * FROM b", [[2, None], [3, "three"]])
    place.sql("ALTER SOURCE s RESNAPSHOT TABLES (first)")
    assert place.rows("SELECT * FROM v") == [[899]]
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM second")
    place.sql("ALTER SOURCE s RESNAPSHOT TABLES (second, b)")
    assert place.rows("SELECT count(*) FROM second") == [[899]]
    upstream.run("DELETE FROM a WHERE id > 800")
    becomes(place, "SELECT * FROM v", [[799]])
    becomes(place, "SELECT count(*) FROM second", [[799]])
    wait_until(lambda: status_of(place, "s") is None, what="no table has an error")

    # A table that is larger than what a step keeps in memory is copied by files, and by ranges.
    upstream.run(
        "CREATE TABLE x.large (id INT PRIMARY KEY, t TEXT)",
        "ALTER TABLE x.large ALTER t SET STORAGE EXTERNAL",
        "INSERT INTO x.large SELECT n, repeat('y', 100000) FROM generate_series(1, 700) n",
        "ALTER PUBLICATION p ADD TABLE x.large",
    )
    place.sql("CREATE TABLE large FROM SOURCE s (REFERENCE large)")
    assert place.rows("SELECT count(*), sum(length(t)) FROM large") == [[700, 70000000]]
    upstream.run("DELETE FROM x.large WHERE id > 10")
    place.sql("ALTER SOURCE s RESNAPSHOT TABLES (large)")
    becomes(place, "SELECT count(*) FROM large", [[10]])

    # What a table cannot be, and what it leaves behind.
    for statement, words in (
        ("CREATE TABLE u FROM SOURCE s (REFERENCE public.z)", "SLACKWATER_UNKNOWN_REFERENCE"),
        ("CREATE TABLE u FROM SOURCE s (REFERENCE a) FORMAT TEXT", "Only sources of messages"),
        (
            "CREATE TABLE u FROM SOURCE s (REFERENCE a) WITH (EXCLUDE COLUMNS (id))",
            "it belongs to the key of public.a",
        ),
        (
            "CREATE TABLE u FROM SOURCE s (REFERENCE a) WITH (TEXT COLUMNS (z))",
            "public.a has no such column",
        ),
        ("ALTER SOURCE s RESNAPSHOT TABLES (v)", "SLACKWATER_WRONG_KIND"),
        ("INSERT INTO b VALUES (1, 'x')", "SLACKWATER_READ_ONLY_RELATION"),
        ("DROP SOURCE s", "SLACKWATER_DEPENDENT_OBJECTS"),
    ):
        with pytest.raises(SqlError, match=words):
            place.sql(statement)
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    assert upstream.rows(slots) == [(1,)]
    place.sql("DROP TABLE second")
    upstream.run("CREATE TABLE x.c (id INT PRIMARY KEY)", "ALTER PUBLICATION p ADD TABLE x.c")
    references = (
        "SELECT namespace, r.name, columns FROM mz_internal.mz_source_references r"
        " JOIN mz_catalog.mz_sources s ON s.id = r.source_id JOIN mz_catalog.mz_tables t"
        " ON t.name = 'first' AND t.schema_id = s.schema_id WHERE s.name = 's'"
    )
    before = [["public", "a", ["id", "t", "n", "secret"]], ["x", "b", ["x", "y"]]]
    assert sorted(place.rows(references)) == before
    place.sql("ALTER SOURCE s REFRESH REFERENCES")
    after = [*before, ["x", "c", ["id"]], ["x", "large", ["id", "t"]]]
    assert sorted(place.rows(references)) == after
    becomes(place, "SELECT * FROM v", [[799]])
    ((shown,),) = place.rows("SHOW CREATE TABLE first")
    place.sql("DROP MATERIALIZED VIEW v")
    place.sql("DROP TABLE first")
    place.sql(shown)
    assert place.rows(count) == [[799, "99"]]


def test_a_table_whose_columns_change(place, upstream):
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT, gone INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE f (x INT, gone INT)",
        "ALTER TABLE f REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE a, b, f",
        "INSERT INTO a VALUES (1, 'x', 1)",
        "INSERT INTO b VALUES (1, 1)",
        "INSERT INTO f VALUES (1, 1), (1, 2), (1, 2)",
    )
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    upstream.run(
        "ALTER TABLE a ADD COLUMN more INT DEFAULT 7",
        "INSERT INTO a VALUES (2, 'y', 2, 8)",
    )
    becomes(place, "SELECT * FROM a", [[1, "x", 1], [2, "y", 2]])
    upstream.run(
        "ALTER TABLE a DROP COLUMN gone",
        "INSERT INTO a VALUES (3, 'z', 9)",
        "ALTER TABLE f DROP COLUMN gone",
        "INSERT INTO f VALUES (3)",
    )
    becomes(place, "SELECT * FROM a", [[1, "x", None], [2, "y", None], [3, "z", None]])
    upstream.run("DELETE FROM f WHERE x = 1", "ALTER TABLE a RENAME TO aa")
    becomes(place, "SELECT * FROM f", [[3, None]])
    upstream.run("ALTER TABLE b ALTER n TYPE BIGINT", "INSERT INTO b VALUES (2, 2)")
    upstream.run("DELETE FROM aa WHERE id < 3")
    becomes(place, "SELECT * FROM a", [[3, "z", None]])

    def told():
        return "table public.b: the type of its column n was changed" in (
            status_of(place, "s") or ""
        )

    wait_until(told, what="the table with another type has an error")
    with pytest.raises(SqlError, match="SLACKWATER_SOURCE_ERROR"):
        place.rows("SELECT * FROM b")
    upstream.run("ALTER TABLE b ALTER n TYPE INT")
    place.sql("ALTER SOURCE s RESNAPSHOT")
    becomes(place, "SELECT * FROM b", [[1, 1], [2, 2]])
    upstream.run("UPDATE b SET n = 5 WHERE id = 2", "INSERT INTO f VALUES (4)")
    becomes(place, "SELECT * FROM b", [[1, 1], [2, 5]])
    becomes(place, "SELECT x FROM f", [[3], [4]])
    wait_until(lambda: status_of(place, "s") is None, what="no table has an error")
    slot = upstream.rows(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )[0][0]
    upstream.run(
        f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
        f" WHERE slot_name = '{slot}'"
    )
    upstream.run("INSERT INTO b VALUES (3, 3)")
    becomes(place, "SELECT * FROM b", [[1, 1], [2, 5], [3, 3]])


def test_columns_that_were_added_are_taken(place, upstream):
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT, secret TEXT)",
        "CREATE TABLE whole (x INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR TABLE a, whole, other",
        "INSERT INTO a VALUES (1, 'x', 's'), (2, 'y', 's')",
        "INSERT INTO whole VALUES (1), (1)",
    )
    place.sql(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg"
        f" (PUBLICATION 'p', EXCLUDE COLUMNS (a.Secret)) FOR TABLES (a, whole, other) {FAST}"
    )
    place.sql("CREATE TABLE second FROM SOURCE s (REFERENCE a) WITH (EXCLUDE COLUMNS (t))")
    place.sql("CREATE INDEX by_id ON a (id)")
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM other")
    assert place.rows("SELECT * FROM second") == [[1, "s"], [2, "s"]]
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    assert sorted(place.rows("SELECT * FROM a")) == [[1, "x"], [2, "y"]]
    upstream.run(
        'ALTER TABLE a ADD COLUMN "a ""b`" INT NOT NULL DEFAULT 7, ADD COLUMN "Größe" TEXT',
        "ALTER TABLE whole ADD COLUMN y NUMERIC(4, 1) DEFAULT 1.5",
        "INSERT INTO a VALUES (3, 'z', 's', 8, 'new')",
        "UPDATE whole SET y = 2.5 WHERE ctid = '(0,1)'",
    )
    becomes(place, "SELECT * FROM a", [[1, "x"], [2, "y"], [3, "z"]])
    with pytest.raises(SqlError, match="s REFRESH SCHEMA takes"):
        place.sql("ALTER TABLE a ADD COLUMN more INT")

    # A transaction that is open upstream holds the copy up: the source goes on without the columns.
    other = upstream.connected()
    with other, other.transaction():
        other.execute("INSERT INTO other VALUES (1)")
        place.sql("SET statement_timeout = '1s'")
        with pytest.raises(SqlError, match="SLACKWATER_STATEMENT_TIMEOUT"):
            place.sql("ALTER SOURCE s REFRESH SCHEMA TABLES (a, whole, second)")
        place.sql("RESET statement_timeout")
        upstream.run(
            "UPDATE a SET t = 'changed' WHERE id = 1",
            "DELETE FROM a WHERE id = 2",
            "DELETE FROM whole WHERE y = 1.5",
            "INSERT INTO whole VALUES (3, 3.5)",
        )
        becomes(place, "SELECT * FROM a", [[1, "changed", None, None], [3, "z", None, None]])
        becomes(place, "SELECT * FROM whole", [[1, None], [3, None]])
    place.sql("ALTER SOURCE s REFRESH SCHEMA")
    assert sorted(place.rows("SELECT * FROM a")) == [[1, "changed", 7, None], [3, "z", 8, "new"]]
    assert sorted(place.rows("SELECT * FROM whole")) == [[1, "2.5"], [3, "3.5"]]
    assert sorted(place.rows("SELECT * FROM second")) == [[1, "s", 7, None], [3, "s", 8, "new"]]
    assert place.rows("SELECT `Größe` FROM a WHERE id = 3") == [["new"]]
    upstream.run(
        "UPDATE a SET \"Größe\" = 'late' WHERE id = 1",
        "DELETE FROM whole WHERE y = 2.5",
        "INSERT INTO other VALUES (2)",
    )
    becomes(place, 'SELECT `Größe`, `a "b``` FROM a', [["late", 7], ["new", 8]])
    becomes(place, "SELECT * FROM whole", [[3, "3.5"]])
    becomes(place, "SELECT * FROM v", [[2]])
    assert status_of(place, "s") is None

    # A view has taken its columns from its table already.
    upstream.run("ALTER TABLE other ADD COLUMN more INT", "ALTER TABLE whole ADD COLUMN z INT")
    with pytest.raises(SqlError, match="SLACKWATER_DEPENDENT_OBJECTS"):
        place.sql("ALTER SOURCE s REFRESH SCHEMA")
    assert place.rows("SELECT * FROM whole") == [[3, "3.5"]]
    place.sql("ALTER SOURCE IF EXISTS s REFRESH SCHEMA TABLES (whole)")
    assert place.rows("SELECT * FROM whole") == [[3, "3.5", None]]
    # All tables are read again, with all their columns; one that is gone is NULL.
    upstream.run("UPDATE whole SET z = 5", 'ALTER TABLE a DROP COLUMN "Größe"')
    place.sql("ALTER SOURCE s RESNAPSHOT")
    assert place.rows("SELECT * FROM whole") == [[3, "3.5", 5]]
    assert sorted(place.rows("SELECT * FROM a")) == [[1, "changed", 7, None], [3, "z", 8, None]]


def test_names_and_values_of_all_kinds(place, upstream):
    upstream.run(
        "CREATE TYPE mood AS ENUM ('fine', 'so ''so''')",
        "CREATE DOMAIN price AS NUMERIC(6, 2)",
        'CREATE TABLE "Select" ("From" INT PRIMARY KEY, "a ""b"" `c`" TEXT, "größe" mood, d price,'
        " e INT GENERATED ALWAYS AS (1) STORED, f TIMESTAMPTZ, g BYTEA, h INT[], i JSONB,"
        " j BOOLEAN, k DATE, l INTERVAL, m TEXT[], secret TEXT, huge NUMERIC)",
        "CREATE TABLE one (t TEXT)",
        "ALTER TABLE one REPLICA IDENTITY FULL",
        "CREATE TABLE parted (id INT PRIMARY KEY, t TEXT) PARTITION BY LIST (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1, 2)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO one VALUES (NULL), (''), ('NULL'), (E'\\\\.'), (E'a\\nb'), ('\"')",
        "INSERT INTO parted VALUES (1, 'x')",
    )
    values = (
        "E'\\\\ \\n ''q'' \"z\" \u00fc\U0001f600', {}, 1.5, '2020-01-02 03:04:05.678+02',"
        " '\\x00ff', '{{1,NULL}}', '{{\"a\": 1}}', true, '2020-02-29', '1 day 2 hours',"
        " '{{\"a,b\",NULL}}', 'hidden', 'NaN'"
    )
    into = (
        'INSERT INTO "Select" ("From", "a ""b"" `c`", "größe", d, f, g, h, i, j, k, l, m,'
        " secret, huge) VALUES ({}, {})"
    )
    upstream.run(into.format(1, values.format("'fine'")))
    place.sql(
        "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p', TEXT COLUMNS"
        " (public.`select`.huge), EXCLUDE COLUMNS (`Select`.secret))"
        f" FOR TABLES (public.`Select` AS `of all kinds`, one, parted_1) {FAST}"
    )
    upstream.run(into.format(2, values.format("'so ''so'''")))
    row = [
        "\\ \n 'q' \"z\" \u00fc\U0001f600",
        "1.50",
        "2020-01-02T01:04:05.678000",
        "00ff",
        [1, None],
        '{"a": 1}',
        True,
        "2020-02-29",
        "1 day 02:00:00",
        ["a,b", None],
        "NaN",
    ]
    query = (
        'SELECT `From`, `größe`, `a "b" ``c```, d, f, lower(hex(g)), h, i, j, k, l, m, huge'
        " FROM `of all kinds`"
    )
    becomes(place, query, [[1, "fine", *row], [2, "so 'so'", *row]])
    texts = [[None], [""], ["NULL"], ["\\."], ["a\nb"], ['"']]
    becomes(place, "SELECT * FROM one", texts)
    upstream.run("UPDATE one SET t = t", "INSERT INTO parted VALUES (2, 'y')")
    becomes(place, "SELECT * FROM parted_1", [[1, "x"], [2, "y"]])
    becomes(place, "SELECT * FROM one", texts)
    ((_, shown),) = place.rows("SHOW CREATE SOURCE s")
    again = shown.replace("`s`", "`again`", 1)
    again = again.replace("`of all kinds`", "`other`").replace("`one`,", "`one` AS `other one`,")
    again = again.replace("`parted_1`)", "`parted_1` AS `other part`)")
    place.sql(again)
    becomes(
        place, query.replace("of all kinds", "other"), [[1, "fine", *row], [2, "so 'so'", *row]]
    )


def test_a_condition_of_the_publication_counts_for_the_copy_too(place, upstream):
    if upstream.connection.info.server_version < 150000:
        upstream.run("CREATE TABLE a (id INT PRIMARY KEY)", "CREATE PUBLICATION p FOR TABLE a")
        place.sql("CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES")
        return
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT, hidden TEXT)",
        "CREATE PUBLICATION p FOR TABLE a (id, t) WHERE (id > 10)",
        "INSERT INTO a VALUES (1, 'x'), (11, 'y')",
    )
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    notice = "The publication leaves out columns of public.a: `hidden`."
    assert [message for _, _, message, _ in place.rows("SHOW NOTICES")].count(notice) == 1
    assert place.rows("SELECT * FROM a") == [[11, "y"]]
    place.sql("CREATE TABLE later FROM SOURCE s (REFERENCE a)")
    assert [message for _, _, message, _ in place.rows("SHOW NOTICES")].count(notice) == 2
    assert place.rows("SELECT * FROM later") == [[11, "y"]]
    upstream.run("UPDATE a SET id = 12 WHERE id = 1", "UPDATE a SET id = 2 WHERE id = 11")
    becomes(place, "SELECT * FROM a", [[12, "x"]])
    becomes(place, "SELECT * FROM later", [[12, "x"]])


def test_a_slot_that_is_gone_is_told_and_made_again(place, upstream):
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO a VALUES (1), (2)",
    )
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM a")
    becomes(place, "SELECT * FROM v", [[2]])
    ((slot,),) = upstream.rows(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    )

    def drop():
        # Between its connections nobody reads the slot.
        try:
            upstream.rows(
                f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                f" WHERE slot_name = '{slot}' AND active"
            )
            upstream.run(f"SELECT pg_drop_replication_slot('{slot}')")
        except psycopg.Error:
            return False
        return True

    wait_until(drop, what="the slot is dropped")
    upstream.run("DELETE FROM a WHERE id = 1", "INSERT INTO a VALUES (3), (4)")
    lost = "SLACKWATER_SOURCE_HISTORY_LOST"
    wait_until(lambda: lost in (status_of(place, "s") or ""), what="the source says so")
    assert f"its replication slot {slot} is gone" in status_of(place, "s")
    assert place.rows("SELECT * FROM v") == [[2]]
    place.sql("ALTER SOURCE s RESNAPSHOT")
    becomes(place, "SELECT * FROM a", [[2], [3], [4]])
    becomes(place, "SELECT * FROM v", [[3]])
    upstream.run("DELETE FROM a WHERE id = 4")
    becomes(place, "SELECT * FROM v", [[2]])
    wait_until(lambda: status_of(place, "s") is None, what="it goes on")


def test_another_server_is_told(place, upstream):
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO a VALUES (1)",
    )
    place.sql(
        f"CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES {FAST}"
    )
    with running_upstream_server() as other:
        place.sql(f"ALTER CONNECTION pg SET (PORT {other.port}, DATABASE 'postgres')")
        replaced = "SLACKWATER_SOURCE_REPLACED"
        wait_until(lambda: replaced in (status_of(place, "s") or ""), what="the source says so")
        assert "the PostgreSQL server is not the one" in status_of(place, "s")
    place.sql(
        f"ALTER CONNECTION pg SET (PORT {upstream.server.port}, DATABASE '{upstream.database}')"
    )
    upstream.run("INSERT INTO a VALUES (2)")
    becomes(place, "SELECT * FROM a", [[1], [2]])
