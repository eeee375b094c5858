"""CREATE SECRET and ALTER SECRET."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import SecretDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, CreateItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Session
from slackwater.adapter.sources.secrets import Secrets, version_of
from slackwater.adapter.time.watch import Cancellation
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import resolve


class SecretDefinitions:
    """Definitions of secrets. The value is kept in the transaction that makes the object."""

    def __init__(self, changes: Changes, secrets: Secrets) -> None:
        self._changes = changes
        self._secrets = secrets

    def create_secret(
        self,
        session: Session,
        context: Context,
        statement: st.CreateSecret,
        cancellation: Cancellation,
    ) -> None:
        named = self._changes.new_name(
            session, context, statement.name, if_not_exists=statement.if_not_exists
        )
        if named is None:
            return
        blank = self._changes.new_item(ItemKind.SECRET, *named, context)
        item = replace(blank, create_sql=to_sql(statement), details=SecretDetails())

        def make(conn: Connection) -> Sequence[CatalogOp]:
            self._secrets.put(conn, item.id, statement.value)
            return [CreateItem(item)]

        with self._changes.defining(cancellation):
            self._changes.commit(make, context.user)

    def alter_secret(
        self,
        session: Session,
        context: Context,
        statement: st.AlterSecret,
        cancellation: Cancellation,
    ) -> None:
        schema, name = resolve(statement.name, context.catalog, context.namespace)
        if statement.if_exists and self._changes.state.find(schema, name) is None:
            session.notify(f"There is no secret {schema}.{name}.", code="42704")
            return
        with self._changes.defining(cancellation):
            item = self._changes.state.get(schema, name, ItemKind.SECRET)
            details = SecretDetails(version_of(item) + 1)

            def make(conn: Connection) -> Sequence[CatalogOp]:
                self._secrets.put(conn, item.id, statement.value)
                return [AlterItem(item.id, details=details)]

            self._changes.commit(make, context.user)
