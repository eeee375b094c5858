"""The catalog in the metastore.

Every change is one fenced metastore transaction: the entries, the audit events and the caller's
steps (which make the shards of new objects, for example). The snapshot in memory is swapped after
it.

Source: spec coordinator 4.1 to 4.3, 4.7.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import Connection

from slackwater.adapter.catalog.audit import cluster_events
from slackwater.adapter.catalog.clusters import DEFAULT_CLUSTER, ClusterEntry
from slackwater.adapter.catalog.lock import CatalogLock
from slackwater.adapter.catalog.mark import CatalogMark, Unmarked
from slackwater.adapter.catalog.model import (
    CATALOG_NAME,
    DEFAULT_SCHEMA,
    CatalogItem,
    CatalogState,
    SchemaEntry,
)
from slackwater.adapter.catalog.ops import AlteredSchema, CatalogDiff, CatalogOp, apply
from slackwater.persist.tables import (
    catalog_audit,
    catalog_clusters,
    catalog_counters,
    catalog_items,
    catalog_parameters,
    catalog_schemas,
)
from slackwater.persist.transactions import Step, Transactor
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.ids import GlobalId, is_user, user_id

_ID_RESERVATION = 64
_DEFAULT_SCHEMA_ID = user_id(1)
_FIRST_ITEM_NUMBER = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """A row of mz_audit_events. `details` is JSON; `user` None means the system itself."""

    id: int
    event_type: str
    object_type: str
    details: str
    user: str | None
    occurred_ms: int


Ops = Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]]
"""Changes, or a function that makes them inside the transaction: it can create the shards first
and put their ids into the items. It may run again if the transaction is retried, and cannot begin
another one, so the ids of its items are allocated before."""


Change = tuple[CatalogState, CatalogDiff]
OnDurable = Callable[[CatalogState, CatalogDiff], None]


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A change that is ready to be written, as `DurableCatalog.stage` gives it.

    Run `step` in a transaction; when that has committed, `publish` calls the function that it is
    given, makes the change visible and returns the new snapshot and the difference.
    """

    step: Step
    publish: Callable[[OnDurable | None], Change]


class DurableCatalog:
    """The catalog of the environment. Thread-safe; changes are serialised.

    A caller that derives a change from the catalog's state holds `lock` meanwhile.
    """

    def __init__(
        self,
        transactor: Transactor,
        state: CatalogState,
        clock_ms: Callable[[], int],
        mark: CatalogMark,
    ) -> None:
        self._transactor = transactor
        self._state = state
        self._clock_ms = clock_ms
        self._mark = mark
        self.lock = CatalogLock()
        self._changing = threading.Lock()
        self._allocating = threading.Lock()
        self._free_ids: list[int] = []
        self._uncertain = False

    @staticmethod
    def open(
        transactor: Transactor,
        *,
        clock_ms: Callable[[], int],
        system_schemas: Sequence[SchemaEntry] = (),
        system_items: Sequence[CatalogItem] = (),
        mark: CatalogMark | None = None,
    ) -> DurableCatalog:
        """Reads the catalog, and writes its first entries into an empty environment.

        System entries come from the program, not from the metastore. `mark` is told of each change.
        """

        def read(conn: Connection) -> CatalogState:
            _initialize(conn)
            stored = _read_state(conn)
            return CatalogState.of(
                [*system_schemas, *stored.schemas.values()],
                [*system_items, *stored.items.values()],
                stored.revision,
                stored.parameters,
                stored.clusters.values(),
            )

        return DurableCatalog(transactor, transactor.transact(read), clock_ms, mark or Unmarked())

    @property
    def state(self) -> CatalogState:
        """The current snapshot."""
        return self._state

    def allocate_ids(self, count: int = 1) -> tuple[GlobalId, ...]:
        """New ids of user objects and schemas. Never reused, not even when they stay unused."""
        with self._allocating:
            if len(self._free_ids) < count:
                self._reserve_ids(max(count, _ID_RESERVATION))
            taken, self._free_ids = self._free_ids[:count], self._free_ids[count:]
        return tuple(user_id(number) for number in taken)

    def _reserve_ids(self, count: int) -> None:
        counters = catalog_counters

        def step(conn: Connection) -> int:
            first: int = conn.execute(sa.select(counters.c.next_id)).scalar_one()
            conn.execute(sa.update(counters).values(next_id=first + count))
            return first

        first = self._transactor.transact(step)
        self._free_ids += range(first, first + count)

    def transact(
        self,
        ops: Ops,
        *,
        steps: Sequence[Step] = (),
        user: str | None = None,
        on_durable: OnDurable | None = None,
    ) -> Change:
        """Applies `ops` and runs `steps` in one transaction, all or nothing.

        `on_durable` is called when the change is durable and nobody can see it yet. Raises what
        `apply` raises, and SLACKWATER_CONCURRENT_CHANGE if another process has changed the catalog.
        """
        with self.stage(ops, user=user) as change:
            self._transactor.transact(change.step, *steps)
            return change.publish(on_durable)

    @contextmanager
    def stage(self, ops: Ops, *, user: str | None = None) -> Iterator[StagedChange]:
        """A change whose `step` runs in a transaction of the caller's, e.g. that of a write.

        Other changes wait until the block ends. If it ends without `publish`, nothing changes.
        Raises what `resolve` raises.
        """
        with self._changing, self._noticing():
            self._resolve()
            before = self._state
            outcome: list[Change] = []

            def step(conn: Connection) -> None:
                outcome.clear()
                made = ops(conn) if callable(ops) else ops
                after, diff = apply(before, made)
                first_event = self._advance_revision(conn, before, after, diff)
                _write_diff(conn, before, after, diff)
                self._write_audit(conn, diff, first_event, user)
                outcome.append((after, diff))

            def publish(on_durable: OnDurable | None) -> Change:
                if not outcome:
                    raise FatalError("a catalog change was published before its transaction ran")
                if on_durable is not None:
                    on_durable(*outcome[0])
                with self._mark.changing():
                    self._state = outcome[0][0]
                return outcome[0]

            yield StagedChange(step, publish)

    def resolve(self) -> None:
        """Finds out whether a change happened whose outcome the metastore could not tell.

        Without such a change it asks nobody. Raises `FatalError` if the change happened: its
        consequences have not been carried out, and a restart begins with the whole catalog.
        """
        with self._changing:
            self._resolve()

    def _resolve(self) -> None:
        if not self._uncertain:
            return
        statement = sa.select(catalog_counters.c.revision)
        revision = self._transactor.transact(lambda conn: conn.execute(statement).scalar_one())
        if revision != self._state.revision:
            raise FatalError("a change of the catalog happened whose answer was lost")
        self._uncertain = False

    @contextmanager
    def _noticing(self) -> Iterator[None]:
        """Remembers that the outcome of a change may be unknown."""
        try:
            yield
        except SlackwaterError as error:
            self._uncertain = self._uncertain or error.is_outage
            raise

    def audit_events(self) -> tuple[AuditEvent, ...]:
        """All audit events, oldest first."""
        audit = catalog_audit
        statement = sa.select(audit).order_by(audit.c.id)
        return self._transactor.query(
            lambda conn: tuple(AuditEvent(*row) for row in conn.execute(statement))
        )

    def _advance_revision(
        self, conn: Connection, before: CatalogState, after: CatalogState, diff: CatalogDiff
    ) -> int:
        counters = catalog_counters
        first_event = conn.execute(sa.select(counters.c.next_event)).scalar_one()
        moved = conn.execute(
            sa.update(counters)
            .where(counters.c.revision == before.revision)
            .values(revision=after.revision, next_event=first_event + len(_events(diff)))
        )
        if moved.rowcount != 1:
            raise user_error("SLACKWATER_CONCURRENT_CHANGE", objectName="The catalog")
        return int(first_event)

    def _write_audit(
        self, conn: Connection, diff: CatalogDiff, first_event: int, user: str | None
    ) -> None:
        now = self._clock_ms()
        rows = [
            {
                "id": first_event + position,
                "event_type": event_type,
                "object_type": object_type,
                "details": json.dumps(details, sort_keys=True),
                "user_name": user,
                "occurred_ms": now,
            }
            for position, (event_type, object_type, details) in enumerate(_events(diff))
        ]
        if rows:
            conn.execute(sa.insert(catalog_audit), rows)


def _initialize(conn: Connection) -> None:
    if conn.execute(sa.select(catalog_counters.c.id)).first() is not None:
        return
    conn.execute(
        sa.insert(catalog_counters).values(
            id=1, revision=0, next_id=_FIRST_ITEM_NUMBER, next_event=1
        )
    )
    conn.execute(
        sa.insert(catalog_schemas).values(id=_DEFAULT_SCHEMA_ID, name=DEFAULT_SCHEMA, comment=None)
    )
    _write_clusters(conn, [DEFAULT_CLUSTER])


def _read_state(conn: Connection) -> CatalogState:
    revision = conn.execute(sa.select(catalog_counters.c.revision)).scalar_one()
    schemas = [SchemaEntry(*row) for row in conn.execute(sa.select(catalog_schemas))]
    clusters = [ClusterEntry.from_json(b) for b in conn.scalars(sa.select(catalog_clusters.c.body))]
    items = [CatalogItem.from_json(b) for b in conn.scalars(sa.select(catalog_items.c.body))]
    return CatalogState.of(
        sorted(schemas, key=lambda s: int(s.id[1:])),
        sorted(items, key=lambda i: int(i.id[1:])),
        revision,
        {row.name: row.value for row in conn.execute(sa.select(catalog_parameters))},
        sorted(clusters, key=lambda c: int(c.id[1:])),
    )


def _write_diff(
    conn: Connection,
    before: CatalogState,
    after: CatalogState,
    diff: CatalogDiff,
) -> None:
    gone = [item.id for item in diff.dropped] + [a.before.id for a in diff.altered]
    if gone:
        conn.execute(
            sa.delete(catalog_items).where(catalog_items.c.id == sa.bindparam("gone")),
            [{"gone": each} for each in gone],
        )
    written = [*diff.created, *(a.after for a in diff.altered)]
    if any(not is_user(item.id) for item in written):
        raise FatalError("a system entry was to be written")
    if written:
        conn.execute(sa.insert(catalog_items), [{"id": i.id, "body": i.to_json()} for i in written])
    for schema in diff.schemas_dropped:
        conn.execute(sa.delete(catalog_schemas).where(catalog_schemas.c.id == schema.id))
    for schema in (change.after for change in diff.schemas_altered):
        conn.execute(
            sa.update(catalog_schemas)
            .where(catalog_schemas.c.id == schema.id)
            .values(name=schema.name, comment=schema.comment)
        )
    for schema in diff.schemas_created:
        conn.execute(
            sa.insert(catalog_schemas).values(
                id=schema.id, name=schema.name, comment=schema.comment
            )
        )
    _forget_clusters(conn, [*diff.clusters_dropped, *(a.before for a in diff.clusters_altered)])
    _write_clusters(conn, [*diff.clusters_created, *(a.after for a in diff.clusters_altered)])
    for name, value in diff.parameters:
        conn.execute(sa.delete(catalog_parameters).where(catalog_parameters.c.name == name))
        if value is not None:
            conn.execute(sa.insert(catalog_parameters).values(name=name, value=value))


def _forget_clusters(conn: Connection, clusters: Iterable[ClusterEntry]) -> None:
    for each in clusters:
        conn.execute(sa.delete(catalog_clusters).where(catalog_clusters.c.id == each.id))


def _write_clusters(conn: Connection, clusters: Iterable[ClusterEntry]) -> None:
    for each in clusters:
        conn.execute(sa.insert(catalog_clusters).values(id=each.id, body=each.to_json()))


def _events(diff: CatalogDiff) -> list[tuple[str, str, dict[str, Any]]]:
    events: list[tuple[str, str, dict[str, Any]]] = []
    events += [("drop", i.kind.value, _item_details(i)) for i in diff.dropped]
    events += [("drop", "schema", _schema_details(s)) for s in diff.schemas_dropped]
    events += [("create", "schema", _schema_details(s)) for s in diff.schemas_created]
    events += cluster_events(diff)
    events += [_schema_event(change) for change in diff.schemas_altered]
    events += [("create", i.kind.value, _item_details(i)) for i in diff.created]
    for change in diff.altered:
        details = _item_details(change.after)
        if change.before.full_name != change.after.full_name:
            details["old_name"] = _name_details(change.before)
            details["new_name"] = _name_details(change.after)
        events.append(("alter", change.after.kind.value, details))
    events += [
        ("alter", "system", {"name": name, "value": value}) for name, value in diff.parameters
    ]
    return events


def _schema_details(schema: SchemaEntry) -> dict[str, Any]:
    return {"database_name": CATALOG_NAME, "id": schema.id, "name": schema.name}


def _schema_event(change: AlteredSchema) -> tuple[str, str, dict[str, Any]]:
    before, after = change.before, change.after
    if before.name == after.name:
        return "comment", "schema", _schema_details(after)
    names = {"old_name": before.name, "new_name": after.name}
    return "alter", "schema", _schema_details(after) | names


def _name_details(item: CatalogItem) -> dict[str, Any]:
    return {"database": CATALOG_NAME, "schema": item.schema_name, "item": item.name}


def _item_details(item: CatalogItem) -> dict[str, Any]:
    return {**_name_details(item), "id": item.id}
