"""The pages: each is a function of a snapshot, and of what its address asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slackwater.console import relations as r
from slackwater.console.attention import Attention, attention
from slackwater.console.log import LogLine
from slackwater.console.objects import ObjectEntry, entries, find, full_name
from slackwater.console.picture import LARGEST, Picture, around, picture
from slackwater.console.snapshot import Row, Snapshot
from slackwater.console.text import Table, cell, clock, moment, seconds, size, table

LISTED = 200
"""The most objects that a page lists; a filter finds the others."""
CHARTED = 5
TICKS = 32
STATEMENTS = 200


@dataclass(frozen=True, slots=True)
class Banner:
    """The line on top of each page: who leads, or that nobody does."""

    leads: bool
    text: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lags over time. `series` has a column of seconds since the epoch, then one for each name."""

    names: tuple[str, ...]
    worst: tuple[str, ...]
    series: str

    @staticmethod
    def of(snapshot: Snapshot, chosen: Sequence[ObjectEntry]) -> Chart:
        samples = [snapshot.lags.get(each.id, ()) for each in chosen]
        times = sorted({at for series in samples for at, _ in series})
        columns = [[dict(series).get(at) for at in times] for series in samples]
        in_seconds = [[None if lag is None else lag / 1000 for lag in each] for each in columns]
        return Chart(
            names=tuple(each.name for each in chosen),
            worst=tuple(seconds(max((lag for _, lag in each), default=None)) for each in samples),
            series=json.dumps([[at / 1000 for at in times], *in_seconds]),
        )


@dataclass(frozen=True, slots=True)
class Graph:
    """A picture, and the same as JSON, of which a script draws it."""

    picture: Picture
    data: str
    label: str

    @staticmethod
    def of(found: Picture, label: str) -> Graph:
        nodes = [[n.id, n.label, n.kind, n.state, n.is_late, n.path] for n in found.nodes]
        edges = [[edge.below, edge.above] for edge in found.edges]
        return Graph(found, json.dumps({"nodes": nodes, "edges": edges}), label)


@dataclass(frozen=True, slots=True)
class FirstPage:
    """Health, what needs attention, all objects, the worst first."""

    attention: tuple[Attention, ...]
    objects: tuple[ObjectEntry, ...]
    count: int
    chart: Chart
    graph: Graph
    query: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and a value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick as a bar of parts, in thousandths of the longest tick."""

    at: str
    total: str
    mode: str
    bars: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Everything about one object."""

    entry: ObjectEntry
    attention: tuple[Attention, ...]
    comment: str
    sql: str
    facts: tuple[Fact, ...]
    neighbours: Table
    graph: Graph
    chart: Chart
    ticks: tuple[Tick, ...]
    tables: tuple[Table, ...]
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablesPage:
    """A page of tables. `query` is what its filter has; None: it has none."""

    title: str
    tables: tuple[Table, ...]
    query: str | None = None
    remark: str = ""


def banner(snapshot: Snapshot) -> Banner:
    """The leader, since when, and what is used; or since when nobody leads."""
    absence = snapshot.absence
    if absence is not None:
        since = "" if absence.since_ms is None else f" since {clock(absence.since_ms)} UTC"
        what = "The leader refuses to answer" if absence.leads else "Nobody leads"
        return Banner(False, what + since, absence.reason)
    leader = snapshot.leader
    if leader is None:
        return Banner(False, "Nobody leads", "The leader has not answered yet.")
    disk = sum(row["size_bytes"] for row in snapshot.rows(r.SHARDS))
    memory = sum(row["memory_bytes"] for row in snapshot.rows(r.MEMORY))
    used = []
    if r.SHARDS in snapshot.tables:
        used.append(f"{size(disk)} on disk")
    if r.MEMORY in snapshot.tables:
        used.append(f"{size(memory)} in arrangements")
    words = [
        f"{leader.location} is led since {moment(leader.since_ms)} UTC",
        f"epoch {leader.epoch}",
        f"version {leader.version}",
        *used,
    ]
    return Banner(True, ", ".join(words))


def first(snapshot: Snapshot, query: str = "") -> FirstPage:
    """The first screen; `query` is a part of names, kinds or states."""
    found = entries(snapshot)
    wanted = query.casefold()
    chosen = [
        each
        for each in found
        if wanted in f"{each.name} {each.kind} {each.health.state.value}".casefold()
    ]
    late = sorted(chosen, key=lambda each: (-((each.behind_ms or 0) // 1000), each.name))
    label = "the dataflow: what each object is computed from"
    return FirstPage(
        attention=attention(snapshot, found),
        objects=tuple(chosen[:LISTED]),
        count=len(chosen),
        chart=Chart.of(snapshot, [each for each in late if each.behind_ms is not None][:CHARTED]),
        graph=Graph.of(picture(snapshot, found), label),
        query=query,
    )


def object_page(snapshot: Snapshot, name: str) -> ObjectPage | None:
    """The page of the object with this name or id; None: there is none."""
    found = entries(snapshot)
    entry = find(found, name)
    if entry is None:
        return None
    told = attention(snapshot, found)
    sql = _sql(snapshot, entry)
    return ObjectPage(
        entry=entry,
        attention=tuple(each for each in told if each.path == entry.path),
        comment=_comment(snapshot, entry, 0),
        sql=sql,
        facts=tuple(_facts(snapshot, entry)),
        neighbours=_neighbours(snapshot, found, entry),
        graph=Graph.of(around(snapshot, found, entry), f"the neighbours of {entry.name}"),
        chart=Chart.of(snapshot, [entry] if entry.behind_ms is not None else []),
        ticks=_ticks(snapshot, entry),
        tables=tuple(each for each in _tables(snapshot, entry) if each.rows),
        statements=tuple(_statements(entry)),
    )


def activity(snapshot: Snapshot) -> TablesPage:
    """All that runs now, and what has run of late, as far as the leader keeps it."""
    names = {row["id"]: full_name(row) for row in snapshot.rows(r.NAMES)}
    named = [
        {**row, "object": names.get(row["object_id"], row["object_id"])}
        for relation in (r.PROGRESS, r.PEEKS)
        for row in snapshot.rows(relation)
    ]
    fills = [row for row in named if "rows_read" in row]
    peeks = [row for row in named if "rows_read" not in row]
    subscribed = [
        {**row, "objects": [names.get(each, each) for each in row["referenced_object_ids"]]}
        for row in snapshot.rows(r.SUBSCRIPTIONS)
    ]
    return TablesPage(
        "Activity",
        (
            *_recent_statements(snapshot),
            table("Sessions", _SESSIONS, snapshot.rows(r.SESSIONS)),
            table("Subscriptions", _SUBSCRIPTIONS, subscribed),
            table("Views and indexes that are filled", _FILLS, fills),
            table("Reads of indexes", _PEEKS, peeks),
        ),
    )


def storage(snapshot: Snapshot) -> TablesPage:
    """Bytes, parts and garbage by object; memory by arrangement."""
    names = {row["id"]: full_name(row) for row in snapshot.rows(r.NAMES)}
    shards = sorted(snapshot.rows(r.SHARDS), key=lambda row: -row["size_bytes"])
    arranged = sorted(snapshot.rows(r.ARRANGEMENTS), key=lambda row: -row["bytes"])
    stored = [{**row, "object": names.get(row["object_id"])} for row in shards]
    kept = [
        {
            **row,
            "of": [names.get(each, each) for each in row["object_ids"]],
            "for": [names.get(each, each) for each in row["readers"]],
        }
        for row in arranged
    ]
    return TablesPage(
        "Storage",
        (
            table("Shards, the largest first", _SHARDS, stored[:LISTED]),
            table("Arrangements in memory, the largest first", _ARRANGED, kept[:LISTED]),
        ),
    )


def notices(snapshot: Snapshot) -> TablesPage:
    """The notices of all sessions and of all objects, the latest first."""
    rows = sorted(snapshot.rows(r.NOTICES), key=lambda row: row["created_at"], reverse=True)
    return TablesPage("Notices", (table("Notices, the latest first", _NOTICES, rows[:LISTED]),))


def log(lines: Iterable[LogLine], query: str, remark: str) -> TablesPage:
    """The lines of the coordinator's log that have `query` in them, the latest first."""
    rows = tuple((each.at, each.level, each.event, each.rest) for each in lines)
    columns = ("time", "level", "event", "details")
    return TablesPage("Log", (Table("The coordinator's log", columns, rows),), query, remark)


def _recent_statements(snapshot: Snapshot) -> Iterable[Table]:
    if r.ACTIVITY not in snapshot.tables:
        return
    rows = snapshot.rows(r.ACTIVITY)
    latest = sorted(rows, key=lambda row: row["began_at"], reverse=True)
    waits = {
        (row["session_id"], row["statement"]): row["waits_for"] for row in snapshot.rows(r.WAITS)
    }
    running = [
        {**row, "waits_for": waits.get((row["session_id"], row["statement"]))}
        for row in latest
        if row["finished_at"] is None
    ]
    done = [row for row in latest if row["finished_at"] is not None]
    yield table("Statements under way", _RUNNING, running[:STATEMENTS])
    yield table("Statements of the last 15 minutes", _DONE, done[:STATEMENTS])


def _sql(snapshot: Snapshot, entry: ObjectEntry) -> str:
    for relation in r.WITH_SQL:
        for row in snapshot.rows(relation):
            if row["id"] == entry.id:
                return row["create_sql"] or ""
    return ""


def _comment(snapshot: Snapshot, entry: ObjectEntry, position: int) -> str:
    for row in snapshot.rows(r.COMMENTS):
        if row["id"] == entry.id and (row["object_sub_id"] or 0) == position:
            return str(row["comment"])
    return ""


def _facts(snapshot: Snapshot, entry: ObjectEntry) -> Iterable[Fact]:
    yield Fact("id", entry.id)
    yield Fact("kind", entry.kind)
    frontiers = snapshot.by_id(r.FRONTIERS, "object_id").get(entry.id)
    if frontiers is not None:
        for column, word in (("read_frontier", "since"), ("write_frontier", "upper")):
            yield Fact(word, cell(column, frontiers[column]))
    shards = [row for row in snapshot.rows(r.SHARDS) if row["object_id"] == entry.id]
    if shards:
        yield Fact("size", size(sum(row["size_bytes"] for row in shards)))
        yield Fact("parts", str(sum(row["parts"] for row in shards)))
        yield Fact("garbage", size(sum(row["garbage_bytes"] for row in shards)))
    for relation, columns in ((r.SOURCE_COUNTS, _SOURCE_FACTS), (r.SINK_COUNTS, _SINK_FACTS)):
        counted = snapshot.by_id(relation).get(entry.id)
        if counted is not None:
            for column in columns:
                yield Fact(column.replace("_", " "), cell(_unit(column), counted[column]))


def _unit(column: str) -> str:
    return "bytes" if column.startswith("bytes") else column


def _neighbours(snapshot: Snapshot, found: tuple[ObjectEntry, ...], entry: ObjectEntry) -> Table:
    by_id = {each.id: each for each in found}
    lags = snapshot.by_id(r.EDGE_LAG, "object_id")
    rows = []
    for row in snapshot.rows(r.DEPENDENCIES):
        below, above = row["referenced_object_id"], row["object_id"]
        if entry.id not in (below, above):
            continue
        other = by_id.get(below if above == entry.id else above)
        if other is not None:
            lag = lags.get(above)
            way = "upstream" if above == entry.id else "downstream"
            adds = None if lag is None else lag["local_lag"]
            state, behind = other.health.state.value, seconds(other.behind_ms)
            rows.append((way, other.name, state, behind, seconds(adds)))
    columns = ("direction", "object", "state", "behind (s)", "lag that the upper one adds (s)")
    return Table("Upstream and downstream", columns, tuple(sorted(rows, reverse=True)))


_PARTS = ("plan_us", "load_us", "compute_us", "encode_us", "commit_us")


def _ticks(snapshot: Snapshot, entry: ObjectEntry) -> tuple[Tick, ...]:
    """The last ticks, the latest first."""
    rows = [row for row in snapshot.rows(r.TICKS) if row["object_id"] == entry.id]
    latest = sorted(rows, key=lambda row: row["upper"], reverse=True)[:TICKS]
    totals = [sum(row[part] for part in _PARTS) for row in latest]
    longest = max(totals, default=0) or 1
    return tuple(_tick(row, total, longest) for row, total in zip(latest, totals, strict=True))


def _tick(row: Row, total: int, longest: int) -> Tick:
    bars, begin = [], 0
    for part in _PARTS:
        width = 1000 * row[part] // longest
        bars.append((part.removesuffix("_us"), begin, width))
        begin += width
    mode = "by program" if row["by_program"] else "recomputed"
    rows = f"{mode}, {row['rows_emitted']} rows"
    return Tick(
        cell("committed_at", row["committed_at"]), f"{total / 1000:.1f} ms", rows, tuple(bars)
    )


def _tables(snapshot: Snapshot, entry: ObjectEntry) -> Iterable[Table]:
    def own(relation: str, column: str = "object_id") -> list[Row]:
        return [row for row in snapshot.rows(relation) if row[column] == entry.id]

    columns = sorted(own(r.COLUMNS, "id"), key=lambda row: row["position"])
    described = [{**c, "comment": _comment(snapshot, entry, c["position"])} for c in columns]
    yield table("Columns", _COLUMNS, described)
    steps = own(r.STEPS)
    last = max((row["upper"] for row in steps), default=0)
    yield table("Steps of the last tick", _STEPS, [s for s in steps if s["upper"] == last])
    yield table("Partitions", _PARTITIONS, own(r.PARTITIONS, "id"))
    yield table("Offsets of partitions", _OFFSETS, own(r.OFFSETS, "id"))
    yield table("Holds", _HOLDS, own(r.HOLDS))
    changes = sorted(own(r.STATUS_HISTORY, "source_id"), key=lambda row: row["occurred_at"])
    yield table("Statuses of the last hour", _STATUSES, changes[::-1][:TICKS])


def _statements(entry: ObjectEntry) -> Iterable[str]:
    """Statements that say more, to copy."""
    name = ".".join(_quoted(part) for part in (entry.schema, entry.name[len(entry.schema) + 1 :]))
    if entry.kind in ("table", "source", "view", "materialized-view"):
        yield f"EXPLAIN TIMESTAMP FOR SELECT * FROM {name}"
    if entry.kind == "materialized-view":
        yield f"EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW {name}"
        yield f"EXPLAIN ANALYZE FOR MATERIALIZED VIEW {name}"
    kind = "MATERIALIZED VIEW" if entry.kind == "materialized-view" else entry.kind.upper()
    yield f"SHOW CREATE {kind} {name}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def too_many(graph: Graph) -> str:
    """A sentence on a picture that does not show single objects; "" for others."""
    if not graph.picture.is_by_schema:
        return ""
    if not graph.picture.nodes:
        return f"There are more than {LARGEST} schemas, too many for a picture."
    return f"There are more than {LARGEST} objects, so the picture shows schemas."


_SOURCE_FACTS = (
    "messages_received",
    "bytes_received",
    "updates_committed",
    "offset_known",
    "offset_committed",
    "rows_skipped",
    "snapshot_records_staged",
    "snapshot_records_known",
)
_SINK_FACTS = (
    "messages_staged",
    "messages_committed",
    "bytes_committed",
    "snapshot_records_staged",
    "snapshot_records_known",
)
_SESSIONS = (("id", "session"), ("role_id", "user"), ("connected_at", "connected"))
_SUBSCRIPTIONS = (
    ("id", "name"),
    ("objects", "objects"),
    ("session_id", "session"),
    ("created_at", "since"),
)
_FILLS = (
    ("object", "object"),
    ("rows_read", "rows read"),
    ("rows_known", "rows known"),
    ("elapsed_ms", "for ms"),
)
_PEEKS = (("object", "object"), ("time", "at"))
_SHARDS = (
    ("object", "object"),
    ("state", "state"),
    ("rows", "rows"),
    ("parts", "parts"),
    ("size_bytes", "size"),
    ("garbage_bytes", "garbage"),
)
_ARRANGED = (("of", "rows of"), ("for", "used by"), ("records", "records"), ("bytes", "size"))
_NOTICES = (
    ("created_at", "time"),
    ("notice_type", "kind"),
    ("message", "message"),
    ("hint", "advice"),
)
_RUNNING = (
    ("began_at", "since"),
    ("statement_type", "kind"),
    ("sql", "text"),
    ("waits_for", "waits for"),
    ("application_name", "application"),
    ("authenticated_user", "user"),
)
_DONE = (
    ("began_at", "began"),
    ("statement_type", "kind"),
    ("sql", "text"),
    ("finished_status", "ended"),
    ("condition", "condition"),
    ("waited_ms", "waited (ms)"),
    ("rows_returned", "rows"),
    ("application_name", "application"),
    ("authenticated_user", "user"),
)
_COLUMNS = (("name", "name"), ("type", "type"), ("nullable", "NULL"), ("comment", "comment"))
_STEPS = (
    ("step", "step"),
    ("operator", "operator"),
    ("mode", "mode"),
    ("rows_looked_up", "looked up"),
    ("rows_emitted", "emitted"),
    ("elapsed_us", "µs"),
    ("reads", "reads"),
)
_PARTITIONS = (
    ("partition", "partition"),
    ("status", "status"),
    ("resolved", "known to"),
    ("committed", "committed to"),
    ("waiting", "waiting"),
    ("dead_letters", "dead letters"),
)
_OFFSETS = (
    ("partition", "partition"),
    ("offset_known", "known"),
    ("offset_committed", "committed"),
    ("lag", "behind"),
)
_HOLDS = (("holder", "holder"), ("kind", "kind"), ("hold_time", "since"))
_STATUSES = (("occurred_at", "time"), ("status", "status"), ("error", "error"))
