"""Snapshots of environments that are not there: objects in each state, odd names, many objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from slackwater.console import relations as r
from slackwater.console.snapshot import Absence, Failure, Leader, Snapshot

AT_MS = 1_795_000_000_000
LEADER = Leader(epoch=7, location="/data/env", version="0.1.0", since_ms=AT_MS - 3_600_000)
LONG = "l" * 200


def at(ms):
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def named(number, name, kind, schema="shop"):
    return {
        "id": f"u{number}",
        "name": name,
        "object_type": kind,
        "schema_id": "u1",
        "schema_name": schema,
        "database_id": None,
        "database_name": None,
        "cluster_id": None,
    }


def notice(kind, object_id, message, hint=""):
    return {
        "id": f"{kind}/{object_id}",
        "notice_type": kind,
        "message": message,
        "hint": hint,
        "object_id": object_id,
        "created_at": at(AT_MS - 61_000),
    }


def status(object_id, name, word, error=None):
    return {
        "id": object_id,
        "name": name,
        "type": "kafka",
        "last_status_change_at": at(AT_MS - 90_000),
        "status": word,
        "error": error,
        "details": None,
    }


def tick(object_id, ago_ms, emitted=3, by_program=True):
    return {
        "object_id": object_id,
        "replica_id": "u1",
        "lower": AT_MS - ago_ms - 1000,
        "upper": AT_MS - ago_ms,
        "committed_at": at(AT_MS - ago_ms),
        "by_program": by_program,
        "rows_scanned": 5,
        "rows_looked_up": 2,
        "rows_emitted": emitted,
        "plan_us": 0,
        "load_us": 1000,
        "compute_us": 2000,
        "encode_us": 500,
        "commit_us": 1500,
    }


def statement(number, sql, ended=None, **rest):
    return {
        "statement": str(number),
        "session_id": "app/1",
        "began_at": at(AT_MS - 5000 - number),
        "finished_at": None if ended is None else at(AT_MS - 4000),
        "finished_status": ended,
        "statement_type": "select",
        "sql": sql,
        "condition": None,
        "waited_ms": 10,
        "rows_returned": None,
        "application_name": "<reports>",
        "authenticated_user": "me",
        **rest,
    }


OBJECTS = (
    named(1, "orders", "table"),
    named(2, "clicks", "source"),
    named(3, "stopped", "source"),
    named(4, "totals", "materialized-view"),
    named(5, "filling", "materialized-view"),
    named(6, "broken", "materialized-view"),
    named(7, "stuck", "materialized-view"),
    named(8, "large", "materialized-view"),
    named(9, "idle", "materialized-view"),
    named(10, "out", "sink"),
    named(11, "<b>\"&'", "view", '<i>"'),
    named(12, LONG, "table"),
    named(13, "kafka", "connection"),
    named(14, "idle_source", "source"),
    named(15, "a/b?c#d", "table"),
    named(16, "stopped_progress", "source"),
    named(17, "copied", "source"),
    named(18, "beginning", "sink"),
    named(19, "of_files", "source"),
    {**named(1, "mz_objects", "table", "mz_catalog"), "id": "s101"},
)
LAGS = {
    "u1": 900,
    "u2": 1200,
    "u3": 93_000,
    "u4": 1500,
    "u5": 4000,
    "u6": 800,
    "u7": 61_000,
    "u8": 2000,
    "u9": 700_000,
    "u10": 5000,
    "u12": 900,
    "u14": None,
    "u15": 900,
}
COUNTED_BY_SINKS = (
    "messages_staged",
    "messages_committed",
    "bytes_committed",
    "snapshot_records_staged",
    "snapshot_records_known",
)
DEPENDENCIES = (
    ("u4", "u1"),
    ("u5", "u2"),
    ("u6", "u1"),
    ("u7", "u4"),
    ("u11", "u4"),
    ("u10", "u4"),
)


def every_state():
    """An object in each state, with names that could be taken for markup."""
    return Snapshot(
        at_ms=AT_MS,
        leader=LEADER,
        failures=(
            Failure(
                "u6",
                "SLACKWATER_DATA_ERROR",
                'the row (k = 3, v = "<script>") makes the query of slackwater.shop.broken fail',
                AT_MS - 30_000,
            ),
        ),
        rates={"u2": 1234.4, "u4": 2.5, "u10": 0.0},
        lags={"u3": ((AT_MS - 60_000, 33_000), (AT_MS, 93_000)), "u9": ((AT_MS, 700_000),)},
        tables={
            r.NAMES: OBJECTS,
            r.LAG: tuple({"object_id": k, "lag": v} for k, v in LAGS.items()),
            r.HYDRATED: tuple(
                {"object_id": f"u{n}", "replica_id": "u1", "hydrated": n != 5}
                for n in (4, 5, 6, 7, 8)
            ),
            r.PROGRESS: (
                {
                    "object_id": "u5",
                    "replica_id": "u1",
                    "rows_read": 41_500,
                    "rows_known": 100_000,
                    "elapsed_ms": 2000,
                },
            ),
            r.SOURCES: (
                status("u2", "clicks", "running"),
                status("u3", "stopped", "stalled", "[SLACKWATER_KAFKA] <no broker> answers"),
                status("u14", "idle_source", "paused"),
                status("u17", "copied", "starting"),
                {**status("u19", "of_files", "starting"), "type": "files"},
                {**status("u16", "stopped_progress", "stalled", "[X] of it"), "type": "progress"},
            ),
            r.SOURCE_COUNTS: (
                {"id": "u17", "snapshot_records_staged": 1200, "snapshot_records_known": 5000},
                {
                    "id": "u19",
                    "snapshot_records_staged": 70,
                    "snapshot_records_known": None,
                    "offset_committed": 3,
                    "offset_known": 40,
                },
            ),
            r.OFFSETS: (
                {
                    "id": "u3",
                    "partition": 0,
                    "offset_known": 1200,
                    "offset_committed": 1150,
                    "lag": 50,
                },
                {
                    "id": "u3",
                    "partition": 1,
                    "offset_known": None,
                    "offset_committed": 900,
                    "lag": None,
                },
            ),
            r.SINKS: (status("u10", "out", "running"), status("u18", "beginning", "running")),
            r.SINK_COUNTS: (
                {"id": "u10", **dict.fromkeys(COUNTED_BY_SINKS, 7)},
                {
                    "id": "u18",
                    **dict.fromkeys(COUNTED_BY_SINKS, 0),
                    "snapshot_records_staged": 3100,
                    "snapshot_records_known": 10_000,
                },
            ),
            r.NOTICES: (
                notice(
                    "stalled view", "u7", "slackwater.shop.stuck does not go on: [NO_ROOM] no room"
                ),
                notice(
                    "unindexed view",
                    "u8",
                    "slackwater.shop.large reads its inputs at each change: [OUT] no memory",
                    "Memory is asked for again.",
                ),
                notice("retained log", "u2", "The server of clicks keeps 2.0 GiB of its log"),
                notice("NOTICE", None, "The query reads at 5."),
            ),
            r.ACTIVITY: (
                statement(1, "SELECT '<b>' FROM totals"),
                statement(2, "SELECT * FROM filling"),
                statement(3, "SELECT 1 FROM orders", "success", rows_returned=1),
                statement(4, None, "error", condition="SLACKWATER_DATA_ERROR"),
            ),
            r.WAITS: (
                {
                    "session_id": "app/1",
                    "statement": "2",
                    "waits_for": "slackwater.shop.filling is hydrating, 41 %: 41,500 of 100,000"
                    " rows.",
                },
            ),
            r.MEMORY: ({"replica_id": "u1", "process_id": 0, "memory_bytes": 12_345_678},),
            r.SHARDS: (
                {
                    "shard_id": "1",
                    "object_id": "u1",
                    "state": "live",
                    "parts": 3,
                    "rows": 20_000,
                    "size_bytes": 1_500_000,
                    "garbage_bytes": 999,
                },
            ),
            r.DEPENDENCIES: tuple(
                {"object_id": above, "referenced_object_id": below} for above, below in DEPENDENCIES
            ),
            r.TICKS: (tick("u4", 500), tick("u4", 4000, by_program=False)),
            r.EDGE_LAG: ({"object_id": "u4", "local_lag": 300, "global_lag": 300},),
            r.FRONTIERS: (
                {"object_id": "u4", "read_frontier": AT_MS - 1000, "write_frontier": AT_MS},
            ),
            r.COLUMNS: (
                {"id": "u4", "name": "<k>", "position": 1, "nullable": False, "type": "bigint"},
            ),
            r.COMMENTS: (
                {
                    "id": "u4",
                    "object_type": "materialized-view",
                    "object_sub_id": None,
                    "comment": "Totals of <b>all</b> orders",
                },
            ),
            "mz_catalog.mz_materialized_views": (
                {"id": "u4", "create_sql": "CREATE MATERIALIZED VIEW totals AS SELECT 1 < 2"},
            ),
        },
    )


def nobody_leads():
    """What is left of `every_state` after its leader has gone."""
    absence = Absence(AT_MS, "local-1 <app> does not answer.")
    return replace(every_state(), absence=absence)


def nobody_has_led():
    return Snapshot(absence=Absence(None, "Nobody has led this environment yet."))


def many(count, schemas):
    """So many views, each over the one before, in so many schemas."""
    rows = [named(n, f"v{n}", "materialized-view", f"s{n % schemas}") for n in range(count)]
    return Snapshot(
        at_ms=AT_MS,
        leader=LEADER,
        tables={
            r.NAMES: tuple(rows),
            r.LAG: tuple({"object_id": row["id"], "lag": 800} for row in rows),
            r.HYDRATED: tuple(
                {"object_id": row["id"], "replica_id": "u1", "hydrated": True} for row in rows
            ),
            r.DEPENDENCIES: tuple(
                {"object_id": f"u{n}", "referenced_object_id": f"u{n - 1}"} for n in range(1, count)
            ),
        },
    )
