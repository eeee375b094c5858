"""Definitions for objects of several kinds (drop, rename, comment, keep history) and schemas."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import retaining
from slackwater.adapter.catalog.model import (
    CatalogItem,
    CatalogState,
    ItemKind,
    SchemaEntry,
)
from slackwater.adapter.catalog.naming import expect_kind, find_item
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogOp,
    CommentSchema,
    CreateSchema,
    DropItem,
    DropSchema,
    RenameItem,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.columns import with_comment
from slackwater.adapter.protocol import CreateNamespace, schema_of
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve, resolve_schema


class Objects:
    """Definitions that objects of several kinds have, and schemas."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def create_namespace(self, asked: CreateNamespace, cancellation: Cancellation) -> None:
        name = schema_of(asked.namespace)
        with self._changes.defining(cancellation):
            if asked.if_not_exists and self._changes.state.find_schema(name) is not None:
                return
            entry = SchemaEntry(self._changes.new_id(), name, asked.properties.get("comment"))
            self._changes.commit([CreateSchema(entry)], None)

    def comment_on_namespace(
        self, name: str, text: str, user: str | None, cancellation: Cancellation
    ) -> None:
        """Changes the comment of a schema. An empty text removes it."""
        with self._changes.defining(cancellation):
            self._changes.commit([CommentSchema(name, text or None)], user)

    def drop_namespace(self, name: str, cascade: bool, cancellation: Cancellation) -> None:
        with self._changes.defining(cancellation):
            self._changes.commit([DropSchema(name, cascade)], None)

    def rename(
        self,
        context: Context,
        item: CatalogItem,
        schema_name: str,
        name: str,
        cancellation: Cancellation,
    ) -> None:
        with self._changes.defining(cancellation):
            self._changes.commit([RenameItem(item.id, name, schema_name)], context.user)

    def drop(self, context: Context, item: CatalogItem, cancellation: Cancellation) -> None:
        with self._changes.defining(cancellation):
            self._changes.commit([DropItem(item.id)], context.user)

    def drop_objects(
        self,
        session: Session,
        context: Context,
        statement: st.DropObjects,
        cancellation: Cancellation,
    ) -> None:
        cascade = bool(statement.cascade)
        with self._changes.defining(cancellation):
            ops: list[CatalogOp] = []
            for name in statement.names:
                op = self._drop_op(session, context, statement, name, cascade)
                if op is not None:
                    ops.append(op)
            if ops:
                dropped = self._changes.commit(
                    _without_repeats(ops, self._changes.state), context.user
                )
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
            if self._changes.state.find_schema(schema_name) is None and statement.if_exists:
                session.notify(f"There is no schema {schema_name}.", code="42704")
                return None
            return DropSchema(schema_name, cascade)
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        schema, own = resolve(name, context.catalog, context.namespace)
        if self._changes.state.find(schema, own) is None and statement.if_exists:
            session.notify(f"There is no {kind.display_name} {schema}.{own}.", code="42704")
            return None
        return DropItem(self._changes.state.get(schema, own, kind).id, cascade)

    def rename_statement(
        self, context: Context, statement: st.AlterRename, cancellation: Cancellation
    ) -> None:
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._changes.state.find(schema, own) is None:
            return
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        item = self._changes.state.get(schema, own, kind)
        new_schema, new_name = (
            (schema, statement.new_name.last)
            if len(statement.new_name.parts) == 1
            else resolve(statement.new_name, context.catalog, context.namespace)
        )
        self.rename(context, item, new_schema, new_name, cancellation)

    def set_retain_history(
        self,
        session: Session,
        context: Context,
        statement: st.AlterSetRetainHistory,
        cancellation: Cancellation,
    ) -> None:
        schema, own = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._changes.state.find(schema, own) is None:
            session.notify(f"There is no relation {schema}.{own}.", code="42704")
            return
        kind = ItemKind(statement.kind.value.lower().replace(" ", "-"))
        with self._changes.defining(cancellation):
            item = self._changes.state.get(schema, own, kind)
            details = retaining(item.details, statement.retain_history_ms)
            self._changes.commit([AlterItem(item.id, details=details)], context.user)

    def comment(
        self, context: Context, statement: st.CommentOn, cancellation: Cancellation
    ) -> None:
        text = statement.text or ""
        with self._changes.defining(cancellation):
            if statement.kind is st.ObjectKind.COLUMN:
                relation = QualifiedName(statement.name.parts[:-1])
                item = find_item(self._changes.state, relation, context)
                desc = with_comment(item, (statement.name.last,), text)
                described = self._changes.with_columns(item, desc, AlterItem(item.id))
                self._changes.commit(described, context.user)
                return
            item = find_item(self._changes.state, statement.name, context)
            expect_kind(item, ItemKind(statement.kind.value.lower().replace(" ", "-")))
            self._changes.commit([AlterItem(item.id, comment=text)], context.user)


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
