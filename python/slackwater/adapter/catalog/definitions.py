"""Definitions: statements that change the catalog.

A change is one metastore transaction: entries, audit rows and shards. What follows from it
(dataflows, ingestions, sinks start and stop) is derived from the committed difference alone, by
`Implications`, which start-up uses as well. Source: spec coordinator 1.7, 4.3, 4.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from slackwater.adapter.catalog.columns import (
    refuse_new_column,
    refuse_nullability,
    with_column,
    with_nullability,
)
from slackwater.adapter.catalog.implications import Implications
from slackwater.adapter.catalog.model import (
    CatalogItem,
    CatalogState,
    ItemKind,
    SchemaEntry,
    shards_of,
)
from slackwater.adapter.catalog.naming import find_item
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogDiff,
    CatalogOp,
    CreateItem,
    CreateSchema,
    DropItem,
    DropSchema,
    RenameItem,
    apply,
)
from slackwater.adapter.catalog.render import create_table_sql
from slackwater.adapter.catalog.views import Views
from slackwater.adapter.environment import Environment
from slackwater.adapter.external.drafts import Drafts, propagates_errors
from slackwater.adapter.external.sinks import PROGRESS
from slackwater.adapter.external.source_states import create_state
from slackwater.adapter.external.sources import Sources
from slackwater.adapter.sessions import Context, Session
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st
from slackwater.planner.parser import variables
from slackwater.planner.parser.durations import parse_duration
from slackwater.planner.parser.names import QualifiedName, resolve, resolve_schema
from slackwater.planner.plan.canonical import to_sql
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Frontier, Timestamp
from slackwater.repr.relation import RelationDesc
from slackwater.storage.controller.holds import Holder, HoldKind, ReadHold

RETAIN_HISTORY = "retain_history"
_SPARK_PROPERTIES = frozenset({"owner", "comment", "external", "is_managed_location"})


class Definitions:
    """Changes the catalog. Thread-safe: changes are serialised by the environment's ddl lock."""

    def __init__(
        self,
        env: Environment,
        views: Views,
        sources: Sources,
        implications: Implications,
    ) -> None:
        self._env = env
        self._views = views
        self._sources = sources
        self._drafts = Drafts(env)
        self._implications = implications

    # Statements of our own grammar.

    def execute(self, session: Session, context: Context, statement: st.Statement) -> None:
        """Runs a definition statement. Raises the catalogue's errors; all or nothing."""
        match statement:
            case st.CreateTable():
                self._create_table_with_options(session, context, statement)
            case st.CreateView():
                self._create_view_statement(session, context, statement)
            case st.CreateMaterializedView():
                self._create_materialized_view(session, context, statement)
            case st.CreateSource():
                self._create_source(session, context, statement)
            case st.CreateSink():
                self._create_sink(session, context, statement)
            case st.DropObjects():
                self._drop_objects(session, context, statement)
            case st.AlterRename():
                self._rename_statement(context, statement)
            case st.AlterSetRetainHistory():
                self._set_retain_history(session, context, statement)
            case st.AlterSinkFrom():
                self._redirect_sink(session, context, statement)
            case st.CommentOn():
                self._comment(context, statement)
            case _:
                raise AssertionError(f"{type(statement).__name__} is not a definition")

    def find(self, name: QualifiedName, context: Context, kind: ItemKind) -> CatalogItem:
        """The item of that name and kind."""
        schema, own = resolve(name, context.catalog, context.namespace)
        return self._env.state.get(schema, own, kind)

    # What Spark's grammar asks of a catalog.

    def create_namespace(
        self, name: str, properties: Mapping[str, str], if_not_exists: bool
    ) -> None:
        with self._env.ddl:
            if if_not_exists and self._env.state.find_schema(name) is not None:
                return
            schema_id = self._env.catalog.allocate_ids()[0]
            entry = SchemaEntry(schema_id, name, properties.get("comment"))
            self._change([CreateSchema(entry)], None)

    def drop_namespace(self, name: str, cascade: bool, user: str | None = None) -> None:
        with self._env.ddl:
            self._change([DropSchema(name, cascade)], user)

    def create_table(
        self,
        context: Context,
        schema_name: str,
        name: str,
        desc: RelationDesc,
        properties: Mapping[str, str],
        comment: str | None,
    ) -> CatalogItem:
        """A new empty table, readable from now on.

        Raises SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_INVALID_OPTION, names that are taken.
        """
        desc.arrow_schema()
        details, kept = _table_details(properties)
        full = f"slackwater.{schema_name}.{name}"
        item = CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.TABLE,
            schema_name=schema_name,
            name=name,
            create_sql=create_table_sql(full, desc, details.get("retain_history_ms"), comment),
            desc=desc,
            comment=comment,
            owner=context.user,
            created_ms=self._env.now(),
            details={**details, "properties": kept},
        )
        with self._env.ddl:
            self._change(self._with_grouped_shards([item]), context.user)
            return self._env.state.item(item.id)

    def alter_table(
        self, context: Context, schema_name: str, name: str, changes: Sequence[Mapping[str, Any]]
    ) -> CatalogItem:
        """Adds columns, drops NOT NULL, changes properties and the comment.

        Other changes are SLACKWATER_UNSUPPORTED. Raises what
        `slackwater.adapter.catalog.columns` raises.
        """
        with self._env.ddl:
            item = self._env.state.get(schema_name, name)
            details = dict(item.details)
            properties = dict(details.get("properties") or {})
            comment, desc = item.comment, item.desc
            for change in changes:
                match change:
                    case {"add_column": {"name": _} as added} if desc is not None:
                        refuse_new_column(item, self._env.state)
                        desc = with_column(item, desc, added)
                    case {"set_nullability": {"name": _} as changed} if desc is not None:
                        desc = with_nullability(item, desc, changed)
                        refuse_nullability(item, self._env.state)
                    case {"set_property": {"name": str(key), "value": str(value)}}:
                        if key == RETAIN_HISTORY:
                            details["retain_history_ms"] = _retain(value)
                        elif key == "comment":
                            comment = value
                        else:
                            properties[key] = value
                    case {"remove_property": str(key)}:
                        if key == RETAIN_HISTORY:
                            details.pop("retain_history_ms", None)
                        properties.pop(key, None)
                    case {"set_comment": text}:
                        comment = text
                    case _:
                        raise _unsupported_alter(next(iter(change)), item)
            details["properties"] = properties
            altered = AlterItem(item.id, details=details, comment=comment)
            self._change(self._with_columns(item, desc, altered), context.user)
            return self._env.state.item(item.id)

    def _with_columns(
        self, item: CatalogItem, desc: RelationDesc | None, altered: AlterItem
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """The alteration, and with it the columns of the item and of its shard."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            before, shard_id = item.desc, item.shard_id
            if desc is None or before is None or desc == before or shard_id is None:
                return [altered]
            self._env.persist.set_desc(conn, shard_id, desc, before)
            retain_ms = item.details.get("retain_history_ms")
            sql = create_table_sql(item.full_name, desc, retain_ms, altered.comment)
            return [replace(altered, desc=desc, create_sql=sql)]

        return make

    def rename(self, context: Context, item: CatalogItem, schema_name: str, name: str) -> None:
        with self._env.ddl:
            self._change([RenameItem(item.id, name, schema_name)], context.user)

    def create_view(
        self,
        context: Context,
        schema_name: str,
        name: str,
        desc: RelationDesc,
        query: str,
        *,
        replace_existing: bool,
        comment: str | None,
        properties: Mapping[str, str],
    ) -> CatalogItem:
        """A stored query. Its names mean what they mean in `context`, for ever.

        `properties` are kept and given back with the object: Spark's settings at creation, say.
        """
        analysis = self._env.engine.analyze(query, context.catalog, context.namespace)
        self._views.refuse_foreign(f"slackwater.{schema_name}.{name}", analysis)
        item = CatalogItem(
            id=self._env.catalog.allocate_ids()[0],
            kind=ItemKind.VIEW,
            schema_name=schema_name,
            name=name,
            create_sql=to_sql(
                st.CreateView(
                    QualifiedName(("slackwater", schema_name, name)),
                    st.TextSlice(query),
                    columns=desc.names,
                )
            ),
            desc=desc,
            depends_on=self._views.dependencies(analysis),
            comment=comment,
            owner=context.user,
            created_ms=self._env.now(),
            details={
                "query": query,
                "catalog": context.catalog,
                "namespace": list(context.namespace),
                "properties": dict(properties),
            },
        )
        with self._env.ddl:
            ops: list[CatalogOp] = []
            if replace_existing and self._env.state.find(schema_name, name) is not None:
                ops.append(DropItem(self._env.state.get(schema_name, name, ItemKind.VIEW).id))
            self._change([*ops, CreateItem(item)], context.user)
        return self._env.state.item(item.id)

    def drop(self, context: Context, item: CatalogItem, cascade: bool) -> None:
        """Drops an item; with `cascade` what depends on it as well."""
        with self._env.ddl:
            self._change([DropItem(item.id, cascade)], context.user)

    # The statements, one by one.

    def _create_table_with_options(
        self, session: Session, context: Context, statement: st.CreateTable
    ) -> None:
        """Spark parses columns and types: the options travel as table properties."""
        body = statement.body.text
        if statement.retain_history_ms is not None:
            body += f" TBLPROPERTIES ('{RETAIN_HISTORY}' = '{statement.retain_history_ms} ms')"
        spark = replace(statement, body=st.TextSlice(body), retain_history_ms=None)
        self._env.engine.collect(spark.spark_text, context.catalog, context.namespace)

    def _create_view_statement(
        self, session: Session, context: Context, statement: st.CreateView
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if self._skip(session, statement.if_not_exists, schema, name):
            return
        analysis = self._env.engine.analyze(
            statement.query.text, context.catalog, context.namespace
        )
        desc = self._views.renamed(analysis.desc, statement.columns, str(statement.name))
        self.create_view(
            context,
            schema,
            name,
            desc,
            statement.query.text,
            replace_existing=statement.or_replace,
            comment=statement.comment,
            properties={},
        )

    def _create_materialized_view(
        self, session: Session, context: Context, statement: st.CreateMaterializedView
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if self._skip(session, statement.if_not_exists, schema, name):
            return
        item_id = self._env.catalog.allocate_ids()[0]
        with self._env.ddl:
            draft = self._views.draft(item_id, schema, name, context, statement)

            def make(conn: Connection) -> Sequence[CatalogOp]:
                ops: list[CatalogOp] = []
                existing = self._env.state.find(schema, name)
                if statement.or_replace and existing is not None:
                    self._env.state.get(schema, name, ItemKind.MATERIALIZED_VIEW)
                    ops.append(DropItem(existing.id))
                return [*ops, CreateItem(self._views.with_shards(conn, draft))]

            try:
                self._change(make, context.user)
            finally:
                self._views.release(draft)
        for message in draft.notices:
            session.notify(message)

    def _create_source(
        self, session: Session, context: Context, statement: st.CreateSource
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if self._skip(session, statement.if_not_exists, schema, name):
            return
        items = self._drafts.draft(schema, name, context, statement)
        with self._env.ddl:
            self._change(self._with_grouped_shards(items), context.user)
        source = next(item for item in items if item.parent is None)
        self._sources.wait_for_snapshot(session, source)

    def _create_sink(self, session: Session, context: Context, statement: st.CreateSink) -> None:
        written = find_item(self._env.state, statement.from_name, context)
        given = statement.name or QualifiedName((f"{written.name}_sink",))
        schema, name = resolve(given, context.catalog, context.namespace)
        if self._skip(session, statement.if_not_exists, schema, name):
            return
        item_id = self._env.catalog.allocate_ids()[0]
        with self._env.ddl:
            if written.shard_id is not None:
                self._env.collections.prepare_export(item_id, written.id)
            try:
                item = self._drafts.draft_sink(item_id, schema, name, context, statement, written)

                def make(conn: Connection) -> Sequence[CatalogOp]:
                    as_of = Timestamp(int(item.details["as_of"]))
                    shard_id = self._env.persist.create_shard(
                        conn, PROGRESS, since=as_of, upper=as_of, grouped=False
                    )
                    details = {**item.details, "progress_shard": shard_id}
                    return [CreateItem(replace(item, details=details))]

                self._change(make, context.user)
            finally:
                self._env.collections.cancel_export(item_id)

    def _redirect_sink(
        self, session: Session, context: Context, statement: st.AlterSinkFrom
    ) -> None:
        """ALTER SINK ... SET FROM: what is out stays, from there on the other relation's changes.

        First all that the old relation held at the time of the statement goes out. The running sink
        ends after the catalog has changed; the next one continues where the files end, so there is
        no time at which both relations are written, or none.
        """
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._env.state.find(schema, own) is None:
            session.notify(f"There is no sink {schema}.{own}.", code="42704")
            return
        sink = self._env.state.get(schema, own, ItemKind.SINK)
        written = find_item(self._env.state, statement.from_name, context)
        self._drafts.redirect_sink(sink, written)
        time = self._env.oracle.read_ts()
        # Held before the sink gets there, so that it can be read where the sink is then.
        hold = self._env.hold([written], Holder(HoldKind.DEFINITION, sink.id))
        try:
            self._check_readable(sink, written, hold, time)
            self._wait_until_out(session, sink, time)
            with self._env.ddl:
                sink = self._env.state.item(sink.id)
                change = self._drafts.redirect_sink(sink, self._env.state.item(written.id))
                if change.depends_on != sink.depends_on:
                    self._change([change], context.user)
        finally:
            self._env.storage.release(hold)

    def _wait_until_out(self, session: Session, sink: CatalogItem, time: Timestamp) -> None:
        """Returns when it is on record that the sink has written everything up to `time`."""

        def out() -> Frontier:
            return Frontier(self._env.persist.upper(int(sink.details["progress_shard"])))

        timeout_s = variables.milliseconds(session.variable("statement_timeout")) / 1000
        if not self._env.watch.wait_until(
            lambda: out().value > time,
            timeout_s or 10.0**9,
            Cancellation(),
        ):
            raise user_error(
                "SLACKWATER_WAIT_TIMEOUT",
                objectName=sink.full_name,
                timestamp=str(time),
                seconds=f"{timeout_s:g}",
                complete=str(out().last_complete()),
            )

    def _check_readable(
        self, sink: CatalogItem, written: CatalogItem, hold: ReadHold, time: Timestamp
    ) -> None:
        if hold.since > time:
            raise user_error(
                "SLACKWATER_NO_VALID_TIMESTAMP",
                details=f"the sink {sink.full_name} goes on from {time}, "
                f"and {written.full_name} can be read from {hold.since} on",
            )

    def _drop_objects(self, session: Session, context: Context, statement: st.DropObjects) -> None:
        cascade = bool(statement.cascade)
        with self._env.ddl:
            ops: list[CatalogOp] = []
            for name in statement.names:
                op = self._drop_op(session, context, statement, name, cascade)
                if op is not None:
                    ops.append(op)
            if ops:
                dropped = self._change(_without_repeats(ops, self._env.state), context.user)
                extra = len(dropped.dropped) - len(ops)
                if cascade and extra > 0:
                    names = ", ".join(item.full_name for item in dropped.dropped)
                    session.notify(f"{extra} other objects were dropped as well: {names}")

    def _drop_op(
        self,
        session: Session,
        context: Context,
        statement: st.DropObjects,
        name: QualifiedName,
        cascade: bool,
    ) -> CatalogOp | None:
        if statement.kind is st.ObjectKind.SCHEMA:
            schema_name = resolve_schema(name, context.catalog)
            if self._env.state.find_schema(schema_name) is None and statement.if_exists:
                session.notify(f"There is no schema {schema_name}.", code="42704")
                return None
            return DropSchema(schema_name, cascade)
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        schema, own = resolve(name, context.catalog, context.namespace)
        if self._env.state.find(schema, own) is None and statement.if_exists:
            session.notify(f"There is no {kind.spoken} {schema}.{own}.", code="42704")
            return None
        return DropItem(self._env.state.get(schema, own, kind).id, cascade)

    def _rename_statement(self, context: Context, statement: st.AlterRename) -> None:
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._env.state.find(schema, own) is None:
            return
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        item = self._env.state.get(schema, own, kind)
        new_schema, new_name = (
            (schema, statement.new_name.last)
            if len(statement.new_name.parts) == 1
            else resolve(statement.new_name, context.catalog, context.namespace)
        )
        self.rename(context, item, new_schema, new_name)

    def _set_retain_history(
        self, session: Session, context: Context, statement: st.AlterSetRetainHistory
    ) -> None:
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._env.state.find(schema, own) is None:
            session.notify(f"There is no relation {schema}.{own}.", code="42704")
            return
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        with self._env.ddl:
            item = self._env.state.get(schema, own, kind)
            details = dict(item.details)
            details["retain_history_ms"] = statement.retain_history_ms
            self._change([AlterItem(item.id, details=details)], context.user)

    def _comment(self, context: Context, statement: st.CommentOn) -> None:
        if statement.kind in (st.ObjectKind.SCHEMA, st.ObjectKind.COLUMN):
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature=f"COMMENT ON {statement.kind.value}",
                advice="Comments can be set on relations and sinks.",
            )
        item = find_item(self._env.state, statement.name, context)
        with self._env.ddl:
            self._change([AlterItem(item.id, comment=statement.text or "")], context.user)

    # Transactions.

    def _skip(self, session: Session, if_not_exists: bool, schema: str, name: str) -> bool:
        existing = self._env.state.find(schema, name)
        if existing is None or not if_not_exists:
            return False
        session.notify(
            f"{existing.full_name} exists already, as a {existing.kind.spoken}.", code="42P07"
        )
        return True

    def _with_grouped_shards(
        self, items: Sequence[CatalogItem]
    ) -> Callable[[Connection], Sequence[CatalogOp]]:
        """Creates the items with shards that share the tables upper."""

        def make(conn: Connection) -> Sequence[CatalogOp]:
            since = self._env.oracle.read_ts()
            for item in items:
                if item.kind is ItemKind.SOURCE and item.parent is None:
                    create_state(conn, item.id)
            return [CreateItem(self._with_grouped_shard(conn, item, since)) for item in items]

        return make

    def _with_grouped_shard(
        self, conn: Connection, item: CatalogItem, since: Timestamp
    ) -> CatalogItem:
        if item.desc is None or not item.desc.columns:
            return item

        def shard(desc: RelationDesc) -> int:
            return self._env.persist.create_shard(conn, desc, since=since, upper=None, grouped=True)

        made = replace(item, shard_id=shard(item.desc))
        if not propagates_errors(item):
            return made
        return replace(made, details={**item.details, "errors": shard(ERRORS)})

    def _change(
        self,
        ops: Sequence[CatalogOp] | Callable[[Connection], Sequence[CatalogOp]],
        user: str | None,
    ) -> CatalogDiff:
        """Commits a change and what follows from it. Called with the ddl lock held."""
        before = self._env.state

        def make(conn: Connection) -> Sequence[CatalogOp]:
            made = list(ops(conn) if callable(ops) else ops)
            _, diff = apply(before, made)
            for item in diff.dropped:
                for shard_id in shards_of(item):
                    self._env.persist.drop_shard(conn, shard_id)
                if item.kind is ItemKind.SOURCE:
                    self._sources.forget(conn, item.id)
            return made

        _, diff = self._env.catalog.transact(make, user=user, on_durable=self._implications.prepare)
        self._implications.apply(diff)
        self._env.watch.signal()
        return diff


def object_json(item: CatalogItem) -> dict[str, Any]:
    """The object of protocol section 2."""
    desc = item.desc or RelationDesc(())
    view = None
    if item.kind is ItemKind.VIEW:
        view = {key: item.details[key] for key in ("query", "catalog", "namespace")}
    properties = dict(item.details.get("properties") or {})
    retain = item.details.get("retain_history_ms")
    if retain is not None:
        properties[RETAIN_HISTORY] = f"{retain} ms"
    return {
        "id": item.id,
        "kind": item.kind.value,
        "schema_name": item.schema_name,
        "name": item.name,
        "schema": json.loads(desc.to_json()),
        "writable": item.kind is ItemKind.TABLE,
        "properties": properties,
        "comment": item.comment,
        "view": view,
    }


def _without_repeats(ops: Sequence[CatalogOp], state: CatalogState) -> list[CatalogOp]:
    """Drops that an earlier cascade of the same statement has not done already."""
    kept: list[CatalogOp] = []
    gone: set[str] = set()
    for op in ops:
        if isinstance(op, DropItem):
            if op.id in gone:
                continue
            if op.cascade:
                gone.update(item.id for item in state.with_dependents([op.id]))
            gone.add(op.id)
        kept.append(op)
    return kept


def _table_details(properties: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    details: dict[str, Any] = {}
    kept = {}
    for key, value in properties.items():
        if key == RETAIN_HISTORY:
            details["retain_history_ms"] = _retain(value)
        elif key == "provider":
            if value.lower() != "slackwater":
                raise user_error(
                    "SLACKWATER_UNSUPPORTED",
                    feature=f"CREATE TABLE ... USING {value}",
                    advice="Leave USING out: tables of slackwater are collections.",
                )
        elif key == "location":
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature="CREATE TABLE ... LOCATION",
                advice="Leave it out: the environment keeps the files of its tables.",
            )
        elif key not in _SPARK_PROPERTIES:
            kept[key] = value
    return details, kept


def _retain(value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError as reason:
        raise user_error(
            "SLACKWATER_INVALID_OPTION",
            option=RETAIN_HISTORY,
            statement="CREATE TABLE",
            value=repr(value),
            reason=str(reason),
        ) from None


def _unsupported_alter(change: str, item: CatalogItem) -> Exception:
    return user_error(
        "SLACKWATER_UNSUPPORTED",
        feature=f"ALTER TABLE with {change.replace('_', ' ')} (on {item.full_name})",
        advice="Create a new table with the wanted columns and INSERT INTO it.",
    )
