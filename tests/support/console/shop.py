"""The environment of a shop that is not there, as the pictures of the documentation show it."""

from __future__ import annotations

from dataclasses import replace

from tests.support.console.environments import AT_MS, at, named, notice, statement, status

from slackwater.adapter.system.notices import RETAINED_HINT
from slackwater.console import relations as r
from slackwater.console.snapshot import Absence, Failure, Leader, Snapshot

MINUTE_MS = 60_000
LEADER = Leader(epoch=4, location="/srv/shop", version="0.1.0", since_ms=AT_MS - 7_260_000)
OBJECTS = (
    named(1, "customers", "table"),
    named(2, "orders", "table"),
    named(3, "clicks", "source"),
    named(4, "stock", "source"),
    named(5, "revenue", "materialized-view"),
    named(6, "conversion", "materialized-view"),
    named(7, "best_customers", "materialized-view"),
    named(8, "revenue_topic", "sink"),
)
LAGS = {"u1": 600, "u2": 600, "u3": 1100, "u4": 1400, "u5": 700, "u6": 1600, "u7": 800, "u8": 1900}
RATES = {"u3": 412.0, "u4": 3.5, "u5": 21.0, "u6": 96.0, "u7": 2.1, "u8": 21.0}
DEPENDENCIES = (("u5", "u2"), ("u6", "u2"), ("u6", "u3"), ("u7", "u5"), ("u7", "u1"), ("u8", "u5"))
CONVERSION = """CREATE MATERIALIZED VIEW slackwater.shop.conversion AS
SELECT c.page, count(*) AS clicks, count(o.id) AS orders
FROM slackwater.shop.clicks AS c LEFT JOIN slackwater.shop.orders AS o ON o.click = c.id
GROUP BY c.page"""
NO_BROKER = """[SLACKWATER_SOURCE_UNREACHABLE] slackwater.shop.clicks does not reach \
kafka.example.com:9092: no broker answers.
It is tried again. If the way has changed: ALTER CONNECTION slackwater.shop.kafka SET (...)."""
BAD_ROW = """slackwater.shop.revenue cannot be read: the row (id = 4711, amount = 80.00, \
items = 0) makes the query of slackwater.shop.revenue fail: [DIVIDE_BY_ZERO] Division by zero.
Correct the row in slackwater.shop.orders, or change the query to a form that does not fail, \
such as try_divide or try_cast."""


def fresh():
    """All objects follow the clock; half an hour ago one was late."""
    return Snapshot(
        at_ms=AT_MS,
        leader=LEADER,
        rates=RATES,
        lags={object_id: _of_last_hour(object_id) for object_id in LAGS},
        tables={
            r.NAMES: OBJECTS,
            r.LAG: tuple({"object_id": k, "lag": v} for k, v in LAGS.items()),
            r.HYDRATED: tuple(
                {"object_id": f"u{n}", "replica_id": "u1", "hydrated": True} for n in (5, 6, 7)
            ),
            r.SOURCES: (status("u3", "clicks", "running"), status("u4", "stock", "running")),
            r.SINKS: (status("u8", "revenue_topic", "running"),),
            r.MEMORY: ({"replica_id": "u1", "process_id": 0, "memory_bytes": 184_300_000},),
            r.SHARDS: (_shard("u2", 912_000_000), _shard("u6", 3_100_000)),
            r.DEPENDENCIES: tuple(
                {"object_id": above, "referenced_object_id": below} for above, below in DEPENDENCIES
            ),
        },
    )


def late():
    """A source does not go on, and with it a view."""
    samples = tuple((AT_MS - ago * 1000, 90_000 - ago * 1000) for ago in range(85, -1, -5))
    lags = {**LAGS, "u3": 90_400, "u6": 90_900}
    tables = {
        r.LAG: tuple({"object_id": k, "lag": v} for k, v in lags.items()),
        r.SOURCES: (status("u3", "clicks", "stalled", NO_BROKER), status("u4", "stock", "running")),
        r.EDGE_LAG: ({"object_id": "u6", "local_lag": 500, "global_lag": 500},),
        r.FRONTIERS: (
            {"object_id": "u6", "read_frontier": AT_MS - 91_900, "write_frontier": AT_MS - 90_900},
        ),
        "mz_catalog.mz_materialized_views": ({"id": "u6", "create_sql": CONVERSION},),
    }
    kept = _of_last_hour("u6")[:-2]
    return _with(fresh(), tables, lags={"u6": (*kept, *samples)})


def at_work():
    """A view is filled, statements run, and one of them waits for that view."""
    reader = {
        "session_id": "app-20261118/4",
        "application_name": "reports",
        "authenticated_user": "ann",
    }
    writer = {"application_name": "etl", "authenticated_user": "etl"}
    tables = {
        r.ACTIVITY: (
            statement(1, "SELECT page, clicks FROM conversion ORDER BY clicks DESC", **reader),
            statement(
                2,
                "INSERT INTO orders VALUES (4712, 17, 31.50, 2)",
                "success",
                **{**writer, "statement_type": "insert"},
            ),
            statement(
                3,
                "UPDATE orders SET items = 1 WHERE id = 4711",
                "error",
                **{**writer, "statement_type": "update", "condition": "SLACKWATER_LOCK_TIMEOUT"},
            ),
        ),
        r.WAITS: (
            {
                "session_id": reader["session_id"],
                "statement": "1",
                "waits_for": "slackwater.shop.conversion is hydrating, 41 %:"
                " 2,467,000 of 6,000,000 rows.",
            },
        ),
        r.PROGRESS: (
            {
                "object_id": "u6",
                "replica_id": "u1",
                "rows_read": 2_467_000,
                "rows_known": 6_000_000,
                "elapsed_ms": 5200,
            },
        ),
        r.SESSIONS: tuple(
            {"id": f"app-20261118/{n}", "role_id": user, "connected_at": at(AT_MS - n * 700_000)}
            for n, user in ((4, "ann"), (1, "etl"))
        ),
        r.SUBSCRIPTIONS: (
            {
                "id": "dashboard",
                "referenced_object_ids": ["u5"],
                "session_id": "app-20261118/4",
                "created_at": at(AT_MS - 2_400_000),
            },
        ),
    }
    return _with(fresh(), tables)


def failing():
    """A view cannot be read for a row, a source does not go on, and a server keeps its log."""
    tables = {
        r.LAG: tuple({"object_id": k, "lag": v} for k, v in {**LAGS, "u3": 90_400}.items()),
        r.SOURCES: (status("u3", "clicks", "stalled", NO_BROKER), status("u4", "stock", "running")),
        r.NOTICES: (
            notice(
                "retained log",
                "u4",
                "The server of slackwater.shop.stock keeps 2.0 GiB of its log for it.",
                RETAINED_HINT,
            ),
        ),
    }
    failure = Failure("u5", "SLACKWATER_DATA_ERROR", BAD_ROW, AT_MS - 134_000)
    return _with(fresh(), tables, failures=(failure,))


def left():
    """The leader has gone."""
    return replace(fresh(), absence=Absence(AT_MS, "shop-1 has led last, and has ended."))


def _with(snapshot, tables, *, lags=None, failures=()):
    return replace(
        snapshot,
        tables={**snapshot.tables, **tables},
        lags={**snapshot.lags, **(lags or {})},
        failures=failures,
    )


def _shard(object_id, size):
    return {
        "shard_id": object_id,
        "object_id": object_id,
        "state": "live",
        "parts": 9,
        "rows": size // 40,
        "size_bytes": size,
        "garbage_bytes": 0,
    }


def _of_last_hour(object_id):
    """A lag for each minute, about that of now; that of one view was higher for some minutes."""
    now_ms = LAGS[object_id]
    return tuple(
        (
            AT_MS - ago * MINUTE_MS,
            now_ms + 37 * (ago * int(object_id[1:]) % 11) + _extra(object_id, ago),
        )
        for ago in range(60, -1, -1)
    )


def _extra(object_id, ago):
    return max(0, 14_000 - abs(32 - ago) * 3_500) if object_id == "u6" else 0
