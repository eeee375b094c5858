"""A source that follows a real PostgreSQL through an SSH tunnel: it breaks, and its keys change."""

from __future__ import annotations

import pytest
from tests.support.adapter.ssh_server import plain, running_ssh_server
from tests.support.applications.awaited import becomes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.nightly
def test_a_source_goes_on_through_a_tunnel_that_breaks_and_changes(workplace, upstream):
    place = workplace
    upstream.run(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "INSERT INTO a VALUES (1)",
    )

    def public_keys():
        ((first, second),) = place.rows(
            "SELECT public_key_1, public_key_2 FROM mz_catalog.mz_ssh_tunnel_connections t "
            f"JOIN mz_catalog.mz_connections c ON t.id = c.id WHERE c.name = '{tunnel}'"
        )
        return [first, second]

    def status():
        rows = place.rows("SELECT error FROM mz_internal.mz_source_statuses WHERE name = 's'")
        return next((error for (error,) in rows if error), "")

    with running_ssh_server() as server:
        tunnel = f"through_{server.port}"
        place.sql(f"CREATE CONNECTION {tunnel} TO SSH TUNNEL ({server.options})")
        server.authorized = public_keys()
        place.sql(f"VALIDATE CONNECTION {tunnel}")
        # Nobody but the server of the tunnel knows where this is.
        server.resolve["shop"] = "127.0.0.1"
        options = upstream.options.replace("127.0.0.1", "shop")
        place.sql(f"CREATE CONNECTION pg TO POSTGRES ({options}, SSH TUNNEL {tunnel})")
        place.sql(
            "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
            " WITH (TIMESTAMP INTERVAL '50 ms')"
        )
        becomes(place, "SELECT * FROM a", [[1]])

        server.stop()
        upstream.run("INSERT INTO a VALUES (2)")
        refused = f"TCP at the SSH tunnel 127.0.0.1:{server.port}: Connection refused"
        wait_until(lambda: refused in status(), what="the source says why")
        server.start()
        becomes(place, "SELECT * FROM a", [[1], [2]])

        # The second key is the first one now. The server learns the new one, and forgets the old.
        before = public_keys()
        place.sql(f"ALTER CONNECTION {tunnel} ROTATE KEYS")
        assert public_keys()[0] == before[1]
        upstream.run("INSERT INTO a VALUES (3)")
        becomes(place, "SELECT * FROM a", [[1], [2], [3]])
        server.authorized = public_keys()
        server.offered.clear()
        server.stop()
        server.start()
        upstream.run("INSERT INTO a VALUES (4)")
        becomes(place, "SELECT * FROM a", [[1], [2], [3], [4]])
        assert plain(before[0]) not in server.offered

        # The server shows another key: nobody logs in, until somebody says that it is right.
        kept = server.host_key
        server.stop()
        server.renew()
        server.start()
        server.offered.clear()
        upstream.run("INSERT INTO a VALUES (5)")
        wait_until(lambda: "seen first" in status(), what="the source says why")
        assert kept in status()
        assert server.offered == []
        place.sql(f"ALTER CONNECTION {tunnel} SET (HOST KEY = '{server.host_key}')")
        becomes(place, "SELECT * FROM a", [[1], [2], [3], [4], [5]])
        place.sql("DROP SOURCE s CASCADE")
        slots = "SELECT 1 FROM pg_replication_slots WHERE database = current_database()"
        wait_until(lambda: upstream.rows(slots) == [], what="the slot is removed")
        place.sql(f"DROP CONNECTION {tunnel} CASCADE")
