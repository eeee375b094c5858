"""Definitions for objects of several kinds (drop, rename, comment, keep history) and schemas."""

from __future__ import annotations

from collections.abc import Sequence

from slackwater.adapter.catalog.details import retaining
from slackwater.adapter.catalog.model import CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.catalog.naming import expect_kind, find_item, kind_of
from slackwater.adapter.catalog.ops import (
    AlterItem,
    CatalogOp,
    CommentSchema,
    CreateSchema,
    DropItem,
    DropSchema,
    RenameItem,
    changeable,
)
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.ddl.columns import with_comment
from slackwater.adapter.protocol import (
    AlterNamespace,
    CreateNamespace,
    DropNamespace,
    DropRelation,
    RenameTable,
    schema_of,
)
from slackwater.adapter.sessions.sessions import Execution
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve_schema


class Objects:
    """Definitions that objects of several kinds have, and schemas."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def create_namespace(self, execution: Execution, asked: CreateNamespace) -> None:
        name = schema_of(asked.namespace)
        with self._changes.defining(execution.cancellation):
            if asked.if_not_exists and self._changes.state.find_schema(name) is not None:
                return
            entry = SchemaEntry(self._changes.new_id(), name, asked.properties.get("comment"))
            self._changes.commit([CreateSchema(entry)], execution.user)

    def alter_namespace(self, execution: Execution, asked: AlterNamespace) -> None:
        op = CommentSchema(schema_of(asked.namespace), asked.comment or None)
        self._commit(execution, op)

    def drop_namespace(self, execution: Execution, asked: DropNamespace) -> None:
        self._commit(execution, DropSchema(schema_of(asked.namespace), asked.cascade))

    def rename_table(self, execution: Execution, asked: RenameTable) -> None:
        item = self._changes.state.get(schema_of(asked.namespace), asked.name)
        self._commit(execution, RenameItem(item.id, asked.to_name, schema_of(asked.to_namespace)))

    def drop_table(self, execution: Execution, asked: DropRelation) -> bool:
        """Drops a table; False: there is none."""
        return self._drop(execution, asked, ItemKind.TABLE)

    def drop_view(self, execution: Execution, asked: DropRelation) -> bool:
        """Drops a view; False: there is none."""
        return self._drop(execution, asked, ItemKind.VIEW)

    def _drop(self, execution: Execution, asked: DropRelation, kind: ItemKind) -> bool:
        schema = schema_of(asked.namespace)
        existing = self._changes.state.find(schema, asked.name)
        if existing is None:
            return False
        changeable(self._changes.state, existing.id)
        item = self._changes.state.get(schema, asked.name, kind)
        self._commit(execution, DropItem(item.id))
        return True

    def _commit(self, execution: Execution, op: CatalogOp) -> None:
        with self._changes.defining(execution.cancellation):
            self._changes.commit([op], execution.user)

    def drop_objects(self, execution: Execution, statement: st.DropObjects) -> None:
        cascade = bool(statement.cascade)
        with self._changes.defining(execution.cancellation):
            found = (self._drop_op(execution, statement, name) for name in statement.names)
            ops = [op for op in found if op is not None]
            if ops:
                dropped = self._changes.commit(
                    _without_repeats(ops, self._changes.state), execution.user
                )
                extra = len(dropped.dropped) - len(ops)
                if cascade and extra > 0:
                    names = ", ".join(item.full_name for item in dropped.dropped)
                    execution.session.notify(f"{extra} other objects were dropped as well: {names}")

    def _drop_op(
        self, execution: Execution, statement: st.DropObjects, name: QualifiedName
    ) -> CatalogOp | None:
        cascade = bool(statement.cascade)
        if statement.kind is st.ObjectKind.SCHEMA:
            schema_name = resolve_schema(name, execution.context.catalog)
            if self._changes.state.find_schema(schema_name) is None and statement.if_exists:
                execution.session.notify(f"There is no schema {schema_name}.", code="42704")
                return None
            return DropSchema(schema_name, cascade)
        kind = kind_of(statement.kind)
        named = self._changes.existing_name(execution, kind, name, if_exists=statement.if_exists)
        if named is None:
            return None
        return DropItem(self._changes.state.get(*named, kind).id, cascade)

    def rename(self, execution: Execution, statement: st.AlterRename) -> None:
        kind = kind_of(statement.kind)
        named = self._changes.existing_name(
            execution, kind, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        item = self._changes.state.get(*named, kind)
        schema, own = (
            (named[0], statement.new_name.last)
            if len(statement.new_name.parts) == 1
            else execution.context.resolve(statement.new_name)
        )
        self._commit(execution, RenameItem(item.id, own, schema))

    def set_retain_history(self, execution: Execution, statement: st.AlterSetRetainHistory) -> None:
        kind = kind_of(statement.kind)
        named = self._changes.existing_name(
            execution, kind, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.get(*named, kind)
            details = retaining(item.details, statement.retain_history_ms)
            self._changes.commit([AlterItem(item.id, details=details)], execution.user)

    def set_cluster(self, execution: Execution, statement: st.AlterSetCluster) -> None:
        """ALTER ... SET CLUSTER: the object goes on on the other cluster where it is.

        Nothing of it is lost or done twice: what is stored says where it goes on.
        """
        kind = kind_of(statement.kind)
        named = self._changes.existing_name(
            execution, kind, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        with self._changes.defining(execution.cancellation):
            cluster = self._changes.state.cluster(statement.cluster)
            item = self._changes.state.get(*named, kind)
            if item.parent is not None:
                raise item.wrong_kind("source that is no part of another one")
            fed = (i for i in self._changes.state.items.values() if i.feeder == item.id)
            parts = (each for each in fed if each.kind is ItemKind.SOURCE and each.id != item.id)
            moved = [each for each in (item, *parts) if each.cluster != cluster.id]
            ops = [AlterItem(each.id, cluster=cluster.id) for each in moved]
            if ops:
                self._changes.commit(ops, execution.user)
        self._changes.tell_if_idle(execution, self._changes.state.item(item.id))

    def comment(self, execution: Execution, statement: st.CommentOn) -> None:
        text, context = statement.text or "", execution.context
        with self._changes.defining(execution.cancellation):
            if statement.kind is st.ObjectKind.COLUMN:
                relation = QualifiedName(statement.name.parts[:-1])
                item = find_item(self._changes.state, relation, context)
                desc = with_comment(item, (statement.name.last,), text)
                described = self._changes.with_columns(item, desc, AlterItem(item.id))
                self._changes.commit(described, execution.user)
                return
            item = find_item(self._changes.state, statement.name, context)
            changeable(self._changes.state, item.id)
            expect_kind(item, kind_of(statement.kind))
            self._changes.commit([AlterItem(item.id, comment=text)], execution.user)


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
